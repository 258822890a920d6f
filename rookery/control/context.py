"""A run of this home as its workers see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rookery.bus import Bus, Record
from rookery.checkpoints.policies import RunFiles
from rookery.control.allow import refused, seats_refused
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.control.settings import Allow
from rookery.errors import Forbidden, InputError, MessageError
from rookery.messages import SeatsChanged, decode_json
from rookery.players.seat_map import SeatFunction, Seating
from rookery.worker.context import RunContext
from rookery.worker.policies import least_experience


def allowed_files(home: Home, state: RunState) -> RunFiles:
    """What the run is, for a process that makes what its config names; refuses a config from the
    network that the owner does not allow."""
    files = home.files_of(state)
    network = state.origin == "network"
    if network and (why := refused(files.config, home.settings.allow, here=True)):
        raise Forbidden(why)
    return files


@dataclass(frozen=True)
class Trust:
    """Whose word counts for the workers of a run."""

    run: str
    is_signed: Callable[[str, str, bytes, Mapping[str, str]], bool]
    allow: Allow

    def trusted(self, record: Record) -> bool:
        return self.is_signed(record.topic, self.run, record.payload, record.headers)

    def seats_from(self, record: Record) -> SeatsChanged:
        changed = decode_json(record.payload, SeatsChanged)
        if not self.trusted(record):
            raise MessageError("a change of seats that is not signed with this home's key")
        if changed.origin == "network":
            why = seats_refused(changed.seats, self.allow, here=True)
            if why is not None:
                raise MessageError(why)
        return changed


def open_context(home: Home, run: str, seat_function: SeatFunction | None = None) -> RunContext:
    """Opens the run's bus, if its config is allowed."""
    state = home.state(run)
    files = allowed_files(home, state)

    def open_recorded(name: str) -> Bus:
        bus = home.read_run_bus(home.state(home.find(name)))
        if bus is None:
            raise InputError(f"run {name} has recorded nothing: its bus is gone")
        return bus

    seating = Seating.of(files.config, files.spec, seat_function)
    trust = Trust(run, home.trusts, home.settings.allow)
    return RunContext(
        files,
        seating,
        home.open_run_bus(run, files.config, least_bytes=least_experience(files.config, seating)),
        state.orders,
        home.record,
        trust.trusted,
        trust.seats_from,
        home.find_files,
        open_recorded,
        home.progress_dir(run),
    )
