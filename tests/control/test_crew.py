"""The controller and the learners of one run: they begin together and end together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rookery.config.reading import build
from rookery.control.controller import Controller
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.envs.registry import describe
from rookery.launchers import Observed, WorkerSpec
from rookery.messages import Command, ScaleLearner, StartRun
from rookery.worker import FENCED, LEFT_ALONE

PID = 4242


class Stage:
    """A launcher whose workers live until a test says how they ended."""

    def __init__(self) -> None:
        self.living: list[str] = []
        self.asked: set[str] = set()  # to stop
        self._ended: dict[str, int] = {}

    def apply(self, specs: Mapping[str, WorkerSpec]) -> None:
        self.asked = {name for name in self.living if name not in specs}
        self.living += [n for n in specs if n not in self.living and n not in self._ended]

    def observe(self) -> dict[str, Observed]:
        ended, self._ended = self._ended, {}
        seen = {name: Observed(PID, None) for name in self.living}
        return seen | {name: Observed(PID, code) for name, code in ended.items()}

    def work(self, seconds: float) -> None: ...

    def close(self) -> None: ...

    def end(self, name: str, code: int) -> None:
        self.living.remove(name)
        self._ended[name] = code

    @property
    def learners(self) -> list[str]:
        return sorted(name for name in self.living if name.startswith("learner-"))


class Theatre:
    def __init__(self, path: Path) -> None:
        self.home = Home(path / "home")
        config = build(
            {
                "environment": {"id": "CartPole-v1"},
                "learner": {"count": 2, "max_count": 4},
                "actors": {"envs_per_actor": 32},
                "algorithm": {"minibatch_size": 256},
                "restarts": {"backoff_s": 0},
            }
        )
        self.run = self.home.create(config, describe("CartPole-v1", {}), "ann")
        self.stage = Stage()
        self.controller = Controller(self.home, self.run, config, self.stage)
        self.home.send(StartRun(run=self.run))
        self._lease = self.home.lease(self.run)
        self._lease.__enter__()
        self.controller.begin()
        self.steps()

    def steps(self, count: int = 2) -> None:
        for _ in range(count):
            self.controller.step()

    def ask(self, command: Command) -> RunState:
        self.home.send(command)
        self.steps()
        return self.state

    @property
    def state(self) -> RunState:
        return self.home.state(self.run)

    def close(self) -> None:
        self.controller.close()
        self._lease.__exit__(None, None, None)
        self.home.close()


@pytest.fixture
def theatre(tmp_path: Path) -> Iterator[Theatre]:
    found = Theatre(tmp_path)
    yield found
    found.close()


def test_all_learners_are_started_and_know_how_many_they_are(theatre: Theatre) -> None:
    assert theatre.stage.learners == ["learner-0.1", "learner-1.1"]
    assert theatre.state.orders.learners == 2


def test_when_one_dies_the_others_go_before_all_come_back(theatre: Theatre) -> None:
    stage = theatre.stage
    stage.end("learner-1.1", -9)
    theatre.steps()
    assert stage.learners == ["learner-0.1"] and stage.asked == {"learner-0.1"}
    stage.end("learner-0.1", LEFT_ALONE)
    theatre.steps()
    assert stage.learners == ["learner-0.2", "learner-1.2"] and not stage.asked
    workers = theatre.state.workers
    assert (workers["learner-1"].deaths, workers["learner-0"].deaths) == (1, 0)
    assert (workers["learner-1"].restarts, workers["learner-0"].restarts) == (1, 0)
    assert theatre.state.status == "running"


def test_whoever_is_left_alone_may_be_seen_first(theatre: Theatre) -> None:
    theatre.stage.end("learner-0.1", LEFT_ALONE)
    theatre.stage.end("learner-1.1", -9)
    theatre.steps()
    assert theatre.stage.learners == ["learner-0.2", "learner-1.2"]


@pytest.mark.parametrize("count", [1, 4])
def test_another_number_is_another_crew(theatre: Theatre, count: int) -> None:
    stage = theatre.stage
    state = theatre.ask(ScaleLearner(run=theatre.run, count=count))
    assert state.learners == count and stage.asked == {"learner-0.1", "learner-1.1"}
    stage.end("learner-0.1", 0)
    theatre.steps()
    assert stage.learners == ["learner-1.1"]  # none begins before all have ended
    stage.end("learner-1.1", 0)
    theatre.steps()
    assert stage.learners == [f"learner-{index}.2" for index in range(2)][:count] + [
        f"learner-{index}.1" for index in range(2, count)
    ]


def test_a_number_that_cannot_share_the_batches_changes_nothing(theatre: Theatre) -> None:
    """3 does not divide 32 lanes; 8 is over the limit."""
    for count in (3, 8):
        assert theatre.ask(ScaleLearner(run=theatre.run, count=count)).learners == 2
    assert not theatre.stage.asked


def test_followers_have_nobody_to_follow_once_another_has_the_run(theatre: Theatre) -> None:
    theatre.stage.end("learner-0.1", FENCED)
    theatre.steps()
    assert theatre.stage.asked == {"learner-1.1"}
    theatre.stage.end("learner-1.1", LEFT_ALONE)
    theatre.steps()
    assert theatre.stage.learners == []
