"""Every row says which kind of player decided it; only the policy's own have a probability."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from rookery.actor.lineup import FixedLineup
from rookery.actor.loop import Admitted, Played
from rookery.actor.packing import Turns
from rookery.actor.rollouts.stepped import SteppedRollout
from rookery.actor.rollouts.table import RecordedSeats, Table
from rookery.actor.rollouts.table_compiled import CompiledTableRollout
from rookery.actor.rollouts.table_rollout import TableRollout
from rookery.algorithms.distributions import distribution_for
from rookery.envs import SOLO_SEAT
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.registry import make, make_compiled
from rookery.messages import WeightsVersion
from rookery.players import Decision, GameOver, PlayerAnswer, Question
from rookery.players.member import Member
from rookery.players.scripts.any_game import FirstLegalPlayer
from rookery.spaces import Continuous
from rookery.testing.envs import CountingEnv
from rookery.worker.policies import Layout

SLOTS, ROWS = 2, 14
NOW = Admitted(WeightsVersion(1, 3), {"main": {}})


@dataclass(frozen=True)
class HelpedPolicy:
    """A policy for which, at some turns, a person or a script decides."""

    kind: str = "policy"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {"turns": np.zeros(lanes, np.int64)}

    def act(self, params: Any, observation: Any, mask: Any, state: Any, key: Any) -> Decision:
        turns = state["turns"]
        action = np.zeros(len(turns), np.int32)
        if mask is not None:
            action = mask.argmax(-1).astype(np.int32)
        helped = [("", "human", "script")[int(turn) % 3] for turn in turns]
        known = np.full(len(turns), -0.5, np.float32)
        return Decision(action, action, known, {"turns": turns + 1}, helped)


def lane_kinds(played: Played, lane: int) -> list[str]:
    steps = played.steps["main"]
    return [played.players[n] for n in steps.player[:, lane][steps.valid[:, lane]]]


def test_a_stand_ins_rows_are_recorded_with_its_kind_and_without_a_probability() -> None:
    env = GymnasiumEnvironment("counting", SLOTS, {"length": 4}, CountingEnv)
    rollout = SteppedRollout(env, HelpedPolicy(), SOLO_SEAT, 10, np.random.default_rng(0), 0)
    played = rollout(NOW)
    steps = played.steps["main"]
    assert played.players == ("policy", "human", "script")
    assert lane_kinds(played, 0) == ["policy", "human", "script", "policy"] * 2
    own = steps.player == 0
    assert (steps.log_prob[own] == -0.5).all() and np.isnan(steps.log_prob[~own]).all()
    assert steps.known.sum() == (own & steps.valid).sum()
    begins = steps.begins[:, 0]
    assert begins[:4].all() and not begins[4] and begins[5:9].all(), "an edge wherever it changes"


def both_seats(rows: int = ROWS) -> Layout:
    return Layout(rows, SLOTS, (0, 1), together=False)


def against_a_script(record: dict[str, RecordedSeats] | None, player: Any = None) -> TableRollout:
    env = make("pettingzoo:tictactoe_v3", SLOTS)
    spec = next(iter(env.spec.seats.values()))
    policy = Member("main", FirstLegalPlayer(spec, kind="policy"), "main", policy="main")
    other = Member("other", player or FirstLegalPlayer(spec), "other")
    table = Table(env, FixedLineup([policy, other]), np.random.default_rng(0), 0, record=record)
    layout = {"main": both_seats()}
    return TableRollout(table, layout, {"main": Turns.none(spec, 9)}, layout["main"].env_steps)


def test_by_default_only_the_policys_own_rows_are_recorded() -> None:
    rollout = against_a_script(None)
    for _ in range(3):
        played = rollout(NOW)
        assert played.players == ("policy",)
        assert not played.steps["main"].seat.any()


def test_seats_that_others_hold_are_recorded_where_that_is_asked_for() -> None:
    rollout = against_a_script({"main": RecordedSeats((1,))})
    kinds = []
    for _ in range(3):
        played = rollout(NOW)
        steps = played.steps["main"]
        others = steps.valid & (steps.seat == 1)
        np.testing.assert_array_equal(steps.player == 1, others)
        assert others.any() and np.isnan(steps.log_prob[others]).all()
        np.testing.assert_array_equal(steps.known, steps.valid & (steps.seat == 0))
        legal = np.take_along_axis(steps.mask[:-1], steps.action[..., None], -1)[..., 0]
        assert legal[others].all()
        kinds += lane_kinds(played, 0)
    assert played.players == ("policy", "script")
    assert {"policy", "script"} == set(kinds)
    saved = {name: np.array(array) for name, array in rollout.save().items()}
    again = against_a_script({"main": RecordedSeats((1,))})
    again.restore(saved)
    one, other = rollout(NOW), again(NOW)
    assert one.players == other.players
    np.testing.assert_array_equal(one.steps["main"].player, other.steps["main"].player)


class Unsure:
    """Answers at once, but its fallback and a stand-in answer as often."""

    kind = "engine"

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, question: Question) -> Future[PlayerAnswer]:
        self.asked += 1
        answer: Future[PlayerAnswer] = Future()
        action = np.flatnonzero(question.mask)[0]
        decided_by: Any = ("player", "fallback", "stand-in")[self.asked % 3]
        answer.set_result(PlayerAnswer(action, decided_by=decided_by))
        return answer

    def game_over(self, over: GameOver) -> None:
        """It takes no interest."""

    def close(self) -> None:
        """There is nothing to end."""


def test_where_another_answered_for_a_deferred_player_the_row_says_so() -> None:
    rollout = against_a_script({"main": RecordedSeats((1,))}, Unsure())
    found = [rollout(NOW) for _ in range(3)]
    assert set(found[-1].players) == {"policy", "engine", "fallback", "stand-in"}
    kinds = [kind for played in found for lane in range(SLOTS) for kind in lane_kinds(played, lane)]
    assert min(kinds.count(kind) for kind in ("engine", "fallback", "stand-in")) > 1


def test_the_rewards_of_recorded_rows_are_those_of_their_seat() -> None:
    rollout = against_a_script({"main": RecordedSeats((1,))})
    totals = {0: 0.0, 1: 0.0}
    games = []
    for _ in range(4):
        played = rollout(NOW)
        steps, games = played.steps["main"], games + list(played.games)
        for seat in totals:
            totals[seat] += float(steps.reward[steps.seat == seat].sum())
    assert games and totals[0] == -totals[1] != 0


def test_a_compiled_table_records_the_same() -> None:
    env = make_compiled("pgx:tic_tac_toe")
    spec = next(iter(env.spec.seats.values()))
    policy = Member("main", FirstLegalPlayer(spec, jnp, kind="policy"), "main", policy="main")
    other = Member("other", FirstLegalPlayer(spec, jnp), "other")
    layout = {"main": both_seats()}
    rollout = CompiledTableRollout(
        env,
        FixedLineup([policy, other]),
        layout,
        {"main": Turns.none(spec, 9)},
        layout["main"].env_steps,
        SLOTS,
        0,
        record={"main": (1,)},
    )
    for _ in range(2):
        played = rollout(NOW)
        steps = played.steps["main"]
        assert played.players == ("policy", "script")
        np.testing.assert_array_equal(steps.player == 1, steps.valid & (steps.seat == 1))
        assert (steps.player == 1).any()
        np.testing.assert_array_equal(steps.known, steps.valid & (steps.seat == 0))


@pytest.mark.parametrize("gaussian", ["squashed", "clipped"])
def test_an_action_from_outside_is_stored_as_the_policy_would(gaussian: str) -> None:
    space = Continuous((2, 1), (-1.0, 2.0), (1.0, 6.0))
    act = distribution_for(space, gaussian)
    played = np.array([[[0.5], [3.0]], [[-1.0], [6.0]]], np.float32)
    stored = act.from_environment(np, played)
    assert stored.shape == (2, 2) and np.isfinite(stored).all()
    np.testing.assert_allclose(act.to_environment(np, stored), played, atol=1e-5)
