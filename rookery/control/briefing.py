"""What a worker is told that does not live on its owner's machine: all that its run is, as text.

    brief(home, state)                              # the owner's side: bytes that travel
    open_briefed(Briefing.of(content), reach)       # the worker's: the run as it sees it

It holds a key that is good for this run alone, so the home's own never leaves its machine. Only a
run on Kafka, whose log is on the cluster as well, needs the home's: there a worker opens a home of
its own with it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rookery.bus import Bus, BusPlace, Outgoing, run_bus
from rookery.bus.ray.client import HostedBus
from rookery.checkpoints.policies import RunFiles
from rookery.config.models import Draw, RunConfig
from rookery.config.reading import validate
from rookery.control.allow import refused
from rookery.control.context import Trust
from rookery.control.home import BUS_VARIABLE, Home
from rookery.control.run_state import RunState
from rookery.control.settings import FILE, Allow
from rookery.control.signing import PLACE, SIGNATURE, Key, Writer, placed
from rookery.errors import Forbidden, InputError, RookeryError
from rookery.messages import EVENTS, Event, LearnerOrders, encode_json
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating
from rookery.spaces import spec_from_json
from rookery.worker.context import RecordEvents, RunContext
from rookery.worker.policies import least_experience


class OtherRun(msgspec.Struct, frozen=True):
    """A run whose policy plays in this one."""

    run: str
    config: dict[str, Any]
    spec: dict[str, Any]
    checkpoints: str
    snapshots: str


class HomeElsewhere(msgspec.Struct, frozen=True):
    """What makes a home of a cluster's out of an empty directory."""

    bus: str
    key: str
    settings: str


class Briefing(msgspec.Struct, frozen=True, kw_only=True):
    """owner -> worker."""

    run: str
    config: dict[str, Any]
    spec: dict[str, Any]
    origin: str
    orders: LearnerOrders
    allow: dict[str, list[str]]
    key: str
    directory: str  # of the run, on its owner's machine
    others: dict[str, OtherRun] = {}  # by the names that they are called by
    home: HomeElsewhere | None = None

    @classmethod
    def of(cls, content: bytes) -> Briefing:
        return msgspec.json.decode(content, type=cls)

    def __repr__(self) -> str:
        return f"Briefing({self.run})"  # it holds a key


class Reach(NamedTuple):
    """How a worker gets at what its owner keeps for it."""

    namespace: str
    host: str  # name of the run's host in the cluster
    near: bool  # on the host's own node: its files can be opened
    files: Path  # of the worker's own, on its node


def brief(home: Home, state: RunState) -> bytes:
    config, elsewhere = home.config(state), None
    if home.cluster is not None:
        settings = home.path / FILE
        elsewhere = HomeElsewhere(
            home.cluster.uri,
            home.signing_key().text,
            settings.read_text() if settings.exists() else "",
        )
    return msgspec.json.encode(
        Briefing(
            run=state.id,
            config=config.model_dump(mode="json"),
            spec=state.config["spec"],
            origin=state.origin,
            orders=state.orders,
            allow=home.settings.allow.model_dump(mode="json"),
            key=home.run_key(state.id, config).text if elsewhere is None else "",
            directory=str(home.run_dir(state.id)),
            others={name: _other(home, name) for name in _named_runs(home, config)},
            home=elsewhere,
        )
    )


def _other(home: Home, name: str) -> OtherRun:
    files = home.find_files(name)
    return OtherRun(
        files.run,
        files.config.model_dump(mode="json"),
        home.state(files.run).config["spec"],
        files.checkpoints,
        files.snapshots,
    )


def _named_runs(home: Home, config: RunConfig) -> Iterator[str]:
    """Names of players that are other runs' policies."""
    for text in {*_players(config)}:
        name = PlayerName.parse(text)
        if name.kind not in ("policy", "snapshot") or name.name in config.all_policies:
            continue
        try:
            home.find(name.run[0])
        except RookeryError:
            continue  # whoever makes the player says so, in better words
        yield name.run[0]


