"""Environments by name.

    CartPole-v1                 a Gymnasium id
    gymnax:Breakout-MinAtar     a JAX-native one
    my_package.envs:Maze        your own class or factory, importable from the current directory
    maze                        an id given to `register`

This module imports no environment library until a name asks for it.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rookery.envs import NO_OPTIONS, Options
from rookery.envs.failures import first_line
from rookery.errors import InputError, MissingExtra, UnknownName, nearest_names
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment, CompiledEnvironment

_GYMNAX, _LATER = "gymnax:", ("pgx:", "pettingzoo:")
_HINT = "run `rookery envs` to list them"
_VERSION = re.compile(r"-v\d+$")
_HIDDEN_NAMESPACES = ("phys2d", "tabular")  # Gymnasium's JAX copies of its own environments
_HIDDEN_NAMES = ("GymV21Environment", "GymV26Environment")  # shims, not environments

_registered: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """One line of `rookery envs`."""

    id: str
    source: str  # "gymnasium", "gymnax" or "registered"
    description: str


def register(id: str, factory: Callable[..., Any]) -> None:
    """Give a factory of `gymnasium.Env` (or of a compiled environment) an id, in this process."""
    if not id or not callable(factory):
        raise InputError(f"register needs an id and something callable, not {id!r}, {factory!r}")
    _registered[id] = factory


def describe(id: str, kwargs: Options = NO_OPTIONS) -> EnvironmentSpec:
    """The environment's seats and spaces, read from one copy that is closed again."""
    factory = _factory(id)
    compiled = _compiled(id, factory, kwargs)
    if compiled is not None:
        return compiled.spec
    from rookery.envs.probing import probe

    return probe(id, kwargs, factory).spec


def make(id: str, slots: int, kwargs: Options = NO_OPTIONS) -> BatchedEnvironment:
    """The environment with that many slots, to be stepped from Python."""
    factory = _factory(id)
    compiled = _compiled(id, factory, kwargs)
    if compiled is not None:
        from rookery.envs.compiled import SteppedCompiled

        return SteppedCompiled(compiled, slots)
    from rookery.envs.gymnasium import GymnasiumEnvironment

    return GymnasiumEnvironment(id, slots, kwargs, factory)


def make_compiled(id: str, kwargs: Options = NO_OPTIONS) -> CompiledEnvironment:
    """The pure functions of a JAX-native environment."""
    compiled = _compiled(id, _factory(id), kwargs)
    if compiled is None:
        raise InputError(f"environment {id} is not JAX-native; those begin with {_GYMNAX!r}")
    return compiled


def search(text: str = "") -> list[EnvironmentInfo]:
    """Environments whose id or description contains the text, newest versions only."""
    found = [
        *(EnvironmentInfo(id, "registered", "registered in this process") for id in _registered),
        *_gymnasium_infos(),
        *(EnvironmentInfo(id, "gymnax", "JAX-native") for id in _gymnax_ids()),
    ]
    wanted = text.lower()
    return [
        info for info in found if wanted in info.id.lower() or wanted in info.description.lower()
    ]


# --- what an id stands for ---------------------------------------------------------------------


def _factory(id: str) -> Callable[..., Any] | None:
    """The user's own factory behind an id; None for a Gymnasium or Gymnax id that exists."""
    if id in _registered:
        return _registered[id]
    if id.startswith(_LATER):
        prefix = id.partition(":")[0]
        raise InputError(f"environment {id}: {prefix} environments are not supported yet; {_HINT}")
    if id.startswith(_GYMNAX):
        _check_gymnax(id)
        return None
    module, colon, name = id.partition(":")
    if colon:
        return _import_factory(module, name)
    _check_gymnasium(id)
    return None


def _compiled(
    id: str, factory: Callable[..., Any] | None, kwargs: Options
) -> CompiledEnvironment | None:
    """The JAX-native environment behind an id, or None when it is not one."""
    if id.startswith(_GYMNAX) and factory is None:
        from rookery.envs.gymnax import GymnaxEnvironment

        return GymnaxEnvironment(id, kwargs)
    return None if factory is None else _made_compiled(id, factory, kwargs)


