"""Environments by name.

    CartPole-v1                 a Gymnasium id
    gymnax:Breakout-MinAtar     a JAX-native one
    pgx:connect_four            a JAX-native game of several seats, in turns
    pettingzoo:chess_v6         a game of several seats, in turns or all at once
    my_package.envs:Maze        your own class or factory, importable from the current directory:
                                of a gymnasium.Env, a PettingZoo or a compiled environment
    maze                        an id given to `register`

This module imports no environment library until a name asks for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from rookery.envs import NO_OPTIONS, Options
from rookery.envs.failures import first_line
from rookery.envs.names import (
    GYMNAX,
    PGX,
    VERSION,
    EnvironmentInfo,
    gymnasium_infos,
    gymnax_ids,
    newest,
    pettingzoo_infos,
    pgx_ids,
    pgx_infos,
)
from rookery.envs.pettingzoo.names import PREFIX as PETTINGZOO
from rookery.envs.pettingzoo.names import check_pettingzoo, pettingzoo_ids
from rookery.errors import InputError, MissingExtra, UnknownName, nearest_names
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment, CompiledEnvironment

_HINT = "run `rookery envs` to list them"

_registered: dict[str, Callable[..., Any]] = {}


def register(id: str, factory: Callable[..., Any]) -> None:
    """Give a factory of environments, of any kind that can be named, an id in this process."""
    if not id or not callable(factory):
        raise InputError(f"register needs an id and something callable, not {id!r}, {factory!r}")
    _registered[id] = factory


def describe(id: str, kwargs: Options = NO_OPTIONS) -> EnvironmentSpec:
    """The environment's seats and spaces, read from one copy that is closed again."""
    factory = _factory(id)
    kind = _kind(id, factory, kwargs)
    if kind == "pettingzoo":
        from rookery.envs.pettingzoo.probe import probe as probe_game

        return probe_game(id, kwargs, factory).spec
    if kind == "gymnasium":
        from rookery.envs.gymnasium.probe import probe

        return probe(id, kwargs, factory).spec
    return kind.spec


def make(id: str, slots: int, kwargs: Options = NO_OPTIONS) -> BatchedEnvironment:
    """The environment with that many slots, to be stepped from Python."""
    factory = _factory(id)
    kind = _kind(id, factory, kwargs)
    if kind == "pettingzoo":
        from rookery.envs.pettingzoo.environment import PettingZooEnvironment

        return PettingZooEnvironment(id, slots, kwargs, factory)
    if kind == "gymnasium":
        from rookery.envs.gymnasium.environment import GymnasiumEnvironment

        return GymnasiumEnvironment(id, slots, kwargs, factory)
    from rookery.envs.jax.environment import SteppedCompiled

    return SteppedCompiled(kind, slots)


def make_compiled(id: str, kwargs: Options = NO_OPTIONS) -> CompiledEnvironment:
    """The pure functions of a JAX-native environment."""
    kind = _kind(id, _factory(id), kwargs)
    if isinstance(kind, str):
        raise InputError(
            f"environment {id} is not JAX-native; those begin with {GYMNAX!r} or {PGX!r}"
        )
    return kind


def search(text: str = "") -> list[EnvironmentInfo]:
    """Environments whose id or description contains the text, newest versions only."""
    found = [
        *(EnvironmentInfo(id, "registered", "registered in this process") for id in _registered),
        *gymnasium_infos(),
        *(EnvironmentInfo(id, "gymnax", "JAX-native") for id in gymnax_ids()),
        *pgx_infos(),
        *pettingzoo_infos(),
    ]
    wanted = text.lower()
    return [
        info for info in found if wanted in info.id.lower() or wanted in info.description.lower()
    ]


# --- what an id stands for ---------------------------------------------------------------------


def _factory(id: str) -> Callable[..., Any] | None:
    """The user's own factory behind an id; None for a library's id that exists."""
    if id in _registered:
        return _registered[id]
    if id.startswith(GYMNAX):
        _check_gymnax(id)
        return None
    if id.startswith(PGX):
        _check_pgx(id)
        return None
    if id.startswith(PETTINGZOO):
        check_pettingzoo(id)
        return None
    module, colon, name = id.partition(":")
    if colon:
        return _import_factory(module, name)
    _check_gymnasium(id)
    return None


_Kind = Literal["gymnasium", "pettingzoo"]


def _kind(
    id: str, factory: Callable[..., Any] | None, kwargs: Options
) -> CompiledEnvironment | _Kind:
    """The JAX-native environment behind an id, or the library that the id belongs to."""
    if factory is not None:
        return _made_kind(id, factory, kwargs)
    if id.startswith(GYMNAX):
        from rookery.envs.jax.gymnax import GymnaxEnvironment

        return GymnaxEnvironment(id, kwargs)
    if id.startswith(PGX):
        from rookery.envs.jax.pgx import PgxEnvironment

        return PgxEnvironment(id, kwargs)
    return "pettingzoo" if id.startswith(PETTINGZOO) else "gymnasium"


def _made_kind(
    id: str, factory: Callable[..., Any], kwargs: Options
) -> CompiledEnvironment | _Kind:
    """What a user's factory makes; asked of the class where there is one, else of a copy."""
    import gymnasium

    if isinstance(factory, type):
        if issubclass(factory, gymnasium.Env):
            return "gymnasium"
        if issubclass(factory, _game_types()):
            return "pettingzoo"
    from rookery.envs.gymnasium.make import call_factory

    made = call_factory(id, factory, kwargs)
    if isinstance(made, _game_types()):
        made.close()
        return "pettingzoo"
    spec = getattr(made, "spec", None)
    if not isinstance(spec, EnvironmentSpec) or not spec.compiled:
        if isinstance(made, gymnasium.Env):
            made.close()
        return "gymnasium"
    from rookery.envs.jax.environment import register_pytrees

    register_pytrees()
    return made  # type: ignore[no-any-return]


def _game_types() -> tuple[type[Any], ...]:
    """PettingZoo's two classes; none while nobody has imported it, as whoever has a game has."""
    pettingzoo = sys.modules.get("pettingzoo")
    return () if pettingzoo is None else (pettingzoo.AECEnv, pettingzoo.ParallelEnv)


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
            "not a class of environments or a function that makes one"
        )
    return factory  # type: ignore[no-any-return]


def _check_pgx(id: str) -> None:
    known = pgx_ids()
    if not known:
        raise MissingExtra(f"environment {id}", "games")
    if id not in known:
        raise UnknownName("environment", id, known, _HINT)


def _check_gymnax(id: str) -> None:
    known = gymnax_ids()
    if not known:
        raise MissingExtra(f"environment {id}", "gymnax")
    if id not in known and not _registered_with_gymnax(id):
        raise UnknownName("environment", id, known, _HINT)


def _registered_with_gymnax(id: str) -> bool:
    """Whether a user gave Gymnax that name at run time."""
    gymnax = sys.modules.get("gymnax")
    return gymnax is not None and id.removeprefix(GYMNAX) in gymnax.registered_envs


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
    current = newest(gymnasium.registry)
    base = VERSION.sub("", id).lower()
    same = [known for known in current if VERSION.sub("", known).lower() == base]
    others = [*gymnax_ids(), *pgx_ids(), *pettingzoo_ids()]
    raise UnknownName("environment", id, same or [*_registered, *current, *others], _HINT)
