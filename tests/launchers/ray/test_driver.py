"""What a driver does with those that it has placed. No Ray cluster: handles and calls are ours."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from ray.exceptions import ActorUnavailableError, RayError

from rookery.control.supervision import Vigil
from rookery.launchers.ray.driver import Driver
from rookery.launchers.ray.placed import LOOK_S, UNANSWERED_S, PlacedWorker
from rookery.launchers.ray.words import Look, Match, Order, Seen
from rookery.launchers.ray.worker import Birth, End, Glance
from rookery.worker.progress import DOING, LONG_BEGINNINGS, Progress, read_progress
from tests.conftest import wait_until

RUN = "a-run"
OURS = Birth(7, "10.0.0.3", "node", "0")


class Actor:
    """A handle. What it is asked stays open until the test answers."""

    def __init__(self) -> None:
        self.asked: dict[str, Future[bytes]] = {}
        self.told: list[tuple[Any, ...]] = []
        self.is_killed = False

    def __getattr__(self, name: str) -> Call:
        return Call(self, name)

    def say(self, name: str, message: Any) -> None:
        self.asked[name].set_result(msgspec.msgpack.encode(message))


class Call:
    """A method of a handle, and the reference that it answers with."""

    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *arguments: Any) -> Call:
        self._actor.told.append((self._name, *arguments))
        return self

    def future(self) -> Future[bytes]:
        asked = self._actor.asked
        if self._name not in asked or asked[self._name].done():
            asked[self._name] = Future()
        return asked[self._name]


class Cluster:
    """A driver that minds what it places here."""

    def __init__(self) -> None:
        self.driver = Driver("rookery", {}, is_client=True)
        self.driver._worker_class = self
        self.options_: list[dict[str, Any]] = []
        self.actors: list[Actor] = []
        self.refuses: Exception | None = None
        self._thread = threading.Thread(target=self.driver._mind)
        self._thread.start()

    def options(self, **options: Any) -> Cluster:
        self.options_.append(options)
        return self

    def remote(self, *_: Any) -> Actor:
        if self.refuses is not None:
            raise self.refuses
        self.actors.append(Actor())
        return self.actors[-1]

    def match(self, *names: str, run: str = RUN, **options: Any) -> None:
        orders = [Order(name, "actor", 0, 1, b"briefing", **options) for name in names]
        self.driver._answer(Match(run, orders))

    def born(self, actor: Actor) -> None:
        """And asked to work."""
        actor.say("born", OURS)
        wait_until(lambda: "work" in actor.asked, "its work", 10)

    def ended(self, name: str, run: str = RUN) -> Seen:
        """When it has."""

        def found() -> Seen | None:
            seen: list[Seen] = self.driver._answer(Look(run))
            return next((s for s in seen if s.name == name and s.code is not None), None)

        assert self._thread.is_alive()
        end: Seen = wait_until(found, f"the end of {name}", 10)
        return end

    def close(self) -> None:
        self.driver._over.set()
        self._thread.join(10)
        assert not self._thread.is_alive()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr("ray.kill", lambda actor: setattr(actor, "is_killed", True))
    monkeypatch.setattr("rookery.launchers.ray.driver.MIND_S", 0.01)
    monkeypatch.setattr("rookery.launchers.ray.placed.version", lambda _: OURS.version)
    made = Cluster()
    yield made
    made.close()


def kinds_of(error: type[Exception]) -> Iterator[type[Exception]]:
    yield error
    for kind in error.__subclasses__():
        yield from kinds_of(kind)


def raised(kind: type[Exception], text: str = "it broke") -> Exception:
    """Without what each one's constructor wants to know."""
    plain = {"__init__": lambda self: None, "__str__": lambda self: text}
    error: Exception = type(kind.__name__, (kind,), plain)()
    return error


@pytest.mark.parametrize("kind", list(kinds_of(RayError)), ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("call", ["born", "work"])
def test_whatever_ray_says_of_one_worker_is_its_end_and_others_are_minded(
    cluster: Cluster, kind: type[Exception], call: str
) -> None:
    cluster.match("actor-0.1", "actor-1.1")
    cluster.match("actor-0.1", run="another-run")
    first, *others = cluster.actors
    for actor in others if call == "born" else cluster.actors:
        cluster.born(actor)
    first.asked[call].set_exception(raised(kind))
    seen = cluster.ended("actor-0.1")
    assert seen.code and seen.reason
    for actor, run, name in zip(
        others, (RUN, "another-run"), ("actor-1.1", "actor-0.1"), strict=True
    ):
        actor.say("work", End(0, b""))
        assert cluster.ended(name, run).code == 0


REFUSED = [ValueError("no such label"), TypeError("1 is no text"), OverflowError("too many")]


@pytest.mark.parametrize("error", REFUSED, ids=lambda error: type(error).__name__)
def test_what_ray_refuses_to_place_is_told_once_and_others_are_placed(
    cluster: Cluster, error: Exception
) -> None:
    cluster.refuses = error
    cluster.match("actor-0.1")
    assert cluster.ended("actor-0.1") == Seen(
        "actor-0.1", code=1, reason=f"placement.actor: {error}", final=True
    )
    cluster.refuses = raised(RayError)
    cluster.match("actor-1.1")
    assert cluster.ended("actor-1.1").reason.endswith("it broke")
    cluster.refuses = None
    cluster.match("actor-2.1")
    assert len(cluster.actors) == 1


def test_a_worker_of_another_version_is_asked_for_nothing_that_it_may_not_know(
    cluster: Cluster,
) -> None:
    cluster.match("actor-0.1")
    (actor,) = cluster.actors
    assert [name for name, *_ in actor.told] == ["born"]
    actor.say("born", msgspec.structs.replace(OURS, version="1.2"))
    seen = cluster.ended("actor-0.1")
    assert seen.reason == (
        f"node 10.0.0.3 has Rookery 1.2, and this machine {OURS.version}: install the same on both"
    )
    assert seen.final and actor.is_killed
    assert [name for name, *_ in actor.told] == ["born"]


def test_a_full_disk_of_the_owner_costs_a_log_and_no_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "no directory").touch()
    cluster.match("actor-0.1", log=str(tmp_path / "no directory" / "log"))
    cluster.match("actor-1.1", log=str(tmp_path / "log"), run="another-run")
    for actor in cluster.actors:
        cluster.born(actor)
        wait_until(lambda actor=actor: "look" in actor.asked, "a look", 10)
        actor.say("look", Glance(log=b"said"))
    wait_until((tmp_path / "log").exists, "a log", 10)
    for actor, name, run in zip(
        cluster.actors, ("actor-0.1", "actor-1.1"), (RUN, "another-run"), strict=True
    ):
        actor.say("work", End(0, b"last words"))
        assert cluster.ended(name, run) == Seen(name, OURS.pid, OURS.host, 0)
    assert (tmp_path / "log").read_bytes() == b"saidlast words"