def _players(config: RunConfig) -> Iterator[str]:
    yield from config.league.reference
    for chosen in config.seats.values():
        if isinstance(chosen, Draw):
            yield from (option.player for option in chosen.draw if option.player is not None)
        else:
            yield chosen


def recorder(briefing: Briefing, reach: Reach) -> RecordEvents:
    """Where a worker says what went wrong, even if its run cannot be opened."""
    return _Recorder(_open_bus(briefing, reach), briefing.run, Key(briefing.key.encode())).record


def open_briefed(briefing: Briefing, reach: Reach) -> RunContext:
    """The run as a worker elsewhere sees it; a config that its owner does not allow is refused."""
    config, allow = validate(briefing.config), Allow.model_validate(briefing.allow)
    if briefing.origin == "network" and (why := refused(config, allow, here=True)):
        raise Forbidden(why)
    spec, key = spec_from_json(briefing.spec), Key(briefing.key.encode())
    bus = _open_bus(briefing, reach)
    trust = Trust(briefing.run, lambda *said: _is_signed(key, *said), allow)
    return RunContext(
        RunFiles(briefing.run, config, spec, *_stores(briefing, config, reach)),
        Seating.of(config, spec),
        bus,
        briefing.orders,
        _Recorder(bus, briefing.run, key).record,
        trust.trusted,
        trust.seats_from,
        lambda name: _find(briefing, name),
        _unrecorded,
        reach.files,
    )


def _is_signed(key: Key, topic: str, run: str, payload: bytes, headers: Any) -> bool:
    return key.signed(headers.get(SIGNATURE, ""), topic, run, payload)


def _open_bus(briefing: Briefing, reach: Reach) -> Bus:
    if reach.near:
        config = validate(briefing.config)
        seating = Seating.of(config, spec_from_json(briefing.spec))
        least, directory = least_experience(config, seating), Path(briefing.directory)
        place = BusPlace(briefing.run, directory, config.bus, least_bytes=least)
        return run_bus(config.bus.kind).open(place)
    from rookery.bus.ray.line import HostLine

    return HostedBus(HostLine(reach.namespace, reach.host))


def _stores(briefing: Briefing, config: RunConfig, reach: Reach) -> tuple[str, str]:
    uri = config.checkpoint.uri
    if uri:
        return uri, f"{uri}-snapshots"
    base = f"file:{briefing.directory}" if reach.near else f"ray:{reach.namespace}/{reach.host}"
    return f"{base}/checkpoints", f"{base}/snapshots"


def _find(briefing: Briefing, name: str) -> RunFiles:
    if name == briefing.run:
        raise InputError(f"run {name} plays in itself: name its policy, or league:POLICY")
    found = briefing.others.get(name)
    if found is None:
        raise InputError(
            f"run {name} is not known to workers elsewhere: name it in the config's seats, or "
            "play this run with launcher=local"
        )
    config, spec = validate(found.config), spec_from_json(found.spec)
    return RunFiles(found.run, config, spec, found.checkpoints, found.snapshots)


def _unrecorded(name: str) -> Bus:
    raise InputError(f"run {name} cannot be replayed on other nodes: use launcher=local")


class _Recorder:
    """Events for the log, by the run's own bus (`control.relay` hands them on)."""

    def __init__(self, bus: Bus, run: str, key: Key) -> None:
        self._bus, self._run, self._key = bus, run, key
        self._writer = Writer()

    def record(self, *events: Event) -> None:
        self._bus.publish([self._placed(event) for event in events])

    def _placed(self, event: Event) -> Outgoing:
        payload, place = encode_json(event), self._writer.next_place()
        signature = self._key.sign(EVENTS, self._run, placed(place, payload))
        return Outgoing(EVENTS, payload, self._run, {SIGNATURE: signature, PLACE: place})


def make_home(elsewhere: HomeElsewhere) -> Home:
    """A home of the cluster's, in a directory of this process alone."""
    path = Path(tempfile.mkdtemp(prefix="rookery-"))
    for name, text in (("command.key", elsewhere.key), (FILE, elsewhere.settings)):
        descriptor = os.open(path / name, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
    os.environ.update({"ROOKERY_HOME": str(path), BUS_VARIABLE: elsewhere.bus})
    return Home.default()
