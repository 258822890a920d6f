"""A family of environments: a library, or a way of making them, behind one prefix of ids.

    family = find_family("pgx:connect_four")
    family.check(id, others)                    # raises one line for an id that there is not
    family.describe(id, kwargs), family.make(id, slots, kwargs)

A new family is one file with a `Family` and one line in FAMILIES. Listing ids and checking one
imports no environment library: JAX takes a second and pygame half of one.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from rookery.envs import Options
from rookery.errors import UnknownName
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment, CompiledEnvironment

FAMILIES = {  # prefix of its ids -> where it is; ids without a prefix are Gymnasium's
    "": "rookery.envs.gymnasium.family:GYMNASIUM",
    "gymnax:": "rookery.envs.jax.families:GYMNAX",
    "pgx:": "rookery.envs.jax.families:PGX",
    "pettingzoo:": "rookery.envs.pettingzoo.family:PETTINGZOO",
}
HINT = "run `rookery envs` to list them"

Factory = Callable[..., Any]  # a user's own class, or a function that makes environments


@dataclass(frozen=True, slots=True)
class EnvironmentInfo:
    """One line of `rookery envs`."""

    id: str
    source: str  # "gymnasium", "gymnax", "pgx", "pettingzoo" or "registered"
    description: str


class Family(Protocol):
    """What the registry asks of a family. `factory`: a user's own that it `owns`, else None."""

    def infos(self) -> Iterable[EnvironmentInfo]:
        """Those that can be made here, newest versions only."""
        ...

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        """Raise where there is no such id; `others` are those of all families, to be near to."""
        ...

    def owns(self, made: Any) -> bool:
        """Whether a user's class, or what a user's function made, is of this family."""
        ...

    def describe(self, id: str, kwargs: Options, factory: Factory | None) -> EnvironmentSpec:
        """Its seats and spaces, read from one copy that is closed again."""
        ...

    def make(
        self, id: str, slots: int, kwargs: Options, factory: Factory | None
    ) -> BatchedEnvironment:
        """With that many slots, to be stepped from Python."""
        ...

    def compiled(
        self, id: str, kwargs: Options, factory: Factory | None
    ) -> CompiledEnvironment | None:
        """Its pure functions, if it is JAX-native."""
        ...


def find_family(id: str) -> Family | None:
    """The family whose prefix an id has."""
    prefix = id.partition(":")[0] + ":" if ":" in id else ""
    return load_family(prefix) if prefix in FAMILIES else None


def load_family(prefix: str) -> Family:
    module, _, name = FAMILIES[prefix].partition(":")
    found: Family = getattr(importlib.import_module(module), name)
    return found


def check_listed(id: str, known: Iterable[str]) -> None:
    if id not in (listed := list(known)):
        raise UnknownName("environment", id, listed, HINT)


def assigned(package: str, file: str, name: str) -> Any:
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
