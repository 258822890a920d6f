"""Where runs live: `$ROOKERY_HOME` or `./runs`, with the control log and a directory per run.

With `$ROOKERY_BUS` (kafka://...) the log and the runs' topics are a cluster's, and the directory
holds only what belongs to this machine: checkpoints without a URI of their own, logs, the lease.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.bus import Bus, BusPlace, Outgoing, run_bus
from rookery.bus.open import kafka_bus
from rookery.bus.sqlite import RUN_FILE
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.control import lease
from rookery.control.find import AmbiguousRun, find_run
from rookery.control.lease import Holder, Lease
from rookery.control.run_log import RunLog
from rookery.control.run_state import DELETED, RunState
from rookery.control.settings import FILE, Settings
from rookery.control.signing import (
    KEY_VARIABLE,
    PLACE,
    SIGNATURE,
    SIGNED_EVENTS,
    Key,
    Writer,
    key_path,
    load_key,
    placed,
)
from rookery.errors import BusError, InputError, UnknownName
from rookery.messages import (
    COMMANDS,
    EVENTS,
    Command,
    CreateRun,
    Event,
    encode_json,
)
from rookery.spaces import EnvironmentSpec, spec_from_json, spec_to_json
from rookery.worker.progress import FOLDER as PROGRESS

if TYPE_CHECKING:
    from rookery.bus.kafka.settings import KafkaSettings
    from rookery.checkpoints.policies import RunFiles

BUS_VARIABLE = "ROOKERY_BUS"


class Home:
    """The control log and the runs' directories. Opens files only when they are needed."""

    def __init__(self, path: Path, cluster: KafkaSettings | None = None) -> None:
        self.path, self.cluster = path, cluster
        self._control: Bus | None = None
        self._unwritable: InputError | None = None  # why it can only be looked at
        self._key: Key | None = None
        self._settings: Settings | None = None
        self._logs: dict[str | None, RunLog] = {}  # that are followed: of all runs, or of one
        self._lock = threading.RLock()
        self._writer = Writer()

    @classmethod
    def default(cls) -> Home:
        path = Path(os.environ.get("ROOKERY_HOME") or "runs").absolute()
        uri = os.environ.get(BUS_VARIABLE)
        if not uri:
            return cls(path)
        from rookery.bus.kafka.settings import KafkaSettings

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

    @property
    def control_path(self) -> Path:
        """Of a log that is a file."""
        return self.path / "control.sqlite"

    def _file_bus(self) -> Bus:
        from rookery.bus.sqlite import SqliteBus

        path = self.control_path
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(self.path, os.W_OK):
                raise OSError(errno.EROFS, "it may not be written")
            return SqliteBus(path)
        except (OSError, BusError) as error:
            reason = getattr(error, "strerror", None) or error
            self._unwritable = InputError(
                f"cannot use {self.path} for runs: {reason}; set ROOKERY_HOME to a "
                "directory that can be written"
            )
        try:
            return SqliteBus(path, read_only=True)  # which is enough for looking
        except (OSError, BusError):
            raise self._unwritable from None

    def check_writable(self) -> None:
        """Say what is wrong with a home that can only be looked at."""
        _ = self.control
        if self._unwritable is not None:
            raise self._unwritable

    def reopen(self) -> None:
        """Try again to write to a home that could only be looked at."""
        if self._unwritable is not None:
            self.close()

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = self._unwritable = None
            self._logs.clear()

    def run_dir(self, run: str) -> Path:
        return self.path / run

    def progress_dir(self, run: str) -> Path:
        """Where the run's workers on this machine say how far they are."""
        return self.run_dir(run) / PROGRESS

    # --- the log ---------------------------------------------------------------------------------

    def send(self, *commands: Command) -> None:
        """Append the commands, signed."""
        self.check_writable()
        self.control.publish([self._signed(command) for command in commands])

    def _signed(self, command: Command) -> Outgoing:
        payload = encode_json(command)
        headers = {SIGNATURE: self.signing_key().sign(COMMANDS, command.run, payload)}
        if isinstance(command, CreateRun):
            headers |= SIGNED_EVENTS
        return Outgoing(COMMANDS, payload, command.run, headers)

    def signing_key(self) -> Key:
        key = load_key(self.path, make=True)
        assert key is not None
        return key

    def run_key(self, run: str, config: RunConfig) -> Key:
        """That a run's owner signs with what it says on the run's bus: on a cluster where others
        may compute too, one that is good for nothing else."""
        key = self.signing_key()
        return key.for_run(run) if config.bus.kind == "ray" else key

    @property
    def key(self) -> Key | None:
        """The home's key, if it was made."""
        if self._key is None:
            self._key = load_key(self.path, make=False)
        return self._key

    def trusts(self, topic: str, run: str, payload: bytes, headers: Mapping[str, str]) -> bool:
        """Whether a message was signed with this home's key, or everybody on the bus is trusted."""
        signature, key = headers.get(SIGNATURE), self.key
        if signature and key and key.signed(signature, topic, run, payload):
            return True
        return self.settings.trust_bus

    @property
    def settings(self) -> Settings:
        """What the owner of this home has set; read when first asked for."""
        if self._settings is None:
            self._settings = Settings.load(self.path)
        return self._settings

    def record(self, *events: Event) -> None:
        """Append the events, signed, each with its place among those of this thread."""
        self.check_writable()
        self.control.publish([self._placed(event, self.signing_key()) for event in events])

    def _placed(self, event: Event, key: Key) -> Outgoing:
        payload, place = encode_json(event), self._writer.next_place()
        signature = key.sign(EVENTS, event.run, placed(place, payload))
        return Outgoing(EVENTS, payload, event.run, {SIGNATURE: signature, PLACE: place})

    def create(
        self, config: RunConfig, spec: EnvironmentSpec, author: str, run: str | None = None
    ) -> str:
        """Append CreateRun under a fresh id, and return the id."""
        run = run or new_run_id(config.environment.id)
        self.send(CreateRun(run=run, config=content(config, spec), author=author))
        return run

    def state(self, run: str) -> RunState:
        found = self.states(run).get(run)
        assert found is not None, f"run {run} was looked up before"
        return found

    def states(self, only: str | None = None) -> dict[str, RunState]:
        """All runs that were not deleted, oldest first, or one of them; folded from the log."""
        if self.cluster is None and not self.control_path.exists():
            return {}
        with self._lock:
            found = self._log(only)
            found.read()
            states = found.states if only is None else {only: found.states.get(only)}
            return {r: s for r, s in states.items() if s is not None and s.desired != DELETED}

    def _log(self, only: str | None) -> RunLog:
        """Read once and then followed. A cluster's reader of one run costs no less than of all."""
        if None in self._logs or self.cluster is not None:
            only = None
        if only not in self._logs:
            self._logs = {only: RunLog(self, only)}
        return self._logs[only]

    def remember(self, states: Iterable[RunState]) -> None:
        """Keep what was found out about runs beside the log."""
        with self._lock:
            self._log(None).remember(states)

    def find(self, name: str) -> str:
        """A run's id from an id, a unique prefix of one, or `last`."""
        if name != "last" and self.states(name):
            return name
        runs = sorted(self.states().values(), key=lambda state: state.age)
        try:
            return find_run(name, {state.id: state.name for state in runs}, f"in {self.path}")
        except AmbiguousRun:
            raise
        except UnknownName:
            strangers = self._log(None).strangers if self._logs else ()
            if any(run.startswith(name) for run in strangers):
                raise InputError(
                    f"run {name} was created with another key than {key_path(self.path)}: name the "
                    f"key of the machine that made it in {KEY_VARIABLE}, or set trust_bus in {FILE}"
                ) from None
            raise

    # --- a run's own things ----------------------------------------------------------------------

    def config(self, state: RunState) -> RunConfig:
        """With the bounds that it has now."""
        found = state.config.get("config")
        bounds = {} if state.stop is None else {"stop": state.stop}
        return validate({**found, **bounds} if isinstance(found, dict) else {})

    def spec(self, state: RunState) -> EnvironmentSpec:
        return spec_from_json(state.config["spec"])

    def bus_path(self, run: str) -> Path:
        """Of a run whose bus is a file."""
        return self.run_dir(run) / RUN_FILE

    def open_run_bus(
        self,
        run: str,
        config: RunConfig,
        warn: Callable[[str], None] | None = None,
        least_bytes: int = 0,
    ) -> Bus:
        place = BusPlace(run, self.run_dir(run), config.bus, self.cluster, warn, least_bytes)
        return run_bus(config.bus.kind).open(place)

    def read_run_bus(self, state: RunState) -> Bus | None:
        """The run's bus for reading only, if there is one."""
        bus = self.config(state).bus
        place = BusPlace(state.id, self.run_dir(state.id), bus, self.cluster)
        return run_bus(bus.kind).read(place)

    def files(self, run: str) -> RunFiles:
        """What the run is, and where its weights are."""
        return self.files_of(self.state(run))

    def find_files(self, name: str) -> RunFiles:
        """The same, by an id, a unique prefix of one, or `last`."""
        return self.files(self.find(name))

    def files_of(self, state: RunState) -> RunFiles:
        return self.files_for(state.id, self.config(state), self.spec(state))

    def files_for(self, run: str, config: RunConfig, spec: EnvironmentSpec) -> RunFiles:
        """The same of a run that may not be in the log yet."""
        from rookery.checkpoints.policies import RunFiles  # imports numpy: few verbs need it

        uri, directory = config.checkpoint.uri, self.run_dir(run)
        return RunFiles(
            run,
            config,
            spec,
            uri or f"file:{directory / 'checkpoints'}",
            f"{uri}-snapshots" if uri else f"file:{directory / 'snapshots'}",
        )

    # --- the lease -------------------------------------------------------------------------------

    def lease(self, run: str, patience_s: float = 0.0) -> AbstractContextManager[bool]:
        """True while this process owns the run; False if another does."""
        return lease.holding(self._owner(run), patience_s)

    def take_lease(self, run: str) -> Lease | None:
        """The run's lease, until it is closed; None if another has it."""
        return lease.take_lock(self._owner(run))

    def is_owned(self, run: str) -> bool:
        return lease.is_locked(self._owner(run))

    def owner(self, run: str) -> Holder | None:
        """The process that has the run's lease, where that is known."""
        return lease.holder(self._owner(run))

    def owner_frozen(self, run: str) -> bool:
        """Whether the system says that whoever carries the run is stopped."""
        found = self.owner(run)
        return found is not None and found.seen.stopped

    def evict(self, run: str, silent_s: float) -> str | None:
        """End an owner of the run that is frozen; who that was, in words."""
        return lease.evict(self._owner(run), silent_s)

    def has_server(self) -> bool:
        """Whether a server carries this home's runs."""
        return lease.is_locked(self.path / lease.SERVER)

    def server_cpus(self) -> int:
        """That the server has for all runs."""
        try:
            return int(self._server_says("cpus"))
        except (ValueError, KeyError, TypeError):  # an older one, or one that only speaks MCP
            return self.settings.cpus or os.cpu_count() or 1

    def server_launcher(self) -> str:
        """That the server places runs with which ask for no other."""
        try:
            return str(self._server_says("launcher"))
        except KeyError:
            return self.settings.launcher

    def _server_says(self, key: str) -> Any:
        try:
            return json.loads((self.path / lease.SERVER_PLACE).read_text())[key]
        except (OSError, ValueError) as error:
            raise KeyError(key) from error

    def _owner(self, run: str) -> Path:
        return self.run_dir(run) / lease.OWNER


def content(config: RunConfig, spec: EnvironmentSpec) -> dict[str, Any]:
    """What CreateRun holds."""
    return {"config": config.model_dump(mode="json"), "spec": spec_to_json(spec)}


def new_run_id(environment: str) -> str:
    """Says what is played, is easy to type, and does not repeat: cartpole-k3f9a."""
    name = re.sub(r"-v\d+$", "", environment.split(":")[-1]).lower()
    slug = re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:24] or "run"
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    return slug + "-" + "".join(secrets.choice(alphabet) for _ in range(5))
