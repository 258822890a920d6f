"""Making copies of a PettingZoo environment, from `pettingzoo:NAME` or from a user's factory.

A name is a module of PettingZoo's classic or butterfly games or of MPE2; only that module is
imported. Where it offers `parallel_env` all its seats act at once and that is what is made, else
its seats act in turns.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

from rookery.envs import Options
from rookery.envs.gymnasium.make import check_options, telling_what_is_wrong
from rookery.envs.pettingzoo.family import PETTINGZOO, module_of
from rookery.errors import InputError


def make_game(id: str, kwargs: Options, factory: Callable[..., Any] | None) -> Any:
    """One copy of the environment, bad options and missing packages told in one line."""
    with telling_what_is_wrong(id, kwargs, factory):
        if factory is not None:
            creator, signature = factory, factory
        else:
            creator, signature = _creator(id)
        check_options(id, signature, kwargs, also=())
        made = creator(**kwargs)
    if not is_game(made):
        raise InputError(
            f"environment {id} is made as a {type(made).__name__}; it must be a PettingZoo "
            "AECEnv or ParallelEnv"
        )
    return made


def is_game(made: Any) -> bool:
    """Whether an object is a PettingZoo environment; one made by a user has imported the types."""
    from pettingzoo import AECEnv, ParallelEnv

    return isinstance(made, AECEnv | ParallelEnv)


def _creator(id: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What makes the named environment, and what tells its options: wrappers hide them."""
    PETTINGZOO.check(id)
    with warnings.catch_warnings():
        # Each versioned module tells people to use PettingZoo's registry, which is of no use here:
        # its names say less, and it holds no game of MPE2.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(module_of(id))
    creator = getattr(module, "parallel_env", None) or module.env
    return creator, module.raw_env