def _made_compiled(
    id: str, factory: Callable[..., Any], kwargs: Options
) -> CompiledEnvironment | None:
    """What a user's factory makes, when that says it is compiled."""
    import gymnasium

    if isinstance(factory, type) and issubclass(factory, gymnasium.Env):
        return None
    from rookery.envs.making import call_factory

    made = call_factory(id, factory, kwargs)
    spec = getattr(made, "spec", None)
    if not isinstance(spec, EnvironmentSpec) or not spec.compiled:
        if isinstance(made, gymnasium.Env):
            made.close()
        return None
    from rookery.envs.compiled import register_pytrees

    register_pytrees()
    return made  # type: ignore[no-any-return]


def _import_factory(module: str, name: str) -> Callable[..., Any]:
    """`module:Class`, with the current directory importable."""
    if not module or not name:
        raise InputError(f"environment {module}:{name}: write your own as module:Class")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and f"{module}.".startswith(f"{error.name}."):
            raise InputError(
                f"environment {module}:{name}: there is no module {error.name!r}, "
                f"neither in {here} nor installed"
            ) from error
        raise InputError(
            f"environment {module}:{name}: importing {module} needs the module {error.name!r}, "
            "which is not installed"
        ) from error
    except Exception as error:
        raise InputError(
            f"environment {module}:{name}: importing {module} raised "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    factory = getattr(imported, name, None)
    if factory is None:
        near = nearest_names(name, (n for n in vars(imported) if not n.startswith("_")))
        advice = f"; did you mean {', '.join(near)}?" if near else ""
        raise InputError(f"environment {module}:{name}: {module} has no {name!r}{advice}")
    if not callable(factory):
        raise InputError(
            f"environment {module}:{name} is a {type(factory).__name__}, "
            "not a gymnasium.Env class or a function that makes one"
        )
    return factory  # type: ignore[no-any-return]


def _check_gymnax(id: str) -> None:
    known = _gymnax_ids()
    if not known:
        raise MissingExtra(f"environment {id}", "gymnax")
    if id not in known and not _registered_with_gymnax(id):
        raise UnknownName("environment", id, known, _HINT)


def _registered_with_gymnax(id: str) -> bool:
    """Whether a user gave Gymnax that name at run time."""
    gymnax = sys.modules.get("gymnax")
    return gymnax is not None and id.removeprefix(_GYMNAX) in gymnax.registered_envs


def _check_gymnasium(id: str) -> None:
    import gymnasium

    if id in gymnasium.registry:
        return
    if importlib.util.find_spec("ale_py") is not None:
        # Atari's ids exist once its package is imported.
        gymnasium.register_envs(importlib.import_module("ale_py"))
        if id in gymnasium.registry:
            return
    elif id.startswith("ALE/"):
        raise MissingExtra(f"environment {id}", "atari")
    newest = _newest(gymnasium.registry)
    base = _VERSION.sub("", id).lower()
    same = [known for known in newest if _VERSION.sub("", known).lower() == base]
    raise UnknownName("environment", id, same or [*_registered, *newest, *_gymnax_ids()], _HINT)


# --- lists of names ----------------------------------------------------------------------------


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


_FAMILIES = {
    "classic_control": ("classic control", None, None),
    "toy_text": ("toy text", None, None),
    "box2d": ("Box2D", "Box2D", "box2d"),
    "mujoco": ("MuJoCo", "mujoco", "mujoco"),
}


def _gymnasium_infos() -> Iterable[EnvironmentInfo]:
    import gymnasium

    if importlib.util.find_spec("ale_py") is not None:
        gymnasium.register_envs(importlib.import_module("ale_py"))
    for id in _newest(gymnasium.registry):
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


def _gymnax_ids() -> list[str]:
    """Gymnax's ids, read from its source: importing it would import JAX, which takes a second."""
    spec = importlib.util.find_spec("gymnax")
    if spec is None or not spec.submodule_search_locations:
        return []
    source = os.path.join(spec.submodule_search_locations[0], "registration.py")
    with contextlib.suppress(OSError), open(source, encoding="utf-8") as file:
        for node in ast.parse(file.read()).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "_BUILTIN_ENV_IDS"
                for target in node.targets
            ):
                names: list[str] = ast.literal_eval(node.value)
                return [_GYMNAX + name for name in names]
    return _imported_gymnax_ids()


def _imported_gymnax_ids() -> list[str]:
    """The slow way, for a Gymnax whose source is laid out differently."""
    return [_GYMNAX + name for name in importlib.import_module("gymnax").registered_envs]
