"""One service for commands, over the log as the shell follows it and as a server does."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest

from rookery.config.reading import build
from rookery.control.create import local_service
from rookery.control.details import config_now
from rookery.control.effects import creates
from rookery.control.home import Home
from rookery.control.lease import take_lock
from rookery.control.local_log import LocalLog, run_here
from rookery.control.log_pages import LogView
from rookery.control.run_log import RunLog
from rookery.control.service import Service
from rookery.control.settings import Allow
from rookery.envs.registry import describe
from rookery.errors import ConfigError, Forbidden, InputError, UnknownName
from rookery.messages import (
    MAX_JSON_BYTES,
    Command,
    CommandAccepted,
    CreateRun,
    Evaluate,
    PauseRun,
    ScaleActors,
    ScaleLearner,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
)
from rookery.server.feed.follower import Follower
from rookery.spaces import spec_from_json, spec_to_json
from rookery.testing.owner import StandInOwner
from tests.conftest import wait_until

T = TypeVar("T")

RUN = "a-run"
CONFIG = build({"environment": {"id": "CartPole-v1"}})
SPEC = spec_to_json(describe("CartPole-v1", {}))
WHO: dict[str, Any] = {"author": "ann"}


class Checks:
    """Notes what it is asked to check, and finds fault with one player."""

    def __init__(self) -> None:
        self.orders: list[Mapping[str, Any]] = []

    async def __call__(self, order: Mapping[str, Any]) -> dict[str, Any]:
        self.orders.append(order)
        await asyncio.sleep(0)
        if "script:broken" in order.get("seats", {}).values():
            raise InputError("script:broken cannot play")
        return SPEC


class Place:
    """A home with a run, and the service over its log."""

    def __init__(self, home: Home, view: Callable[[], LogView]) -> None:
        self.home, self.checks, self._view = home, Checks(), view

    def do(self, work: Callable[[Service], Coroutine[Any, Any, T]]) -> T:
        async def done() -> T:
            async with asyncio.timeout(30):
                return await work(Service(self.home, self._view(), self.checks, Allow(), True))

        return run_here(done())

    def sent(self, kind: type[Any] = object) -> list[Command]:
        log = RunLog(self.home)
        return [m for m in log.read() if isinstance(m, get_args(Command)) and isinstance(m, kind)]


@contextlib.contextmanager
def _far(home: Home) -> Iterator[Callable[[], LogView]]:
    follower = Follower(home, interval_s=0.005)
    follower.start()
    try:
        assert follower.ready.wait(20)
        with StandInOwner(home):
            yield lambda: follower
    finally:
        follower.close()


@contextlib.contextmanager
def _near(home: Home) -> Iterator[Callable[[], LogView]]:
    yield lambda: LocalLog(home)


@pytest.fixture(params=[_near, _far], ids=["near", "far"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    home = Home(tmp_path)
    content = {"config": CONFIG.model_dump(mode="json"), "spec": SPEC}
    home.send(CreateRun(run=RUN, config=content))
    with request.param(home) as view:
        yield Place(home, view)
    home.close()


def test_a_command_is_appended_once_and_answered(place: Place) -> None:
    command = StartRun(run=RUN, **WHO)
    answers = [place.do(lambda s: s.submit(command)) for _ in range(2)]
    assert [(a.outcome, a.kind, a.run) for a in answers] == [("accepted", "start_run", RUN)] * 2
    assert answers[0].effect.startswith("starts ") and answers[0].command == command.id
    assert len(place.sent(StartRun)) == 1


def test_the_same_id_at_the_same_time_acts_once(place: Place) -> None:
    command = StartRun(run=RUN, **WHO)

    async def many(service: Service) -> list[str]:
        answers = await asyncio.gather(*(service.submit(command) for _ in range(8)))
        return [answer.outcome for answer in answers]

    assert place.do(many) == ["accepted"] * 8
    assert len(place.sent(StartRun)) == 1


def test_the_owner_has_the_last_word(place: Place) -> None:
    answer = place.do(lambda s: s.submit(PauseRun(run=RUN, **WHO)))
    assert answer.outcome == "rejected" and "start it first" in answer.why and not answer.effect


WRONG: dict[str, tuple[Command, type[Exception], str]] = {
    "no such run": (StartRun(run="nope"), UnknownName, "nope"),
    "not live": (SetHyperparameters(run=RUN, values={"actors.count": 2}), UnknownName, "live"),
    "out of range": (SetHyperparameters(run=RUN, values={"algorithm.gamma": 2}), InputError, "ga"),
    "no reader takes it": (ScaleActors(run=RUN, count=-1), ConfigError, ">= 0"),
    "too large": (PauseRun(run=RUN, reason="x" * MAX_JSON_BYTES), ConfigError, "bytes"),
    "cannot play": (SetSeatMap(run=RUN, seats={"*": "script:broken"}), InputError, "broken"),
    "no player": (Evaluate(run=RUN, player="scrip:random"), InputError, "script"),
    "not allowed": (
        Evaluate(run=RUN, player="script:my_package:play", origin="network"),
        Forbidden,
        "allow",
    ),
}


@pytest.mark.parametrize(("command", "kind", "says"), WRONG.values(), ids=WRONG)
def test_what_is_known_to_be_wrong_never_stands_in_the_log(
    place: Place, command: Command, kind: type[Exception], says: str
) -> None:
    before = len(place.sent())
    with pytest.raises(kind, match=says):
        place.do(lambda s: s.submit(command))
    assert len(place.sent()) == before


def test_a_dry_run_judges_as_the_command_would_be_and_sends_nothing(place: Place) -> None:
    before = len(place.sent())
    found = {
        "would_accept": ScaleActors(run=RUN, count=3),
        "would_reject": PauseRun(run=RUN),
    }
    for outcome, command in found.items():
        assert place.do(lambda s, c=command: s.dry_run(c)).outcome == outcome  # type: ignore[misc]
    seats = SetSeatMap(run=RUN, seats={"*": "script:broken"})
    answer = place.do(lambda s: s.dry_run(seats))
    assert (answer.outcome, answer.why) == ("would_reject", "script:broken cannot play")
    with pytest.raises(Forbidden):
        place.do(lambda s: s.dry_run(WRONG["not allowed"][0]))
    assert len(place.sent()) == before


def test_a_new_seat_map_is_sent_whole_and_its_players_are_made_once(place: Place) -> None:
    command = SetSeatMap(run=RUN, seats={"player_0": "main"})
    assert place.do(lambda s: s.submit(command)).outcome == "accepted"
    whole = {"player_0": "main", "*": "main"}
    assert [order["seats"] for order in place.checks.orders] == [whole]
    assert [c.seats for c in place.sent(SetSeatMap)] == [whole]  # type: ignore[union-attr]


def test_a_run_is_created_and_started_once(place: Place) -> None:
    def create(service: Service) -> Coroutine[Any, Any, Any]:
        return service.create(CONFIG, **WHO, id="0123456789", reason="a try")

    first, again = place.do(create), place.do(create)
    assert first.outcome == again.outcome == "accepted" and first.run == again.run != RUN
    assert len(place.checks.orders) == 1
    made = [c for c in place.sent() if c.run == first.run]
    assert [type(c) for c in made] == [CreateRun, StartRun]
    assert all((c.author, c.reason) == ("ann", "a try") for c in made)
    # its start is answered for itself, after its creation
    wait_until(lambda: place.home.state(first.run).status == "queued", "it to be queued", 20)


def test_a_run_may_be_named_and_tried_without_a_trace(place: Place) -> None:
    before = len(place.sent())
    would = place.do(lambda s: s.create(CONFIG, **WHO, id="1", dry_run=True))
    assert (would.outcome, would.run) == ("would_accept", "") and len(place.sent()) == before
    made = place.do(lambda s: s.create(CONFIG, **WHO, id="2", start=False, run="mine"))
    assert made.run == "mine" and place.home.state("mine").status == "created"


def test_a_config_from_the_network_names_nothing_that_was_not_allowed(place: Place) -> None:
    own = build({"environment": {"id": "my_package.envs:Mine"}})
    with pytest.raises(Forbidden):
        place.do(lambda s: s.create(own, **WHO, id="1", origin="network"))
    assert place.checks.orders == []


# --- the shell's own log -------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    content = {"config": CONFIG.model_dump(mode="json"), "spec": SPEC}
    home.send(*(CreateRun(run=run, config=content) for run in (RUN, "other")))
    yield home
    home.close()


def near(home: Home, run: str | None = RUN) -> Service:
    return Service(home, LocalLog(home, run), Checks(), Allow(), carries=True)


def test_only_the_run_that_was_asked_for_is_answered_here(home: Home) -> None:
    run_here(near(home, None).submit(StartRun(run=RUN)))
    assert not home.state(RUN).commands and len(home.state("other").commands) == 1


def test_a_run_that_another_process_owns_is_left_to_it(home: Home) -> None:
    lease = home.take_lease(RUN)
    assert lease is not None
    with lease:
        answer = run_here(near(home).submit(StartRun(run=RUN), wait_s=0.2))
        assert answer.outcome == "waiting" and answer.effect.startswith("starts ")
        log = RunLog(home, RUN)
        log.read()
        owner = threading.Timer(0.1, log.answer, [RUN])
        owner.start()
        command = next(c for c in home.state(RUN).commands.values() if isinstance(c, StartRun))
        assert run_here(near(home).submit(command, wait_s=10.0)).outcome == "accepted"
        owner.join(10)


def test_where_a_server_lives_the_answer_is_left_to_it(home: Home) -> None:
    lock = take_lock(home.path / "server.lock")
    assert lock is not None
    with lock:
        assert run_here(near(home).submit(StartRun(run=RUN), wait_s=0.2)).outcome == "waiting"
    assert len(home.state(RUN).commands) == 2


def test_it_works_inside_an_event_loop_as_in_a_notebook(home: Home) -> None:
    async def cell() -> str:
        return run_here(near(home).submit(StartRun(run=RUN))).outcome

    assert asyncio.run(cell()) == "accepted"


def test_an_answer_of_long_ago_is_read_from_the_log(home: Home) -> None:
    command = StartRun(run=RUN)
    run_here(near(home).submit(command))
    log = LocalLog(home, RUN)
    log._answers.clear()
    service = Service(home, log, Checks(), Allow(), carries=True)
    assert run_here(service.submit(command, wait_s=0.0)).outcome == "accepted"


def test_ctrl_c_does_not_wait_for_an_environment_that_takes_its_time() -> None:
    program = (
        "import signal, time\n"
        "from rookery.control.local_log import run_here\n"
        "async def slow():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    time.sleep(60)\n"
        "try: run_here(slow())\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize(
    ("config", "actors", "line"),
    [
        ({"algorithm": {"kind": "tests.algorithms.toy_replay:Repeat"}}, 1, "be shared"),
        ({"actors": {"count": 2, "envs_per_actor": 3}}, 1, "does not divide the 3 lanes"),
        ({"actors": {"count": 2, "envs_per_actor": 3}}, 2, ""),
    ],
)
def test_learners_share_the_batches_that_a_run_has_now_or_that_is_said_at_once(
    tmp_path: Path, config: dict[str, Any], actors: int, line: str
) -> None:
    home = Home(tmp_path)
    built = build({"environment": {"id": "CartPole-v1"}}, config)
    run = home.create(built, spec_from_json(SPEC), "ann")
    scaled = ScaleActors(run=run, count=actors, **WHO)
    home.send(scaled)
    home.record(CommandAccepted(run=run, command=scaled.id))
    service = local_service(home, LocalLog(home))
    said = contextlib.nullcontext() if not line else pytest.raises(ConfigError, match=line)
    with said:
        run_here(service.submit(ScaleLearner(run=run, count=2, **WHO), wait_s=0.0))
    sent = [each for each in home.state(run).commands.values() if isinstance(each, ScaleLearner)]
    assert len(sent) == (not line)


def test_learners_are_counted_wherever_it_is_said_who_works_on_a_run(tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = build({"environment": {"id": "CartPole-v1"}, "learner": {"count": 2}})
    assert creates(config, start=True).endswith("starts it: 2 learners, 1 actor")
    run = home.create(config, spec_from_json(SPEC), "ann")
    for count, shown in ((4, 4), (0, 2)):  # no config has 0
        scaled = ScaleLearner(run=run, count=count, **WHO)
        home.send(scaled)
        home.record(CommandAccepted(run=run, command=scaled.id))
        state = home.state(run)
        assert config_now(state, home.config(state))["learner"]["count"] == shown
