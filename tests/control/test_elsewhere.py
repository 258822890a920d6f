"""Workers that do not live on their owner's machine: what they wait for, what they are told, and
how what they say reaches the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.bus import Outgoing
from rookery.bus.sqlite import SqliteBus
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.briefing import Briefing, Reach, brief, open_briefed, recorder
from rookery.control.controller import Controller
from rookery.control.diagnosis import why
from rookery.control.home import Home
from rookery.control.relay import Relay
from rookery.control.run_state import RunState
from rookery.control.signing import PLACE, SIGNATURE, placed
from rookery.envs.registry import describe
from rookery.errors import Forbidden, InputError, MessageError
from rookery.launchers import Observed, WorkerSpec
from rookery.messages import (
    EVENTS,
    SEATS_KEY,
    CommandAccepted,
    RunEnded,
    SeatsChanged,
    StartRun,
    WorkerFailed,
    encode_json,
)


class Town:
    """A home with one run on Ray, and nobody who carries it yet."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path / "home")
        self.config: RunConfig = build(
            {"environment": {"id": "CartPole-v1"}, "launcher": "ray", "actors": {"count": 2}}
        )
        self.run = self.home.create(self.config, describe("CartPole-v1", {}), "ann")
        self.home.send(StartRun(run=self.run))
        self.bus = self.home.open_run_bus(self.run, self.config)
        self.reach = Reach("rookery", "host", True, path / "files")

    @property
    def state(self) -> RunState:
        return self.home.state(self.run)

    @property
    def briefing(self) -> Briefing:
        return Briefing.of(brief(self.home, self.state))

    def close(self) -> None:
        self.bus.close()
        self.home.close()


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    made = Town(tmp_path)
    yield made
    made.close()


class PlacelessLauncher:
    """A fake cluster: says of each worker what the test says."""

    def __init__(self) -> None:
        self.wanted: dict[str, WorkerSpec] = {}
        self.say: dict[str, Observed] = {}

    def apply(self, specs: dict[str, WorkerSpec]) -> None:
        self.wanted = dict(specs)

    def observe(self) -> dict[str, Observed]:
        waits = Observed(0, None, reason="a node with 1 CPU", waits=True)
        return {name: self.say.get(name, waits) for name in self.wanted}

    def work(self, seconds: float) -> None: ...

    def close(self) -> None: ...


def test_a_worker_without_a_place_is_named_with_what_it_waits_for(town: Town) -> None:
    launcher = PlacelessLauncher()
    with town.home.lease(town.run):
        controller = Controller(town.home, town.run, town.config, launcher)  # type: ignore[arg-type]
        controller.begin()
        for _ in range(3):
            controller.step()
        assert controller.trouble == "learner-0 waits for a node with 1 CPU"
        events = town.home.control.subscribe(EVENTS, "earliest").poll(0.0)
        said = [record for record in events if b"worker_waiting" in record.payload]
        assert len(said) == 3, "each is told once, not with every look"
        found = why(town.home, town.state)
        assert "waits for a node with 1 CPU" in found.summary

        launcher.say = {name: Observed(7, None, host="10.0.0.3") for name in launcher.wanted}
        controller.step()
        assert controller.trouble is None
        workers = town.state.workers.values()
        assert {(w.host, w.waits_for, w.running) for w in workers} == {("10.0.0.3", "", True)}

        gone = Observed(7, -9, host="10.0.0.3", reason="its node 10.0.0.3 is gone")
        launcher.say["actor-0.1"] = gone
        controller.step()
        assert town.state.workers["actor-0"].last_error == "its node 10.0.0.3 is gone"
        controller.close()


def test_what_no_other_try_can_help_ends_the_run(town: Town) -> None:
    launcher = PlacelessLauncher()
    with town.home.lease(town.run):
        controller = Controller(town.home, town.run, town.config, launcher)  # type: ignore[arg-type]
        controller.begin()
        controller.step()
        launcher.say["actor-0.1"] = Observed(0, 1, reason="node x has no rookery", final=True)
        controller.step()
        controller.close()
    assert town.state.status == "failed" and "node x has no rookery" in town.state.reason


# --- what they are told --------------------------------------------------------------------------