class AtOnce:
    """A pool that has done all that it is given."""

    def submit(self, work: Callable[[str], bool], node: str) -> Future[bool]:
        done: Future[bool] = Future()
        try:
            done.set_result(work(node))
        except RayError as error:
            done.set_exception(error)
        return done


class Watched:
    """One worker, and a clock that only moves when told."""

    def __init__(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.file, self.actor = 1000.0, file, Actor()
        self.node_answers: bool | Exception = False
        monkeypatch.setattr("rookery.launchers.ray.placed._knocks", AtOnce())
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr("rookery.launchers.ray.placed.time", clock)
        order = Order("actor-0.1", "actor", 0, 1, b"", progress=str(file))
        self.worker = PlacedWorker(order, self.actor, (), self._reaches)
        self.worker.take(msgspec.msgpack.encode(OURS))
        self.worker.look()

    def _reaches(self, node: str) -> bool:
        assert node == OURS.node
        if isinstance(self.node_answers, Exception):
            raise self.node_answers
        return self.node_answers

    def answer(self, glance: Glance) -> None:
        self.actor.say("look", glance)
        self.worker.look()

    def go_on(self, seconds: float, error: Exception | None = None) -> None:
        """The driver looks all the time, and hears nothing but an error."""
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if error is not None and not self.actor.asked["look"].done():
                self.actor.asked["look"].set_exception(error)
            self.worker.look()

    @property
    def progress(self) -> Progress:
        found = read_progress(self.file)
        assert found is not None
        return found


@pytest.fixture
def watched(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    made = Watched(tmp_path / "progress", monkeypatch)
    yield made
    made.worker.forget()


@pytest.mark.parametrize("error", [None, raised(ActorUnavailableError)], ids=["mute", "refused"])
@pytest.mark.parametrize("was", [word for word in DOING if word not in LONG_BEGINNINGS])
def test_a_worker_that_does_not_answer_is_silent_whatever_it_was_doing(
    watched: Watched, was: str, error: Exception | None
) -> None:
    watched.answer(Glance(7, was, same_s=20.0, silent_s=1.0, known=True))
    before = watched.progress
    watched.go_on(UNANSWERED_S - 0.5, error)
    assert watched.progress == before
    watched.go_on(1.0, error)
    found, vigil = watched.progress, Vigil(15.0, 60.0)
    assert found == dataclasses.replace(before, doing="out of reach")
    silences = [vigil.judge(found, False, found.beat + silent_s) for silent_s in (14.0, 15.0)]
    assert [silence is not None and silence.due for silence in silences] == [False, True]

    watched.go_on(LOOK_S)
    watched.answer(Glance(8, "step", known=True))
    assert watched.progress.doing == "step"


@pytest.mark.parametrize("answers", [True, raised(RayError)], ids=["it does", "nobody knows"])
def test_a_worker_that_is_too_busy_to_answer_has_its_deadline_while_its_node_answers(
    watched: Watched, answers: bool | Exception
) -> None:
    watched.node_answers = answers
    watched.answer(Glance(7, "step", known=True))
    watched.go_on(100.0)
    assert watched.progress.doing == "step"
    watched.node_answers = False
    watched.go_on(LOOK_S + 0.5)
    assert watched.progress.doing == "out of reach"
    watched.node_answers = True
    watched.go_on(LOOK_S + 0.5)
    assert watched.progress.doing == "step"


@pytest.mark.parametrize("was", LONG_BEGINNINGS)
def test_a_worker_that_is_only_beginning_may_take_its_time_to_answer(
    watched: Watched, was: str
) -> None:
    watched.answer(Glance(1, was, known=True))
    watched.go_on(100.0)
    assert watched.progress.doing == was


def test_a_driver_that_was_held_up_itself_calls_nobody_out_of_reach(watched: Watched) -> None:
    watched.answer(Glance(1, "step", known=True))
    watched.now += 60.0
    watched.go_on(UNANSWERED_S - 0.5)
    assert watched.progress.doing == "step"
    watched.go_on(1.0)
    assert watched.progress.doing == "out of reach"
