"""Gymnasium's environments, Atari's where they are installed, and users' own of its kind."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rookery.envs import Options
from rookery.envs.family import HINT, EnvironmentInfo, Factory
from rookery.errors import MissingExtra, UnknownName
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment

_VERSION = re.compile(r"-v\d+$")
_HIDDEN_NAMESPACES = ("phys2d", "tabular")  # Gymnasium's JAX copies of its own environments
_HIDDEN_NAMES = ("GymV21Environment", "GymV26Environment")  # shims, not environments
_KINDS = {  # part of a module's name -> description, package, extra
    "classic_control": ("classic control", None, None),
    "toy_text": ("toy text", None, None),
    "box2d": ("Box2D", "Box2D", "box2d"),
    "mujoco": ("MuJoCo", "mujoco", "mujoco"),
}


class GymnasiumFamily:
    def infos(self) -> Iterable[EnvironmentInfo]:
        registry = _registry()
        for id in _newest(registry):
            yield EnvironmentInfo(id, "gymnasium", _description(registry[id]))

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        import gymnasium

        if id in gymnasium.registry or id in _registry():
            return
        if id.startswith("ALE/") and importlib.util.find_spec("ale_py") is None:
            raise MissingExtra(f"environment {id}", "atari")
        base = _VERSION.sub("", id).lower()
        same = [n for n in _newest(gymnasium.registry) if _VERSION.sub("", n).lower() == base]
        raise UnknownName("environment", id, same or others(), HINT)

    def owns(self, made: Any) -> bool:
        import gymnasium

        if isinstance(made, type):
            return issubclass(made, gymnasium.Env)
        return isinstance(made, gymnasium.Env)

    def describe(self, id: str, kwargs: Options, factory: Factory | None) -> EnvironmentSpec:
        from rookery.envs.gymnasium.probe import probe

        return probe(id, kwargs, factory).spec

    def make(
        self, id: str, slots: int, kwargs: Options, factory: Factory | None
    ) -> BatchedEnvironment:
        from rookery.envs.gymnasium.environment import GymnasiumEnvironment

        return GymnasiumEnvironment(id, slots, kwargs, factory)

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> None:
        return None


GYMNASIUM = GymnasiumFamily()


def _registry() -> dict[str, Any]:
    """Atari's ids exist once its package is imported."""
    import gymnasium

    if importlib.util.find_spec("ale_py") is not None:
        gymnasium.register_envs(importlib.import_module("ale_py"))
    return gymnasium.registry


def _description(spec: Any) -> str:
    parts = str(spec.entry_point).split(":")[0].split(".")
    kind, package, extra = next(
        (_KINDS[part] for part in parts if part in _KINDS), (parts[0], None, None)
    )
    notes = [kind]
    if spec.max_episode_steps:
        notes.append(f"up to {spec.max_episode_steps} steps")
    if package and importlib.util.find_spec(package) is None:
        notes.append(f"needs rookery[{extra}]")
    return ", ".join(notes)


def _newest(ids: Iterable[str]) -> list[str]:
    """One id per name, of the highest version, in the order given."""
    best: dict[str, str] = {}
    for id in ids:
        name = _VERSION.sub("", id)
        if name.partition("/")[0] in _HIDDEN_NAMESPACES or name in _HIDDEN_NAMES:
            continue
        if name not in best or _version(id) > _version(best[name]):
            best[name] = id
    return list(best.values())


def _version(id: str) -> int:
    found = _VERSION.search(id)
    return int(found[0][2:]) if found else -1
