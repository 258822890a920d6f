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

from typing import TYPE_CHECKING, Any

from rookery.config.code import load
from rookery.envs import NO_OPTIONS, Options
from rookery.envs.family import FAMILIES, EnvironmentInfo, Factory, Family, find_family, load_family
from rookery.errors import InputError
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment, CompiledEnvironment

_registered: dict[str, Factory] = {}


def register(id: str, factory: Factory) -> None:
    """Give a factory of environments, of any kind that can be named, an id in this process."""
    if not id or not callable(factory):
        raise InputError(f"register needs an id and something callable, not {id!r}, {factory!r}")
    _registered[id] = factory


def check_importable(id: str) -> None:
    """Refuse an id that other processes do not know, and say which they would."""
    factory = _registered.get(id)
    if factory is None:
        return
    module, name = getattr(factory, "__module__", ""), getattr(factory, "__qualname__", "")
    named = module not in ("", "__main__") and name.isidentifier()
    raise InputError(
        f"environment {id!r} is registered in this process, and actors are others: name it as "
        f"{f'{module}:{name}' if named else 'module:Class'!r}, which they can import, "
        "or pass launcher='inline'"
    )


def describe(id: str, kwargs: Options = NO_OPTIONS) -> EnvironmentSpec:
    """The environment's seats and spaces, read from one copy that is closed again."""
    family, factory = _find(id, kwargs)
    return family.describe(id, kwargs, factory)


def make(id: str, slots: int, kwargs: Options = NO_OPTIONS) -> BatchedEnvironment:
    """The environment with that many slots, to be stepped from Python."""
    family, factory = _find(id, kwargs)
    return family.make(id, slots, kwargs, factory)


def make_compiled(id: str, kwargs: Options = NO_OPTIONS) -> CompiledEnvironment:
    """The pure functions of a JAX-native environment."""
    family, factory = _find(id, kwargs)
    found = family.compiled(id, kwargs, factory)
    if found is None:
        raise InputError(
            f"environment {id} is not JAX-native; those begin with 'gymnax:' or 'pgx:'"
        )
    return found


def search(text: str = "") -> list[EnvironmentInfo]:
    """Environments whose id or description contains the text, newest versions only."""
    own = [EnvironmentInfo(id, "registered", "registered in this process") for id in _registered]
    found = [*own, *(info for prefix in FAMILIES for info in load_family(prefix).infos())]
    wanted = text.lower()
    return [
        info for info in found if wanted in info.id.lower() or wanted in info.description.lower()
    ]


# --- what an id stands for ---------------------------------------------------------------------


def _find(id: str, kwargs: Options) -> tuple[Family, Factory | None]:
    """The family of an id that exists, and the user's own factory if it is one."""
    factory = _registered.get(id)
    if factory is None and (family := find_family(id)) is not None:
        family.check(id, lambda: [info.id for info in search()])
        return family, None
    if factory is None:
        module, _, name = id.partition(":")
        factory = _import_factory(module, name)
    return _family_of(id, factory, kwargs), factory


def _family_of(id: str, factory: Factory, kwargs: Options) -> Family:
    """Whose kind a user's factory makes: of a class it is known before anything is called, of a
    function by what it made."""
    from rookery.envs.gymnasium.make import call_factory
    from rookery.envs.jax.families import OWN

    families = [OWN, *map(load_family, FAMILIES)]
    if isinstance(factory, type):
        owner = next((f for f in families if f.owns(factory)), None)
        if owner is None:
            raise InputError(
                f"environment {id} is a class, and none of environments: subclass gymnasium.Env "
                "or PettingZoo's, or name a function that makes one"
            )
        return owner
    made: Any = call_factory(id, factory, kwargs)
    owner = next((f for f in families if f.owns(made)), load_family(""))
    if owner is not OWN and hasattr(made, "close"):
        made.close()
    return owner


def _import_factory(module: str, name: str) -> Factory:
    """`module:Class`, with the current directory importable."""
    if not module or not name:
        raise InputError(f"environment {module}:{name}: write your own as module:Class")
    factory = load("environment", f"{module}:{name}")
    if not callable(factory):
        raise InputError(
            f"environment {module}:{name} is a {type(factory).__name__}, "
            "not a class of environments or a function that makes one"
        )
    return factory  # type: ignore[no-any-return]
