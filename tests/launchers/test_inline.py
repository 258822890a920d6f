"""An inline run: whoever is listed first, and however it waits, it goes on or stops when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rookery.actor.transport import ActorTransport
from rookery.checkpoints.checkpoint import Checkpoint, newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.config.live import changed
from rookery.config.reading import build
from rookery.control.context import open_context
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.envs.registry import register
from rookery.launchers.inline import take_turns
from rookery.learner.manifest import LearnerManifest
from rookery.learner.manifest import pending_fragments as pending
from rookery.messages import Event, LearnerOrders, RunEnded, UpdateSkipped
from rookery.messages import HyperparametersChanged as Changed
from rookery.testing.envs import CountingEnv
from rookery.worker import WorkerId

TEACHER: dict[str, Any] = {"policies": {"teacher": {}, "main": {}}, "train": ["main"]}
MOST_TURNS = 500


class Poisoned(CountingEnv):
    """Pays no number in the games that `poison` names, counted over all slots."""

    poison: frozenset[int] = frozenset()
    begun = 0

    def reset(self, **options: Any) -> Any:
        self.game, Poisoned.begun = Poisoned.begun, Poisoned.begun + 1
        return super().reset(**options)

    def step(self, action: np.int64) -> Any:
        seen, reward, *rest = super().step(action)
        return seen, np.nan if self.game in self.poison else reward, *rest


register("test-poisoned", Poisoned)


def turns(
    home: Home, asked_after: int = MOST_TURNS, game: str = "pettingzoo:tictactoe_v3", **values: Any
) -> tuple[int, list[int], list[Event]]:
    """How many turns a small run took, its exit codes, and what it told."""
    actors = {"envs_per_actor": 4, "rollout_steps": 16}
    small = {"environment": {"id": game}, "launcher": "inline", "actors": actors}
    config = build({**small, "stop": {"steps": 400}}, values)
    context = open_context(home, create_run(home, config))
    said: list[Event] = []
    object.__setattr__(context, "record", lambda *events: said.extend(events))
    codes: list[int | None] = []
    for code in take_turns(context, WorkerId("inline", 0, 1), lambda: len(codes) >= asked_after):
        codes.append(code)
        assert len(codes) < MOST_TURNS, "it hangs"
    return len(codes), [code for code in codes if code is not None], said


def ending(said: list[Event]) -> RunEnded:
    (found,) = (event for event in said if isinstance(event, RunEnded))
    return found


def skips(said: list[Event]) -> list[tuple[int, int]]:
    return [(e.update, e.count) for e in said if isinstance(e, UpdateSkipped)]


def last_checkpoint(home: Home) -> Checkpoint[LearnerManifest]:
    (run,) = home.states()
    found = newest_checkpoint(open_store(home.files(run).checkpoints), LearnerManifest)
    assert found is not None
    return found


def test_a_policy_that_does_not_learn_may_be_listed_first_and_have_a_league(tmp_path: Path) -> None:
    either = {"draw": [{"player": "teacher", "weight": 1}, {"league": "teacher", "weight": 1}]}
    seats = {"player_1": "main", "player_2": either}
    _, codes, said = turns(Home(tmp_path), **TEACHER, seats=seats)
    assert codes == [0] and ending(said).status == "finished"


def test_a_run_in_which_nobody_can_go_on_stops_when_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ActorTransport, "admit", lambda self: self._read(0.0))  # joins, no more
    played, codes, said = turns(Home(tmp_path), asked_after=5)
    assert played < 20 and codes == [0] and ending(said).status == "stopped"


@pytest.mark.parametrize("poison", [{30, 31, 70}, set(range(30, 10**6))], ids=["some", "all"])
def test_an_update_that_is_not_finite_is_skipped_and_several_in_a_row_are_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poison: set[int]
) -> None:
    monkeypatch.setattr(Poisoned, "poison", frozenset(poison))
    monkeypatch.setattr(Poisoned, "begun", 0)
    home, often = Home(tmp_path), {"every_updates": 10**6}
    _, codes, said = turns(home, game="test-poisoned", checkpoint=often)
    checkpoint = last_checkpoint(home)
    assert codes == [0]
    for name, array in checkpoint.arrays.items():
        if name.startswith("main/"):
            assert np.isfinite(array).all(), name
    ledger, end = checkpoint.manifest.ledger, ending(said)
    assert ledger.dropped["diverged"] > 0
    produced = sum(ledger.seen.values()) - sum(f.header.steps for _, f in pending(checkpoint))
    assert produced == ledger.trained + sum(ledger.dropped.values())
    if len(poison) == 3:
        assert end.status == "finished" and len(skips(said)) == 2
    else:
        assert end.status == "failed" and end.reason.startswith("update ")
        assert "the 3rd in a row: training diverged; lower" in end.reason
        assert end.updates == checkpoint.manifest.number == skips(said)[0][0] + 2


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_weights_that_are_finite_and_play_no_numbers_are_the_end_too(
    tmp_path: Path, algorithm: str
) -> None:
    """Their rows would pass for those of other players, and nothing would be trained for ever."""
    wild = {"kind": algorithm, "learning_rate": 1.0, "entropy_coef": 1.0}  # it deviates ever more
    game = "rookery.testing.envs:ContinuousBandit"
    _, codes, said = turns(Home(tmp_path), game=game, algorithm=wild, stop={"steps": 10**6})
    assert codes == [0] and ending(said).status == "failed"
    assert "the 3rd in a row: training diverged; lower" in ending(said).reason


RATE = "algorithm.learning_rate"
CHANGES = [{"steps": 100, "set": {RATE: 1e-3}}, {"steps": 200, "set": {RATE: 2e-3}}]

CHANGING: dict[str, Any] = {
    "environment": {"id": "CartPole-v1"},
    "launcher": "inline",
    "actors": {"envs_per_actor": 4, "rollout_steps": 16},
    "checkpoint": {"every_updates": 1},
    "stop": {"steps": 400},
    "changes": CHANGES,
}


def orders(revision: int, values: dict[str, float]) -> LearnerOrders:
    return LearnerOrders(revision=revision, paused=False, hyperparameters=values, checkpoints=0)


def life(home: Home, run: str, number: int, asked: LearnerOrders, killed_at: int) -> list[Any]:
    """One life of a run: what it told of its hyperparameters, with the steps trained by then."""
    context = open_context(home, run)
    told: list[Any] = []

    def record(*events: Event) -> None:
        told.extend((e.env_steps, e.values) for e in events if isinstance(e, Changed))

    object.__setattr__(context, "record", record)
    object.__setattr__(context, "orders", asked)
    work = take_turns(context, WorkerId("inline", 0, number), lambda: False)
    for _ in work:
        if told and told[-1][0] >= killed_at:
            break
    work.close()
    return told


@pytest.mark.parametrize("killed_at", [100, 200, 10**6])
def test_values_change_at_their_steps_whenever_a_run_is_killed(
    tmp_path: Path, killed_at: int
) -> None:
    home = Home(tmp_path)
    run = create_run(home, build(CHANGING))
    plain = orders(0, {})
    first = life(home, run, 1, plain, killed_at)
    told = first + (life(home, run, 2, plain, 10**6) if killed_at < 10**6 else [])
    config = home.config(home.state(run))
    assert all(values == changed(config, steps, {}) for steps, values in told)
    assert min(s for s, values in told if values[RATE] == 1e-3) in range(100, 200)
    assert min(s for s, values in told if values[RATE] == 2e-3) in range(200, 300)
    assert told[-1][1] == {RATE: 2e-3}


def test_a_command_goes_before_the_changes_of_a_config(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run = create_run(home, build(CHANGING))
    said = {RATE: 5e-3}
    told = life(home, run, 1, orders(1, said), 10**6)
    assert len(told) >= 2 and all(values == said for _, values in told)
