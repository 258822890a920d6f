"""What a sweep is, and the one file in the home that says so: `HOME/sweeps/ID.json`.

All else about a sweep is in the log: its trials are runs, their results are events. Beside the file
lie the lock of who carries the sweep, and a mark while somebody wants it to stop.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from rookery.config.part import Part
from rookery.config.reading import explained
from rookery.control.home import Home, new_run_id
from rookery.control.lease import is_locked, take_lock
from rookery.errors import ConfigError, InputError, UnknownName, first_line
from rookery.tuning.space import Search
from rookery.tuning.text import read_mapping

SAMPLERS = ("tpe", "random")
SCHEDULERS = ("none", "median", "asha", "pbt")
VERSION = 1


class SweepSettings(Part):
    """How a sweep searches: the part `sweep` of a file, beside the keys of a run's config."""

    search: dict[str, Any] = Field(description="config key -> what it may be")
    trials: int = Field(default=20, ge=1, le=100_000, description="points of the space to try")
    seeds: int = Field(default=1, ge=1, le=1000, description="runs of each, with a seed of its own")
    sampler: str = Field(default="tpe", description="who proposes: tpe or random")
    scheduler: str = Field(
        default="none",
        description="none; median or asha: ends bad runs; pbt: the trials are a population",
    )
    generations: int = Field(
        default=10, ge=2, le=1000, description="of a population; at the end of each it is compared"
    )
    burn_in: float = Field(
        default=0.25, ge=0, lt=1, description="share of a population's steps before its generations"
    )
    episodes: int = Field(default=100, ge=1, le=100_000, description="that judge each run")
    jobs: int | None = Field(default=None, ge=1, description="runs at a time; null: as CPUs allow")

    @field_validator("sampler")
    @classmethod
    def _is_sampler(cls, name: str) -> str:
        return _known("sweep.sampler", name, SAMPLERS)

    @field_validator("scheduler")
    @classmethod
    def _is_scheduler(cls, name: str) -> str:
        return _known("sweep.scheduler", name, SCHEDULERS)


class SweepSpec(SweepSettings):
    """A sweep that exists."""

    version: int = VERSION
    id: str
    author: str
    created_s: float
    burn_in: float = Field(default=0.0, ge=0, lt=1, description="0 where it began without one")
    base: dict[str, Any] = Field(description="what was asked for of every run, without defaults")

    @property
    def places(self) -> int:
        """Commands of each kind that a trial may need: one for each seed or generation."""
        return self.generations if self.scheduler == "pbt" else self.seeds

    def bound(self, steps: int, generation: int) -> int:
        """Of a population whose members train so many steps: where a generation ends."""
        past = self.burn_in + (1 - self.burn_in) * (generation + 1) / self.generations
        return max(1, round(steps * past))

    @cached_property
    def space(self) -> Search:
        return read_mapping(self.search)


def _known(what: str, name: str, known: tuple[str, ...]) -> str:
    if name not in known:
        raise ValueError(str(UnknownName(what, name, known, f"Known: {', '.join(known)}.")))
    return name


def read_settings(values: dict[str, Any]) -> SweepSettings:
    """One line for what is wrong."""
    unknown = values.keys() - SweepSettings.model_fields.keys()
    for key in sorted(unknown):
        known = list(SweepSettings.model_fields)
        raise UnknownName("key of a sweep", str(key), known, f"Known: {', '.join(known)}.")
    if "search" not in values:
        raise ConfigError(
            "nothing to search: name a key, like --search algorithm.learning_rate=log:1e-5..1e-2"
        )
    try:
        return SweepSettings.model_validate(values)
    except ValidationError as error:
        raise explained(error, "sweep") from None


def new_id(environment: str) -> str:
    return f"sweep-{new_run_id(environment)}"


class SweepFiles:
    """The sweeps of a home."""

    def __init__(self, home: Home) -> None:
        self.path = home.path / "sweeps"

    def write(self, spec: SweepSpec) -> None:
        """At once, or not at all."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_whole(self._file(spec.id, "json"), spec.model_dump_json(indent=1))

    def read(self, id: str) -> SweepSpec:
        file = self._file(id, "json")
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(found, dict) and found.get("version", VERSION) != VERSION:
                raise ValueError(f"it is of version {found['version']}, and this Rookery has 1")
            return SweepSpec.model_validate(found)
        except ValidationError as error:
            raise InputError(f"cannot read the sweep {file}: {explained(error)}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read the sweep {file}: {first_line(error)}") from None

    def all(self) -> list[SweepSpec]:
        """Those that can be read, the oldest first."""
        return self._all()[0]

    @property
    def damaged(self) -> list[InputError]:
        """What is wrong with those that cannot be read, a line each."""
        return list(self._all()[1].values())

    def _all(self) -> tuple[list[SweepSpec], dict[str, InputError]]:
        found, damaged = list[SweepSpec](), dict[str, InputError]()
        for file in sorted(self.path.glob("*.json")):
            try:
                found.append(self.read(file.stem))
            except InputError as error:
                damaged[file.stem] = error
        return sorted(found, key=lambda spec: spec.created_s), damaged

    def find(self, name: str) -> SweepSpec:
        """By an id, a unique prefix of one, or `last`."""
        specs, damaged = self._all()
        if name in damaged:
            raise damaged[name]
        if damaged and not specs:
            raise next(iter(damaged.values()))
        if name == "last" and specs:
            return specs[-1]
        matches = [spec for spec in specs if spec.id == name] or [
            spec for spec in specs if spec.id.startswith(name) or spec.id == f"sweep-{name}"
        ]
        if len(matches) > 1:
            shown = ", ".join(spec.id for spec in matches[:5])
            raise InputError(f"sweep {name!r} is ambiguous: it could be {shown}")
        if not matches:
            known = [spec.id for spec in specs]
            raise UnknownName("sweep", name, known, "Run `rookery sweep list`.")
        return matches[0]

    def best_file(self, id: str) -> Path:
        """Where the best config is kept."""
        return self._file(id, "best.yaml")

    # --- who carries it --------------------------------------------------------------------------

    @contextmanager
    def carrying(self, id: str) -> Iterator[None]:
        """While this process does; one at a time."""
        lease = take_lock(self._file(id, "lock"))
        if lease is None:
            raise InputError(
                f"sweep {id} goes on in another process: rookery sweep show {id}, or stop it first"
            )
        with lease:
            yield

    def is_carried(self, id: str) -> bool:
        return is_locked(self._file(id, "lock"))

    def ask_to_stop(self, id: str, stop: bool) -> None:
        """Whoever carries it ends it soon; or nobody wants that any more."""
        mark = self._file(id, "stop")
        mark.touch() if stop else mark.unlink(missing_ok=True)

    def is_asked_to_stop(self, id: str) -> bool:
        return self._file(id, "stop").exists()

    def _file(self, id: str, kind: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", id):
            raise UnknownName("sweep", id, (), "Run `rookery sweep list`.")
        return self.path / f"{id}.{kind}"


def write_whole(path: Path, text: str) -> None:
    """A file that is never seen half-written, and that is there after a power cut."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
