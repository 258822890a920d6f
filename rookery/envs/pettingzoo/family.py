"""PettingZoo's games and MPE2's; ids are read from the names of files, nothing is imported."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rookery.envs import Options
from rookery.envs.family import EnvironmentInfo, Factory, check_listed
from rookery.errors import MissingExtra
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment

PREFIX = "pettingzoo:"
_HOMES = {  # family -> package, folder inside it
    "classic": ("pettingzoo", "classic"),
    "butterfly": ("pettingzoo", "butterfly"),
    "mpe2": ("mpe2", ""),
}
_DESCRIPTIONS = {
    "classic": "classic games",
    "butterfly": "butterfly, several agents at once",
    "mpe2": "particles, several agents at once",
}
_MODULE = re.compile(r"(\w+_v\d+)\.py$")


class PettingZooFamily:
    def infos(self) -> Iterable[EnvironmentInfo]:
        for id, kind in pettingzoo_ids().items():
            yield EnvironmentInfo(id, "pettingzoo", _DESCRIPTIONS[kind])

    def check(self, id: str, others: Callable[[], Iterable[str]] = list) -> None:
        if importlib.util.find_spec("pettingzoo") is None:
            raise MissingExtra(f"environment {id}", "games")
        if importlib.util.find_spec("mpe2") is None and "simple" in id:
            raise MissingExtra(f"environment {id}", "games")
        check_listed(id, pettingzoo_ids())

    def owns(self, made: Any) -> bool:
        """While nobody has imported it there is no game: whoever has one has."""
        pettingzoo = sys.modules.get("pettingzoo")
        if pettingzoo is None:
            return False
        kinds = (pettingzoo.AECEnv, pettingzoo.ParallelEnv)
        return issubclass(made, kinds) if isinstance(made, type) else isinstance(made, kinds)

    def describe(self, id: str, kwargs: Options, factory: Factory | None) -> EnvironmentSpec:
        from rookery.envs.pettingzoo.probe import probe

        return probe(id, kwargs, factory).spec

    def make(
        self, id: str, slots: int, kwargs: Options, factory: Factory | None
    ) -> BatchedEnvironment:
        from rookery.envs.pettingzoo.environment import PettingZooEnvironment

        return PettingZooEnvironment(id, slots, kwargs, factory)

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> None:
        return None


PETTINGZOO = PettingZooFamily()


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


def module_of(id: str) -> str:
    """The module that holds the game."""
    package, folder = _HOMES[pettingzoo_ids()[id]]
    return ".".join(filter(None, (package, folder, id.removeprefix(PREFIX))))
