"""`why` names what is stuck, and what to do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rookery.bus import Bus
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.diagnosis import diagnose, why
from rookery.control.evidence import Evidence, lasting, silences, stopped_early
from rookery.control.lease import Holder
from rookery.control.run_state import RUNNING, RunState, WorkerState
from rookery.control.supervision import Silence
from rookery.errors import BusError
from rookery.messages import JOINED_FROM, ActorMetrics, TrainingMetrics
from rookery.processes import look_at
from rookery.worker.progress import Progress, Pulse, read_progress
from tests.server.test_run_rows import training

STATE = RunState(
    "r",
    {"config": {"actors": {"count": 2}}},
    created_s=1.0,
    desired=RUNNING,
    status="running",
)


class FakeHome:
    """One run that somebody owns, and no bus: nobody has reported anything."""

    def is_owned(self, run: str) -> bool:
        return True

    path = Path("/")

    def read_run_bus(self, state: RunState) -> Bus | None:
        return None

    def config(self, state: RunState) -> RunConfig:
        return build({"environment": {"id": "CartPole-v1"}})

    def owner(self, run: str) -> None:
        return None

    def has_server(self) -> bool:
        return False

    def progress_dir(self, run: str) -> Path:
        return Path("/nowhere")


def worker(kind: str, index: int, *, running: bool) -> dict[str, WorkerState]:
    return {f"{kind}-{index}": WorkerState(kind, index, 1, pid=1, running=running)}


LEARNER = worker("learner", 0, running=True)


def told(workers: dict[str, WorkerState], **changes: Any) -> tuple[str | None, str]:
    state = msgspec.structs.replace(STATE, workers=workers, **changes)
    found = why(FakeHome(), state)  # type: ignore[arg-type]
    return found.component, found.summary


@pytest.mark.parametrize(
    ("incarnation", "pid", "error_of", "words"),
    [
        (1, 7, 0, "is being started"),
        (2, 7, 2, "is down and will be started again; last error: it broke"),
        (3, None, 2, "is down and will be started again; last error: it broke"),
        (3, 7, 2, "is being started"),  # it was well when its owner ended
    ],
)
def test_a_worker_that_is_down_is_named_with_the_error_that_ended_it(
    incarnation: int, pid: int | None, error_of: int, words: str
) -> None:
    down = WorkerState("actor", 1, incarnation, pid=pid, last_error="it broke", error_of=error_of)
    workers = LEARNER | worker("actor", 0, running=True) | {"actor-1": down}
    assert told(workers) == ("actor-1", f"actor-1 {words}")


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_run_that_was_scaled_to_0_actors_says_so_and_what_to_do(left: int) -> None:
    workers = dict(LEARNER)
    for index in range(left):
        workers |= worker("actor", index, running=False)
    component, summary = told(workers, actors=0)
    assert component == "actors"
    assert "nobody plays: r was scaled to 0 actors" in summary
    assert "rookery scale r --actors 1" in summary


def test_a_learner_that_is_down_comes_before_actors_that_nobody_wants() -> None:
    component, _ = told(worker("learner", 0, running=False), actors=0)
    assert component == "learner-0"


def test_a_run_without_its_learner_says_so_and_what_to_do() -> None:
    workers = worker("learner", 0, running=False) | worker("actor", 0, running=True)
    component, summary = told(workers, learners=0)
    assert component == "learner"
    assert "rookery scale r --learner 1" in summary


def test_an_actor_that_was_scaled_away_is_neither_down_nor_silent() -> None:
    workers = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=False)
    component, summary = told(workers, actors=1)
    assert component == "actor-0" and "silent" in summary  # it has not reported, and is wanted


def test_who_joined_on_its_own_plays_for_a_run_of_0_actors() -> None:
    component, summary = told(LEARNER | worker("actor", JOINED_FROM, running=True), actors=0)
    assert component == f"actor-{JOINED_FROM}" and "silent" in summary

    component, summary = told(LEARNER | worker("actor", JOINED_FROM, running=False), actors=0)
    assert component == "actors" and "scaled to 0 actors" in summary


def test_the_first_seconds_of_a_start_are_no_alarm() -> None:
    def begun(age_s: float, **changes: Any) -> dict[str, WorkerState]:
        both = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=True)
        changes["started_s"] = time.time() - age_s
        return {n: msgspec.structs.replace(w, **changes) for n, w in both.items()}

    assert told(begun(3.0)) == (None, "r is starting")
    assert told(begun(60.0))[0] is not None
    assert told(begun(3.0, last_error="boom"))[0] is not None  # what failed is said at once


def test_a_learner_that_is_up_before_its_actors_have_played_is_no_alarm() -> None:
    now = time.time()
    young = {n: msgspec.structs.replace(w, started_s=now - 3) for n, w in WORKERS.items()}
    state = msgspec.structs.replace(STATE, workers=young)
    idle = training(time_s=now, recent_steps_per_s=0.0)
    assert diagnose(evidence(state=state, metrics=idle, progress={})).component is None
    old = {n: msgspec.structs.replace(w, started_s=now - 60) for n, w in WORKERS.items()}
    state = msgspec.structs.replace(STATE, workers=old)
    assert diagnose(evidence(state=state, metrics=idle, progress={})).component == "actors"


@pytest.mark.parametrize("back_s", [0.0, 3600.0])
def test_a_clock_that_was_set_back_hides_no_trouble(back_s: float) -> None:
    now = time.time()
    young = {n: msgspec.structs.replace(w, started_s=now - 60) for n, w in WORKERS.items()}
    state = msgspec.structs.replace(STATE, workers=young)
    idle = training(time_s=now - back_s, recent_steps_per_s=0.0)
    found = diagnose(evidence(state=state, metrics=idle, progress={}, now=now - back_s))
    assert found.component == "actors", "it waits for experience"
    silent = training(time_s=now - 60)
    found = diagnose(evidence(state=state, metrics=silent, progress={}, now=now - back_s))
    assert found.component is not None and "silent" in found.summary


@pytest.mark.parametrize(("ahead_s", "silent"), [(30.0, False), (3600.0, True)])
def test_a_clock_of_another_machine_may_be_a_little_ahead(ahead_s: float, silent: bool) -> None:
    found = diagnose(evidence(metrics=training(time_s=time.time() + ahead_s)))
    assert (found.component is None) is not silent


# --- every cause has a name ----------------------------------------------------------------------

WORKERS = LEARNER | worker("actor", 0, running=True) | worker("actor", 1, running=True)
PLAYING = Progress(9, "step", since=0.0, beat=0.0, pid=77)
TRAINING = Progress(9, "training", since=0.0, beat=0.0, pid=78)


def evidence(**changes: Any) -> Evidence:
    """A run that trains, and what is different about it."""
    now = time.time()
    found = Evidence(
        state=msgspec.structs.replace(STATE, workers=WORKERS, owned_by="terminal"),
        status="running",
        metrics=training(time_s=now),
        actors={},
        progress={"actor-1": PLAYING},
        silent={},
        owner=None,
        owner_pid=5,
        silent_s=15.0,
        same_s={},
        trouble=None,
        has_server=False,
        is_full=False,
        now=now,
    )
    return found._replace(**changes)


def said_by_actor(doing: str, actor: str = "1.1", ago_s: float = 0.0) -> ActorMetrics:
    counts = {"fragments": 1, "agent_steps": 1, "steps_per_s": 0.0, "waiting_share": 1.0}
    said = {"actor": actor, "host": "far", "time_s": time.time() - ago_s, **counts}
    return ActorMetrics(run="r", doing=doing, **said)  # type: ignore[arg-type]


FROZEN = Silence("frozen", 9.0, False)
IDLE: dict[str, Any] = {"recent_steps_per_s": 0.0}
TWO_DAMAGED = msgspec.structs.replace(training().ledger, damaged=2)


@pytest.mark.parametrize(
    ("changes", "component", "words"),
    [
        ({}, None, "nothing is stuck: r trains at 500 steps/s"),
        ({"silent": {"actor-1": FROZEN}}, "actor-1", "actor-1 is frozen for 9 s (pid 77): it is"),
        ({"owner": FROZEN}, "owner", "frozen for 9 s (pid 5): workers go on, and are not replaced"),
        ({"owner": FROZEN}, "owner", "kill -CONT 5, or take over with rookery resume r"),
        ({"trouble": "no broker of x answers since 3 s"}, "bus", "waiting for the bus: no broker"),
        ({"trouble": "no broker answers", "owner": FROZEN}, "bus", "waiting for the bus"),
        (
            {"status": "queued", "has_server": True, "waits_for": "2 CPUs: a-1 has 2 of 2"},
            "cpus",
            "r waits for 2 CPUs: a-1 has 2 of 2. Stop one, or add cpus",
        ),
        ({"status": "queued", "waits_for": "a server"}, "server", "r waits for a server"),
        ({"metrics": training(late=("1.1",))}, "actor-1", "actor-1 delivered too late"),
        (
            {"metrics": training(**IDLE), "actors": {"actor-1": said_by_actor("full bus")}},
            "actor-1",
            "actor-1 waits for room: the bus is full",
        ),
        ({"metrics": training(**IDLE)}, "actors", "the learner waits for experience"),
        (
            {"metrics": training(**IDLE, ledger=TWO_DAMAGED)},
            "actors",
            "no fragment is complete; 2 messages in experiences could not be read",
        ),
        ({"metrics": None}, "actor-1", "actor-1 is silent: it is inside step of its environment"),
        (
            {"same_s": {"actor-1": 20.0}},
            "actor-1",
            "has been inside step of its environment for 20 s",
        ),
        (
            {"same_s": {"learner-0": 40.0}, "progress": {"learner-0": TRAINING}, "metrics": None},
            "learner-0",
            "learner-0 has been training for 40 s (pid 78): it is slow or hangs",
        ),
        ({"status": "interrupted"}, "owner", "r has no owner: its process died. Go on with"),
        (
            {"status": "interrupted", "is_full": True},
            "owner",
            "its process died, and the disk is full: make room. Go on with: rookery resume r",
        ),
    ],
)
def test_every_cause_is_named(changes: dict[str, Any], component: str | None, words: str) -> None:
    fresh = dict(changes)
    if isinstance(fresh.get("metrics"), TrainingMetrics):
        fresh["metrics"] = msgspec.structs.replace(fresh["metrics"], time_s=time.time())
    found = diagnose(evidence(**fresh))
    assert found.component == component and words in found.summary


def test_the_last_words_of_a_death_that_was_just_now_are_shown() -> None:
    died = WorkerState(
        *("actor", 0, 2), running=True, last_error="boom", last_detail="line 13", error_of=1
    )

    def words(ago_s: float) -> str:
        fresh = msgspec.structs.replace(died, error_s=time.time() - ago_s)
        state = msgspec.structs.replace(STATE, workers=WORKERS | {"actor-0": fresh})
        found = diagnose(evidence(state=state))
        assert "last error, recovered: actor-0: boom" in found.summary
        return found.detail

    assert (words(5.0), words(600.0)) == ("line 13", "")


# --- a worker that joined on its own, and whose machine is gone ----------------------------------

FAR = f"actor-{JOINED_FROM}"
FAR_ID = f"{JOINED_FROM}.1"


def told_of_far(
    ago_s: float, listed: tuple[str, ...] | None, rate: float = 500.0, heard_s: float = 0.0
) -> tuple[str | None, str]:
    """`ago_s`: since it last said something; `heard_s`: since the learner did."""
    state = msgspec.structs.replace(
        STATE, workers=WORKERS | worker("actor", JOINED_FROM, running=True), owned_by="terminal"
    )
    now = time.time()
    said = training(time_s=now - heard_s, actors=listed, recent_steps_per_s=rate)
    near = {name: said_by_actor("waiting") for name in ("actor-0", "actor-1")}
    actors = near | {FAR: said_by_actor("playing", FAR_ID, ago_s)}
    found = diagnose(evidence(state=state, metrics=said, actors=actors))
    return found.component, found.summary


@pytest.mark.parametrize("rate", [0.0, 500.0])
def test_an_actor_whose_machine_is_gone_is_named(rate: float) -> None:
    component, summary = told_of_far(40.0, ("0.1", "1.1"), rate)
    assert component == FAR
    assert summary.startswith(f"{FAR} on far was last heard 40 s ago: its machine or its network")


@pytest.mark.parametrize(
    ("ago_s", "listed"),
    [
        (40.0, ("0.1", "1.1", FAR_ID)),  # inside a long turn: the learner hears its heartbeat
        (40.0, None),  # an older learner does not say
        (1.0, ("0.1", "1.1")),  # it has just come
        (4000.0, ("0.1", "1.1")),  # nobody expects it any more
    ],
)
def test_an_actor_from_elsewhere_that_is_no_riddle_is_not_named(
    ago_s: float, listed: tuple[str, ...] | None
) -> None:
    component, summary = told_of_far(ago_s, listed)
    assert component is None and "nothing is stuck" in summary


def test_an_actor_that_is_long_gone_is_not_blamed_for_the_learners_silence() -> None:
    component, _ = told_of_far(4000.0, ("0.1", "1.1"), heard_s=9.0)
    assert component == "learner-0"


# --- who lives, and is at the same thing for long ------------------------------------------------


@pytest.mark.parametrize(
    ("doing", "seconds", "named"),
    [
        ("training", 20.0, True),
        ("saving", 20.0, True),
        ("starting", 20.0, True),
        ("step", 20.0, True),
        ("training", 10.0, False),
        ("waiting", 20.0, False),  # for a credit: somebody else's fault
        ("sending", 20.0, False),
    ],
)
def test_a_worker_that_beats_and_does_not_come_on_is_named_long_before_it_is_replaced(
    tmp_path: Path, doing: str, seconds: float, named: bool
) -> None:
    config = build({"environment": {"id": "CartPole-v1"}})
    with Pulse(tmp_path / "it", doing):
        progress = read_progress(tmp_path / "it")
        assert progress is not None
        found = lasting(config, {"it": progress}, progress.since + seconds)
    assert found == ({"it": seconds} if named else {})


def test_a_worker_that_starts_again_says_what_ended_it() -> None:
    state = msgspec.structs.replace(
        STATE,
        workers=WORKERS
        | {
            "learner-0": WorkerState(
                "learner", 0, 2, running=True, last_error="ended by SIGKILL", error_of=1
            )
        },
    )
    near = {name: said_by_actor("waiting") for name in ("actor-0", "actor-1")}
    for changes in ({}, {"progress": {"learner-0": TRAINING}, "same_s": {"learner-0": 20.0}}):
        found = diagnose(evidence(state=state, metrics=None, actors=near, **changes))  # type: ignore[arg-type]
        assert found.component == "learner-0"
        assert found.summary.endswith("; last error: ended by SIGKILL")
    reported = diagnose(evidence(state=state, metrics=training(), actors=near, **changes))  # type: ignore[arg-type]
    assert reported.component == "learner-0" and "SIGKILL" not in reported.summary


def test_what_was_passed_over_is_told_although_all_is_well() -> None:
    state = msgspec.structs.replace(STATE, workers=WORKERS, damaged={"u-3": "SHA-256 differs"})
    found = diagnose(evidence(state=state))
    assert found.component is None
    assert found.summary.endswith("; checkpoint u-3 is damaged and was passed over")


def test_a_bus_that_cannot_be_read_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(self: FakeHome, state: RunState) -> Bus | None:
        raise BusError("no Kafka broker answers at x:9092")

    monkeypatch.setattr(FakeHome, "read_run_bus", away)
    component, summary = told(LEARNER | WORKERS)
    assert component == "bus"
    assert summary == "waiting for the bus: no Kafka broker answers at x:9092"


def owned_by_us(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is this process's, which gives a sign of life at every look."""
    seen = look_at(os.getpid())
    assert seen is not None

    def owner(self: FakeHome, run: str) -> Holder:
        now = time.monotonic()
        return Holder(Progress(1, "owning", now, now, os.getpid(), seen.started), seen)

    monkeypatch.setattr(FakeHome, "owner", owner)


