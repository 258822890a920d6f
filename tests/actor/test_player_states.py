"""What a player carries between steps is its seat's own, begins with the episode, and is recorded.

The player of these tests counts its turns from `FIRST` on and gives the count as its
log-probability, so every row says which state it was decided with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from rookery.actor.lineup import FixedLineup
from rookery.actor.loop import Admitted
from rookery.actor.packing import Turns
from rookery.actor.rollouts.compiled import CompiledRollout
from rookery.actor.rollouts.stepped import SteppedRollout
from rookery.actor.rollouts.table import Table
from rookery.actor.rollouts.table_compiled import CompiledTableRollout
from rookery.actor.rollouts.table_rollout import TableRollout
from rookery.envs import SOLO_SEAT
from rookery.envs.gymnasium.environment import GymnasiumEnvironment
from rookery.envs.jax.environment import register_pytrees
from rookery.envs.registry import make, make_compiled
from rookery.messages import WeightsVersion
from rookery.messages.steps import Steps
from rookery.players import Decision
from rookery.players.member import Member
from rookery.testing.envs import CountingCompiled, CountingEnv
from rookery.worker.policies import Layout

FIRST = 10.0  # not 0: a state that was never set would show
SLOTS, ROWS = 3, 11


@dataclass(frozen=True)
class TurnCounter:
    """Plays the first legal action and remembers how often."""

    xp: Any = np
    kind: str = "policy"

    def initial_state(self, lanes: int) -> dict[str, Any]:
        return {"turns": self.xp.full((lanes, 2), FIRST, np.float32)}

    def act(self, params: Any, observation: Any, mask: Any, state: Any, key: Any) -> Decision:
        turns = state["turns"]
        action = self.xp.zeros(len(turns), np.int32)
        if mask is not None:
            action = mask.argmax(-1).astype(np.int32)
        return Decision(action, action, turns[:, 0], {"turns": turns + 1})


def stepped() -> Any:
    env = GymnasiumEnvironment("counting", SLOTS, {"length": 7}, CountingEnv)
    return SteppedRollout(env, TurnCounter(), SOLO_SEAT, ROWS, np.random.default_rng(0), 0)


def compiled() -> Any:
    register_pytrees()
    return CompiledRollout(CountingCompiled(7), TurnCounter(jnp), SOLO_SEAT, ROWS, SLOTS, 0)


def member(xp: Any = np) -> Member:
    return Member("main", TurnCounter(xp), "main", policy="main")


def blank(spec: Any, player: TurnCounter) -> dict[str, Turns]:
    state = {leaf: np.asarray(x) for leaf, x in player.initial_state(0).items()}
    return {"main": Turns.none(spec, spec.action.n, state)}


def table() -> Any:
    env = make("pettingzoo:tictactoe_v3", SLOTS)
    both = member()
    rollout = Table(env, FixedLineup([both, both]), np.random.default_rng(0), 0)
    layout = {"main": Layout(ROWS, SLOTS, (0, 1), together=False)}
    spec = next(iter(env.spec.seats.values()))
    return TableRollout(rollout, layout, blank(spec, TurnCounter()), layout["main"].env_steps)


def compiled_table() -> Any:
    env = make_compiled("pgx:tic_tac_toe")
    both = member(jnp)
    layout = {"main": Layout(ROWS, SLOTS, (0, 1), together=False)}
    spec = next(iter(env.spec.seats.values()))
    made = blank(spec, TurnCounter())
    lineup = FixedLineup([both, both])
    return CompiledTableRollout(env, lineup, layout, made, layout["main"].env_steps, SLOTS, 0)


ROLLOUTS = [stepped, compiled, table, compiled_table]
everywhere = pytest.mark.parametrize("make_rollout", ROLLOUTS, ids=lambda f: f.__name__)


def play(rollout: Any, fragments: int) -> list[Steps]:
    admitted = Admitted(WeightsVersion(1, 0), {"main": {}})
    return [rollout(admitted).steps["main"] for _ in range(fragments)]


@everywhere
def test_the_state_is_there_where_a_trajectory_begins_and_nowhere_else(
    make_rollout: Callable[[], Any],
) -> None:
    went_on = 0
    for steps in play(make_rollout(), 4):
        state, begins = steps.state["turns"], steps.begins
        assert state.shape == (*steps.valid.shape, 2) and state.dtype == np.float32
        np.testing.assert_array_equal(state[begins], np.stack([steps.log_prob[begins]] * 2, -1))
        assert not state[~begins].any()
        went_on += int((state[begins] > FIRST).any())
    assert went_on, "a fragment began in the middle of an episode"


@everywhere
def test_a_state_is_its_seats_own_and_begins_with_each_episode(
    make_rollout: Callable[[], Any],
) -> None:
    counted: dict[tuple[int, int], float] = defaultdict(lambda: FIRST)
    episodes = 0
    for steps in play(make_rollout(), 6):
        for lane, t in np.argwhere(steps.valid.T).tolist():
            at = (lane, int(steps.seat[t, lane]))
            assert steps.log_prob[t, lane] == counted[at]
            counted[at] += 1
            if steps.terminated[t, lane]:
                counted[at] = FIRST
                episodes += 1
    assert episodes >= 2 * SLOTS


@everywhere
def test_a_restored_rollout_goes_on_with_the_states_it_had(make_rollout: Callable[[], Any]) -> None:
    first, second = make_rollout(), make_rollout()
    play(first, 2)
    saved = {name: np.array(array) for name, array in first.save().items()}
    second.restore(saved)
    for one, other in zip(play(first, 2), play(second, 2), strict=True):
        np.testing.assert_array_equal(one.log_prob, other.log_prob)
        np.testing.assert_array_equal(one.state["turns"], other.state["turns"])
