"""The games behind `pettingzoo:NAME`, read from the names of files: nothing is imported."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re

from rookery.errors import MissingExtra, UnknownName

PREFIX = "pettingzoo:"
_HOMES = {  # family -> package, folder inside it
    "classic": ("pettingzoo", "classic"),
    "butterfly": ("pettingzoo", "butterfly"),
    "mpe2": ("mpe2", ""),
}
_MODULE = re.compile(r"(\w+_v\d+)\.py$")


def pettingzoo_ids() -> dict[str, str]:
    """Every id that is installed, with its family."""
    found: dict[str, str] = {}
    for family, (package, folder) in _HOMES.items():
        spec = importlib.util.find_spec(package)
        for home in (spec.submodule_search_locations or []) if spec else []:
            with contextlib.suppress(OSError):
                for file in sorted(os.listdir(os.path.join(home, folder))):
                    if module := _MODULE.match(file):
                        found.setdefault(PREFIX + module[1], family)
    return found


def check_pettingzoo(id: str) -> None:
    """Raise unless there is a game of that id."""
    if importlib.util.find_spec("pettingzoo") is None:
        raise MissingExtra(f"environment {id}", "games")
    known = pettingzoo_ids()
    if id not in known:
        if importlib.util.find_spec("mpe2") is None and "simple" in id:
            raise MissingExtra(f"environment {id}", "games")
        raise UnknownName("environment", id, known, "run `rookery envs` to list them")


def module_of(id: str) -> str:
    """The module that holds the game."""
    package, folder = _HOMES[pettingzoo_ids()[id]]
    return ".".join(filter(None, (package, folder, id.removeprefix(PREFIX))))
