"""Making copies of a Gymnasium environment, from an id or from a user's factory.

Most of what can go wrong with an environment goes wrong here: an option that does not exist, a
package that is not installed, a constructor that raises. Each is told in one line that says what to
do. Options are checked against the constructor's signature before it is called.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import find_highest_version, get_env_id, load_env_creator
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AutoresetMode, VectorEnv

from rookery.envs import Options
from rookery.envs.failures import environment_failed, first_line
from rookery.errors import ConfigError, InputError, MissingExtra, RookeryError, nearest_names

Env = gymnasium.Env[Any, Any]
Factory = Callable[..., Env]

_EXTRAS = {  # package -> extra
    "box2d": "box2d",
    "mujoco": "mujoco",
    "ale_py": "atari",
    "pettingzoo": "games",
    "mpe2": "games",
    "chess": "games",
}
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")


def make_copy(id: str, kwargs: Options, factory: Factory | None = None) -> Env:
    """One copy of the environment, bad options and missing packages told in one line."""
    if factory is not None:
        made = call_factory(id, factory, kwargs)
        if not isinstance(made, gymnasium.Env):
            raise InputError(
                f"environment {id} is made as a {type(made).__name__}; it must be a gymnasium.Env "
                "or a PettingZoo environment"
            )
        return made
    with telling_what_is_wrong(id, kwargs, factory):
        check_options(id, _creator(gymnasium.spec(id).entry_point), kwargs)
        return gymnasium.make(id, disable_env_checker=True, **kwargs)


def call_factory(id: str, factory: Callable[..., Any], kwargs: Options) -> Any:
    """What a user's factory makes; `max_episode_steps` works as it does for a Gymnasium id."""
    with telling_what_is_wrong(id, kwargs, factory):
        options = dict(kwargs)
        limit = None
        if "max_episode_steps" not in _parameters(factory):
            limit = options.pop("max_episode_steps", None)
        check_options(id, factory, options)
        made = factory(**options)
        if limit is None or not isinstance(made, gymnasium.Env):
            return made
        return gymnasium.wrappers.TimeLimit(made, int(limit))


def make_vector(
    id: str, slots: int, kwargs: Options, factory: Factory | None = None
) -> VectorEnv[Any, Any, Any] | None:
    """The id's native vector environment, if it has one that can play by our rules."""
    if factory is not None:
        return None
    with telling_what_is_wrong(id, kwargs, factory):
        spec = gymnasium.spec(id)
        if spec.vector_entry_point is None or spec.additional_wrappers:
            return None
        if _unknown_options(_creator(spec.vector_entry_point), kwargs):
            return None
        env = gymnasium.make_vec(
            id, num_envs=slots, vectorization_mode="vector_entry_point", **kwargs
        )
        if env.metadata.get("autoreset_mode") is not AutoresetMode.NEXT_STEP:
            env.close()
            return None
        return env


@contextlib.contextmanager
def telling_what_is_wrong(
    id: str, kwargs: Options, factory: Callable[..., Any] | None
) -> Iterator[None]:
    """Whatever goes wrong while an environment is made becomes one line for a person."""
    with warnings.catch_warnings():
        # Box2D's SWIG module warns while it is imported; as an error that would crash the process.
        # Gymnasium's own news of newer versions are for `rookery envs`.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            yield
        except RookeryError:
            raise
        except Exception as error:
            raise _not_made(id, kwargs, factory, error) from error


def _creator(entry_point: object) -> Callable[..., Any]:
    if callable(entry_point):
        return entry_point
    assert isinstance(entry_point, str), f"no entry point: {entry_point!r}"
    return cast("Callable[..., Any]", load_env_creator(entry_point))


def _parameters(creator: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(creator).parameters)


def _unknown_options(creator: Callable[..., Any], kwargs: Options) -> list[str]:
    parameters = _parameters(creator)
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    return [name for name in kwargs if name not in parameters]


def check_options(
    id: str,
    creator: Callable[..., Any],
    kwargs: Options,
    also: tuple[str, ...] = ("max_episode_steps",),
) -> None:
    """Every option exists, there or in `also`, and every one that has no default is given."""
    for name in _unknown_options(creator, kwargs):
        if name not in also:
            raise unknown_option(id, name, [*_parameters(creator), *also])
    defaults = {} if id not in gymnasium.registry else gymnasium.spec(id).kwargs
    for name, parameter in _parameters(creator).items():
        needed = parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        )
        if needed and name not in kwargs and name not in defaults:
            raise ConfigError(f"environment {id} needs its option {name!r}: --env.{name}=...")


def unknown_option(id: str, name: str, known: list[str]) -> ConfigError:
    """The error for an environment option that does not exist, with the nearest that do."""
    near = nearest_names(name, known)
    advice = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(known)}"
    return ConfigError(f"environment {id} has no option {name!r}; {advice}")


def _not_made(
    id: str, kwargs: Options, factory: Callable[..., Any] | None, error: Exception
) -> RookeryError:
    """What to tell a person whose environment could not be made."""
    if isinstance(error, ImportError | DependencyNotInstalled):
        extra = _missing_extra(id, error)
        if extra:
            return MissingExtra(f"environment {id}", extra)
        newer = _newer_version(id)
        advice = f"; try {newer}" if newer else ""
        return InputError(f"environment {id} cannot be made: {first_line(error)}{advice}")
    if isinstance(error, TypeError) and (unexpected := _UNEXPECTED.search(str(error))):
        return unknown_option(id, unexpected[1], ["max_episode_steps"])
    if factory is None and kwargs:  # the library's own code refused a person's options
        options = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        reason = f"{type(error).__name__}: {first_line(error)}"
        return ConfigError(f"environment {id} cannot be made with {options} ({reason})")
    return environment_failed(error, id, "being made")


def _newer_version(id: str) -> str | None:
    if id not in gymnasium.registry:
        return None
    spec = gymnasium.spec(id)
    highest = find_highest_version(spec.namespace, spec.name)
    newest = get_env_id(spec.namespace, spec.name, highest)
    return newest if newest != id else None


def _missing_extra(id: str, error: Exception) -> str | None:
    """The extra that provides what could not be imported; None when no extra would help."""
    cause = error.__cause__ if isinstance(error, DependencyNotInstalled) else error
    if not isinstance(cause, ModuleNotFoundError):
        return None
    entry_point = str(gymnasium.spec(id).entry_point) if id in gymnasium.registry else ""
    for hint in ((cause.name or "").partition(".")[0].lower(), *entry_point.split(".")):
        if hint in _EXTRAS:
            return _EXTRAS[hint]
    return None