def test_a_briefing_opens_the_run_and_holds_no_key_of_the_home(town: Town) -> None:
    content = brief(town.home, town.state)
    assert town.home.signing_key().text.encode() not in content
    briefing = Briefing.of(content)
    assert briefing.key not in repr(briefing)
    context = open_briefed(briefing, town.reach)
    assert context.run == town.run and context.config == town.config
    assert context.files.checkpoints == f"file:{town.home.run_dir(town.run)}/checkpoints"
    with pytest.raises(InputError, match="not known to workers elsewhere"):
        context.find("another")
    context.bus.close()
    far = Reach("rookery", "host", False, town.reach.files)
    assert open_briefed(briefing, far).files.snapshots == "ray:rookery/host/snapshots"


def test_a_worker_elsewhere_judges_a_foreign_config_again(town: Town) -> None:
    import msgspec

    foreign = msgspec.structs.replace(
        town.briefing,
        origin="network",
        config={**town.briefing.config, "environment": {"id": "os:system"}},
    )
    with pytest.raises(Forbidden):
        open_briefed(foreign, town.reach)


def test_a_change_of_seats_counts_only_with_the_runs_key(town: Town) -> None:
    context = open_briefed(town.briefing, town.reach)
    payload = encode_json(SeatsChanged(revision=1, seats={"*": "main"}, origin="local"))
    key = town.home.run_key(town.run, town.config)
    for signature, good in (
        (key.sign("model_updates", town.run, payload), True),
        ("0" * 64, False),
    ):
        headers = {"kind": "seats", SIGNATURE: signature}
        town.bus.publish([Outgoing("model_updates", payload, SEATS_KEY, headers)])
        record = town.bus.newest("model_updates", SEATS_KEY)
        assert record is not None and context.trusted(record) == good
        if good:
            assert context.seats_from(record).revision == 1
        else:
            with pytest.raises(MessageError):
                context.seats_from(record)
    context.bus.close()


# --- what they say -------------------------------------------------------------------------------


def failure(town: Town, error: str) -> WorkerFailed:
    return WorkerFailed(run=town.run, kind="actor", index=0, incarnation=1, error=error)


def test_what_a_worker_says_reaches_the_log_once(town: Town) -> None:
    record = recorder(town.briefing, town.reach)
    relay = Relay(town.home, town.run, town.config, town.bus)
    record(failure(town, "first"))
    assert relay.hand_on() and not relay.hand_on()
    assert town.state.workers["actor-0"].last_error == "first"

    record(failure(town, "second"))
    kept = town.bus.subscribe(EVENTS, "earliest").poll(0.0)
    assert Relay(town.home, town.run, town.config, town.bus).hand_on()  # of an owner that died
    town.bus.publish([Outgoing(EVENTS, r.payload, r.key, r.headers) for r in kept])
    relay.hand_on()
    found = town.home.control.subscribe(EVENTS, "earliest").poll(0.0)
    places = [r.headers[PLACE] for r in found if b"second" in r.payload]
    assert len(places) == 2 and len(set(places)) == 1, "a copy has the place of the first"
    assert town.state.workers["actor-0"].last_error == "second"


@pytest.mark.parametrize("how", ["unsigned", "another run's", "an owner's word", "nonsense"])
def test_what_is_not_a_workers_to_say_is_left_out(town: Town, how: str) -> None:
    key = town.home.run_key(town.run, town.config)
    event: object = RunEnded(run=town.run, status="failed", reason="forged")
    if how == "another run's":
        event = RunEnded(run="other", status="failed", reason="forged")
    if how == "an owner's word":
        event = CommandAccepted(run=town.run, command="x")
    payload = b"{}" if how == "nonsense" else encode_json(event)  # type: ignore[arg-type]
    signature = key.sign(EVENTS, town.run, placed("me:1", payload))
    headers = {PLACE: "me:1", SIGNATURE: "0" * 64 if how == "unsigned" else signature}
    town.bus.publish([Outgoing(EVENTS, payload, town.run, headers)])
    before = town.home.control.end(EVENTS)
    assert not Relay(town.home, town.run, town.config, town.bus).hand_on()
    assert town.home.control.end(EVENTS) == before
    assert isinstance(town.bus, SqliteBus)
