"""Where runs live: `$ROOKERY_HOME` or `./runs`, with the control log and a directory per run.

With `$ROOKERY_BUS` (kafka://...) the log and the runs' topics are a cluster's, and the directory
holds only what belongs to this machine: checkpoints without a URI of their own, logs, the lease.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.bus import EARLIEST, Bus, Outgoing, Subscription
from rookery.bus.open import kafka_bus
from rookery.config import KafkaBusConfig, RunConfig
from rookery.configure import validate
from rookery.control.run_state import DELETED, RunState, apply, why_not
from rookery.errors import BusError, BusUnmade, InputError, MessageError, UnknownName
from rookery.messages import (
    COMMANDS,
    EVENTS,
    EXPERIENCES,
    Command,
    CommandAccepted,
    CommandRejected,
    CreateRun,
    Event,
    decode_json,
    encode_json,
)
from rookery.spaces import EnvironmentSpec, spec_from_json, spec_to_json

if TYPE_CHECKING:
    from rookery.bus.kafka_settings import KafkaSettings

BUS_VARIABLE = "ROOKERY_BUS"


class Home:
    """The control log and the runs' directories. Opens files only when they are needed."""

    def __init__(self, path: Path, cluster: KafkaSettings | None = None) -> None:
        self.path, self.cluster = path, cluster
        self._control: Bus | None = None
        self._log: RunLog | None = None
        self._lock = threading.Lock()

    @classmethod
    def default(cls) -> Home:
        path = Path(os.environ.get("ROOKERY_HOME") or "runs").absolute()
        uri = os.environ.get(BUS_VARIABLE)
        if not uri:
            return cls(path)
        from rookery.bus.kafka_settings import KafkaSettings

        return cls(path, KafkaSettings.of(uri))

    @property
    def environment(self) -> dict[str, str]:
        """What leads another process on this machine to the same place."""
        found = {"ROOKERY_HOME": str(self.path)}
        return found | ({BUS_VARIABLE: self.cluster.uri} if self.cluster is not None else {})

    @property
    def control(self) -> Bus:
        if self._control is None:
            self._control = kafka_bus(self.cluster) if self.cluster else self._file_bus()
        return self._control

    def _file_bus(self) -> Bus:
        from rookery.bus.sqlite import SqliteBus

        try:
            self.path.mkdir(parents=True, exist_ok=True)
            return SqliteBus(self.path / "control.sqlite")
        except (OSError, BusError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot use {self.path} for runs: {reason}; set ROOKERY_HOME to a "
                "directory that can be written"
            ) from None

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = self._log = None

    def run_dir(self, run: str) -> Path:
        return self.path / run

    # --- the log ---------------------------------------------------------------------------------

    def send(self, command: Command) -> None:
        self.control.publish([Outgoing(COMMANDS, encode_json(command), key=command.run)])

    def record(self, *events: Event) -> None:
        self.control.publish([Outgoing(EVENTS, encode_json(e), key=e.run) for e in events])

    def create(
        self, config: RunConfig, spec: EnvironmentSpec, author: str, run: str | None = None
    ) -> str:
        """Append CreateRun under a fresh id, and return the id."""
        run = run or new_run_id(config.environment.id)
        content = {"config": config.model_dump(mode="json"), "spec": spec_to_json(spec)}
        self.send(CreateRun(run=run, config=content, author=author))
        return run

    def state(self, run: str) -> RunState:
        found = self.states(run).get(run)
        assert found is not None, f"run {run} was looked up before"
        return found

    def states(self, only: str | None = None) -> dict[str, RunState]:
        """All runs that were not deleted, oldest first, folded from the log."""
        if self.cluster is None and not (self.path / "control.sqlite").exists():
            return {}
        if self.cluster is None:
            log = RunLog(self, only)
            log.read()
            found = log.states
        else:
            found = self._followed()
        return {run: state for run, state in found.items() if state.desired != DELETED}

    def _followed(self) -> dict[str, RunState]:
        """A cluster's log is read once and then followed: a new reader costs a connection."""
        with self._lock:
            if self._log is None:
                self._log = RunLog(self)
            self._log.read()
            return dict(self._log.states)

    def find(self, name: str) -> str:
        """A run's id from an id, a unique prefix of one, or `last`."""
        runs = self.states()
        if name == "last":
            if not runs:
                raise InputError(
                    f"there is no run in {self.path} yet: start one with rookery train"
                )
            return max(runs.values(), key=lambda state: state.created_s).id
        if name in runs:
            return name
        matches = [run for run in runs if run.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            shown = ", ".join(matches[:5])
            raise InputError(f"run {name!r} is ambiguous: it could be {shown}; give more letters")
        raise UnknownName("run", name, runs, "Run `rookery runs list`.")

    # --- a run's own things ----------------------------------------------------------------------

    def config(self, state: RunState) -> RunConfig:
        return validate(state.config["config"])

    def spec(self, state: RunState) -> EnvironmentSpec:
        return spec_from_json(state.config["spec"])

    def bus_path(self, run: str) -> Path:
        return self.run_dir(run) / "bus.sqlite"

    def open_run_bus(
        self, run: str, config: RunConfig, warn: Callable[[str], None] | None = None
    ) -> Bus:
        if isinstance(config.bus, KafkaBusConfig):
            return self._run_topics(run, config.bus, warn)
        limits = {EXPERIENCES: config.bus.max_experience_mb << 20}
        if config.bus.kind == "memory":
            from rookery.bus.memory import MemoryBus

            return MemoryBus(limits)
        from rookery.bus.sqlite import SqliteBus

        self.run_dir(run).mkdir(parents=True, exist_ok=True)
        return SqliteBus(self.bus_path(run), limits)

    def _run_topics(
        self, run: str, bus: KafkaBusConfig, warn: Callable[[str], None] | None = None
    ) -> Bus:
        if self.cluster is None:
            raise InputError(
                f"run {run} is on Kafka: say where with --bus kafka://HOST:PORT or {BUS_VARIABLE}"
            )
        settings = dataclasses.replace(
            self.cluster,
            per_run=bus.topics == "per-run",
            partitions=bus.partitions,
            replication=bus.replication,
            experience_mb=bus.max_experience_mb,
            experience_hours=bus.experience_hours,
        )
        return kafka_bus(settings, run, warn)

    def read_run_bus(self, state: RunState) -> Bus | None:
        """The run's bus for reading only, if there is one."""
        config = self.config(state)
        if isinstance(config.bus, KafkaBusConfig):
            return self._run_topics(state.id, config.bus)
        from rookery.bus.sqlite import SqliteBus

        if not self.bus_path(state.id).exists():
            return None
        try:
            return SqliteBus(self.bus_path(state.id), read_only=True)
        except BusUnmade:
            return None

    def checkpoint_uri(self, run: str, config: RunConfig) -> str:
        return config.checkpoint.uri or f"file:{self.run_dir(run) / 'checkpoints'}"

    # --- the lease -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lease(self, run: str) -> Iterator[bool]:
        """True while this process owns the run; False if another does.

        A lock on a file: the system gives it back when its holder dies, however it dies.
        """
        directory = self.run_dir(run)
        directory.mkdir(parents=True, exist_ok=True)
        with open(directory / "owner.lock", "a+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True

    def is_owned(self, run: str) -> bool:
        path = self.run_dir(run) / "owner.lock"
        if not path.exists():
            return False
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False


class RunLog:
    """Follows the control log, of one run or of all, and folds it."""

    def __init__(
        self,
        home: Home,
        only: str | None = None,
        skipped: Callable[[str], None] = lambda line: None,
    ) -> None:
        """`skipped` is told of messages that are none, in one line each."""
        self.states: dict[str, RunState] = {}
        self._skipped = skipped
        self._home, self._only = home, only
        self._topics: list[tuple[Subscription, object]] = [
            (home.control.subscribe(COMMANDS, EARLIEST), Command),
            (home.control.subscribe(EVENTS, EARLIEST), Event),
        ]

    def read(self) -> list[Command | Event]:
        """Fold what is new and return it, in the order of time; commands before their answers."""
        fresh: list[tuple[float, int, int, Command | Event]] = []
        for rank, (subscription, kind) in enumerate(self._topics):
            while records := subscription.poll(0.0, limit=1024):
                for record in records:
                    if self._only is not None and record.key != self._only:
                        continue
                    try:
                        message: Command | Event = decode_json(record.payload, kind)
                    except MessageError as error:
                        self._skipped(f"{record.topic} offset {record.offset}: skipped: {error}")
                        continue
                    fresh.append((record.time_s, rank, record.offset, message))
        fresh.sort(key=lambda item: item[:3])
        messages = [message for *_, message in fresh]
        for message in messages:
            state = apply(self.states.get(message.run), message)
            if state is not None:
                self.states[message.run] = state
        return messages

    def answer(self, run: str) -> None:
        """Judge the commands that wait, as the owner of the run; each is answered once."""
        state = self.states.get(run)
        while state is not None and state.commands:
            command = next(iter(state.commands.values()))
            why = why_not(state, command)
            event: Event
            if why is None:
                event = CommandAccepted(run=run, command=command.id)
            else:
                event = CommandRejected(run=run, command=command.id, why=why)
            self._home.record(event)
            self.read()
            state = self.states.get(run)


def new_run_id(environment: str) -> str:
    """Says what is played, is easy to type, and does not repeat: cartpole-k3f9a."""
    name = re.sub(r"-v\d+$", "", environment.split(":")[-1]).lower()
    slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:24] or "run"
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return slug + "-" + "".join(secrets.choice(alphabet) for _ in range(5))
