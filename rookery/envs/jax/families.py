"""Gymnax and Pgx, whose ids are read from their sources: importing JAX takes a second."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rookery.envs import Options
from rookery.envs.family import EnvironmentInfo, Factory, assigned, check_listed
from rookery.errors import MissingExtra
from rookery.spaces import EnvironmentSpec

if TYPE_CHECKING:
    from rookery.envs import BatchedEnvironment, CompiledEnvironment


class CompiledFamily:
    """Environments that are pure functions: users' own, and those of libraries."""

    def infos(self) -> Iterable[EnvironmentInfo]:
        return ()

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        raise AssertionError("users' own environments are imported, not listed")

    def owns(self, made: Any) -> bool:
        """A class may make its spec when it is called; what it must have is known by its looks."""
        spec = getattr(made, "spec", None)
        if isinstance(made, type) and spec is None:
            return _has_pure_functions(made)
        return isinstance(spec, EnvironmentSpec) and spec.compiled

    def describe(self, id: str, kwargs: Options, factory: Factory | None) -> EnvironmentSpec:
        return self.compiled(id, kwargs, factory).spec

    def make(
        self, id: str, slots: int, kwargs: Options, factory: Factory | None
    ) -> BatchedEnvironment:
        from rookery.envs.jax.environment import SteppedCompiled

        return SteppedCompiled(self.compiled(id, kwargs, factory), slots)

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> CompiledEnvironment:
        from rookery.envs.gymnasium.make import call_factory
        from rookery.envs.jax.environment import register_pytrees

        assert factory is not None
        register_pytrees()
        made: CompiledEnvironment = call_factory(id, factory, kwargs)
        return made


class GymnaxFamily(CompiledFamily):
    def infos(self) -> Iterable[EnvironmentInfo]:
        return [EnvironmentInfo(id, "gymnax", "JAX-native") for id in gymnax_ids()]

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        if not (known := gymnax_ids()):
            raise MissingExtra(f"environment {id}", "gymnax")
        gymnax = sys.modules.get("gymnax")  # a user may have given it names of their own
        mine = [f"gymnax:{n}" for n in gymnax.registered_envs] if gymnax else []
        check_listed(id, [*known, *mine])

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> CompiledEnvironment:
        from rookery.envs.jax.gymnax import GymnaxEnvironment

        return GymnaxEnvironment(id, kwargs)


class PgxFamily(CompiledFamily):
    def infos(self) -> Iterable[EnvironmentInfo]:
        """Two of Pgx's families are played alone."""
        for id in pgx_ids():
            alone = id.startswith(("pgx:minatar-", "pgx:2048"))
            yield EnvironmentInfo(id, "pgx", "JAX-native" if alone else "JAX-native, in turns")

    def check(self, id: str, others: Callable[[], Iterable[str]]) -> None:
        if not (known := pgx_ids()):
            raise MissingExtra(f"environment {id}", "games")
        check_listed(id, known)

    def compiled(self, id: str, kwargs: Options, factory: Factory | None) -> CompiledEnvironment:
        from rookery.envs.jax.pgx import PgxEnvironment

        return PgxEnvironment(id, kwargs)


OWN, GYMNAX, PGX = CompiledFamily(), GymnaxFamily(), PgxFamily()


def _has_pure_functions(made: type) -> bool:
    """`reset` of a key, and `step` of a key, a state and an action."""
    return [_parameters(made, name) for name in ("reset", "step")] == [2, 4]


def _parameters(made: type, name: str) -> int:
    function = getattr(made, name, None)
    return len(inspect.signature(function).parameters) if inspect.isfunction(function) else 0


def gymnax_ids() -> list[str]:
    """Read from its source; the slow way if that is laid out differently."""
    found = assigned("gymnax", "registration.py", "_BUILTIN_ENV_IDS")
    if found is None:
        return []
    names = ast.literal_eval(found) if found else importlib.import_module("gymnax").registered_envs
    return [f"gymnax:{name}" for name in names]


def pgx_ids() -> list[str]:
    """Read from its source; the slow way if that is laid out differently."""
    found = assigned("pgx", "core.py", "EnvId")
    if found is None:
        return []
    if isinstance(found, ast.Subscript):  # EnvId = Literal["2048", ...]
        names = [name for name in ast.literal_eval(found.slice) if name != "bridge_bidding"]
    else:
        names = importlib.import_module("pgx").available_envs()
    return [f"pgx:{name}" for name in names]