def test_nobody_looks_frozen_because_the_bus_took_long_to_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, late = time.monotonic, 0.0

    def answer_late(self: FakeHome, state: RunState) -> Bus | None:
        nonlocal late
        late = 60.0
        return None

    owned_by_us(monkeypatch)
    monkeypatch.setattr(time, "monotonic", lambda: clock() + late)
    monkeypatch.setattr(FakeHome, "read_run_bus", answer_late)
    component, summary = told(LEARNER | WORKERS)
    assert late and component != "owner" and "frozen" not in summary


def test_who_is_frozen_is_named_without_the_bus_that_it_may_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def held(self: FakeHome, state: RunState) -> Bus | None:
        raise AssertionError("somebody waits for a bus that is held")

    owned_by_us(monkeypatch)
    monkeypatch.setattr(FakeHome, "read_run_bus", held)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        frozen = WorkerState("actor", 0, 2, pid=process.pid, running=True, started_s=time.time())
        assert told({"actor-0": frozen})[0] == "actor-0"
    finally:
        process.kill()
        process.communicate()


def test_a_worker_that_is_frozen_before_it_said_anything_is_named() -> None:
    """Its owner replaces it after a while; until then `why` says on whom it waits."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        began = time.time() - 3.0
        frozen = WorkerState("actor", 0, 2, pid=process.pid, running=True, started_s=began)
        state = msgspec.structs.replace(STATE, workers={"actor-0": frozen})
        found = stopped_early(state, ())
        config = FakeHome().config(state)
        assert "frozen for 3 s" in str(silences(config, found)["actor-0"])
        assert stopped_early(state, ["actor-0"]) == {}  # it has said something
        for other in ({"host": "10.0.0.2"}, {"index": JOINED_FROM}, {"running": False}):
            elsewhere = msgspec.structs.replace(frozen, **other)
            assert stopped_early(msgspec.structs.replace(state, workers={"a": elsewhere}), ()) == {}
        process.send_signal(signal.SIGCONT)
        os.waitpid(process.pid, os.WCONTINUED)
        assert stopped_early(state, ()) == {}
    finally:
        process.kill()
        process.communicate()
