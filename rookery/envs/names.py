"""Which environments there are, read without importing what takes long to import.

JAX takes a second and pygame half of one; `rookery envs` and a mistyped name need neither.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

GYMNAX, PGX = "gymnax:", "pgx:"
VERSION = re.compile(r"-v\d+$")
_HIDDEN_NAMESPACES = ("phys2d", "tabular")  # Gymnasium's JAX copies of its own environments
_HIDDEN_NAMES = ("GymV21Environment", "GymV26Environment")  # shims, not environments


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """One line of `rookery envs`."""

    id: str
    source: str  # "gymnasium", "gymnax", "pgx", "pettingzoo" or "registered"
    description: str


def newest(ids: Iterable[str]) -> list[str]:
    """One id per name, of the highest version, in the order given."""
    best: dict[str, str] = {}
    for id in ids:
        name = VERSION.sub("", id)
        if name.partition("/")[0] in _HIDDEN_NAMESPACES or name in _HIDDEN_NAMES:
            continue
        if name not in best or _version(id) > _version(best[name]):
            best[name] = id
    return list(best.values())


def _version(id: str) -> int:
    found = VERSION.search(id)
    return int(found[0][2:]) if found else -1


_FAMILIES = {
    "classic_control": ("classic control", None, None),
    "toy_text": ("toy text", None, None),
    "box2d": ("Box2D", "Box2D", "box2d"),
    "mujoco": ("MuJoCo", "mujoco", "mujoco"),
}


def gymnasium_infos() -> Iterable[EnvironmentInfo]:
    """Gymnasium's environments, Atari's included where they are installed."""
    import gymnasium

    if importlib.util.find_spec("ale_py") is not None:
        gymnasium.register_envs(importlib.import_module("ale_py"))
    for id in newest(gymnasium.registry):
        spec = gymnasium.registry[id]
        parts = str(spec.entry_point).split(":")[0].split(".")
        family, package, extra = next(
            (_FAMILIES[part] for part in parts if part in _FAMILIES), (parts[0], None, None)
        )
        notes = [family]
        if spec.max_episode_steps:
            notes.append(f"up to {spec.max_episode_steps} steps")
        if package and importlib.util.find_spec(package) is None:
            notes.append(f"needs rookery[{extra}]")
        yield EnvironmentInfo(id, "gymnasium", ", ".join(notes))


def gymnax_ids() -> list[str]:
    """Gymnax's ids, read from its source; the slow way if that is laid out differently."""
    found = _assigned("gymnax", "registration.py", "_BUILTIN_ENV_IDS")
    if found is None:
        return []
    names = ast.literal_eval(found) if found else importlib.import_module("gymnax").registered_envs
    return [GYMNAX + name for name in names]


def pgx_ids() -> list[str]:
    """Pgx's ids, read from its source; the slow way if that is laid out differently."""
    found = _assigned("pgx", "core.py", "EnvId")
    if found is None:
        return []
    if isinstance(found, ast.Subscript):  # EnvId = Literal["2048", ...]
        names = [name for name in ast.literal_eval(found.slice) if name != "bridge_bidding"]
    else:
        names = importlib.import_module("pgx").available_envs()
    return [PGX + name for name in names]


def pgx_infos() -> Iterable[EnvironmentInfo]:
    """Pgx's games; two of its families are played alone."""
    for id in pgx_ids():
        alone = id.startswith((f"{PGX}minatar-", f"{PGX}2048"))
        yield EnvironmentInfo(id, "pgx", "JAX-native" if alone else "JAX-native, in turns")


_PETTINGZOO_FAMILIES = {
    "classic": "classic games",
    "butterfly": "butterfly, several agents at once",
    "mpe2": "particles, several agents at once",
}


def pettingzoo_infos() -> Iterable[EnvironmentInfo]:
    """PettingZoo's games and MPE2's."""
    from rookery.envs.pettingzoo.names import pettingzoo_ids

    for id, family in pettingzoo_ids().items():
        yield EnvironmentInfo(id, "pettingzoo", _PETTINGZOO_FAMILIES[family])


def _assigned(package: str, file: str, name: str) -> Any:
    """What a package's file assigns to a name, as syntax.

    None when the package is not installed, an empty tuple when the name is not found there.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    source = os.path.join(spec.submodule_search_locations[0], file)
    with contextlib.suppress(OSError), open(source, encoding="utf-8") as opened:
        for node in ast.parse(opened.read()).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == name for target in node.targets
            ):
                return node.value
    return ()
