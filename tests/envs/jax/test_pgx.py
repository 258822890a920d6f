"""Pgx games: seats in the order of play, and the same game as in PettingZoo."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rookery.envs import SOLO_SEAT, SeatView
from rookery.envs.jax.environment import SteppedCompiled
from rookery.envs.jax.gymnax import GymnaxEnvironment
from rookery.envs.jax.pgx import PgxEnvironment
from rookery.envs.registry import describe, make
from rookery.errors import ConfigError, MaskError, UnknownName
from rookery.spaces import Categorical
from rookery.testing.envs import CountingCompiled

Views = dict[str, SeatView]


@functools.cache
def compiled(id: str) -> PgxEnvironment:
    return PgxEnvironment(id)


@functools.cache
def playing(id: str, slots: int) -> SteppedCompiled:
    """Compiled once for all tests; they reset it."""
    return SteppedCompiled(compiled(id), slots)


def mover(views: Views, slot: int = 0) -> tuple[int, SeatView]:
    """Number and view of the seat that is to act."""
    turns = [bool(v.turn is not None and v.turn[slot]) for v in views.values()]
    assert sum(turns) == 1
    return turns.index(True), list(views.values())[turns.index(True)]


def act(env: Any, actions: Any) -> Views:
    """The same action by every seat: only whoever has the turn plays it."""
    chosen = np.broadcast_to(np.asarray(actions), (env.slots,))
    views: Views = env.step({seat: chosen for seat in env.spec.seats})
    return views


# --- recorded games ----------------------------------------------------------------------------

# Columns played, the rewards of both seats, and the final board from the first seat's side.
CONNECT_FOUR = [
    (
        [0, 1, 0, 1, 0, 1, 0],
        [1.0, -1.0],
        [".......", ".......", "X......", "XO.....", "XO.....", "XO....."],
    ),
    (  # the second seat wins along a rising diagonal
        [1, 0, 2, 1, 2, 2, 3, 3, 3, 3],
        [-1.0, 1.0],
        [".......", ".......", "...O...", "..OX...", ".OXO...", "OXXX..."],
    ),
    (  # a draw, on a full board
        [int(column) for column in "205462013421643333110151502003466645652542"],
        [0.0, 0.0],
        ["XOOOXOX", "OOXOXOO", "OOXXXOX", "XXXOOXO", "XOOXOXX", "OOXXOXX"],
    ),
]


def drawn(planes: np.ndarray, seat: int) -> str:
    """What a seat sees, with the first seat's pieces as X."""
    own, other = "XO" if seat == 0 else "OX"
    rows = planes.reshape(-1, 2).tolist()
    return "".join(own if mine else other if theirs else "." for mine, theirs in rows)


@pytest.mark.parametrize(("columns", "rewards", "board"), CONNECT_FOUR)
def test_connect_four_is_the_same_game_in_both_libraries(
    columns: list[int], rewards: list[float], board: list[str]
) -> None:
    one, two = playing("pgx:connect_four", 1), make("pettingzoo:connect_four_v3", 1)
    for seed in range(4):  # Pgx gives the first move to either of its players
        left, right = one.reset(seed), two.reset(seed)
        for number, column in enumerate(columns):
            (seat, seen), (other_seat, other_seen) = mover(left), mover(right)
            assert seat == other_seat == number % 2
            np.testing.assert_array_equal(
                seen.observation[""], other_seen.observation[""], strict=True
            )
            np.testing.assert_array_equal(seen.mask, other_seen.mask)
            before = drawn(seen.observation[""][0], seat)
            left, right = act(one, column), act(two, column)
        for views in (left, right):
            assert all(v.terminated[0] for v in views.values())
            assert [float(v.reward[0]) for v in views.values()] == rewards
        # Only the last move is missing from what its player saw.
        final = "".join(board)
        changed = [at for at in range(42) if before[at] != final[at]]
        assert [at % 7 for at in changed] == columns[-1:]
        assert (before[changed[0]], final[changed[0]]) == (".", "XO"[seat])


def test_tic_tac_toe_is_the_same_game_in_both_libraries() -> None:
    # PettingZoo draws its squares down the columns, but shows them to players as Pgx does: square n
    # at row n // 3.
    one, two = playing("pgx:tic_tac_toe", 1), make("pettingzoo:tictactoe_v3", 1)
    for squares, rewards in (
        ([4, 0, 3, 5, 2, 6, 1, 7, 8], [0.0, 0.0]),
        ([0, 3, 1, 4, 2], [1.0, -1.0]),
        ([1, 0, 2, 4, 3, 8], [-1.0, 1.0]),
    ):
        left, right = one.reset(0), two.reset(0)
        board = "." * 9
        for number, square in enumerate(squares):
            (seat, seen), (other_seat, other_seen) = mover(left), mover(right)
            assert seat == other_seat == number % 2
            np.testing.assert_array_equal(
                seen.observation[""], other_seen.observation[""], strict=True
            )
            np.testing.assert_array_equal(seen.mask, other_seen.mask)
            assert drawn(seen.observation[""][0], seat) == board
            board = board[:square] + "XO"[seat] + board[square + 1 :]
            left, right = act(one, square), act(two, square)
        for views in (left, right):
            assert all(v.terminated[0] for v in views.values())
            assert [float(v.reward[0]) for v in views.values()] == rewards


@pytest.mark.parametrize(
    ("pgx", "pettingzoo"),
    [
        ("pgx:connect_four", "pettingzoo:connect_four_v3"),
        ("pgx:tic_tac_toe", "pettingzoo:tictactoe_v3"),
    ],
)
def test_a_network_sees_the_same_leaf_in_both_libraries(pgx: str, pettingzoo: str) -> None:
    ours, theirs = compiled(pgx).spec, describe(pettingzoo)
    assert list(ours.seats.values()) == list(theirs.seats.values())
    (leaf,) = ours.seats["player_0"].observation
    assert (leaf.kind, leaf.dtype, leaf.low, leaf.high) == ("box", "uint8", 0, 1)
    assert not ours.simultaneous and ours.compiled and ours.can_save


# --- seats -------------------------------------------------------------------------------------


def test_the_first_seat_moves_first_whichever_player_pgx_lets_begin() -> None:
    env = playing("pgx:kuhn_poker", 32)
    views = env.reset(0)
    begins = np.asarray(env._played[1][0].current_player)
    assert 0 < begins.sum() < 32  # both of its players
    turn = views["player_0"].turn
    assert turn is not None and turn.all() and not views["player_1"].turn.any()  # type: ignore[union-attr]
    act(env, BET)
    views = act(env, FOLD)
    assert views["player_0"].reward.tolist() == [1.0] * 32  # whatever the cards
    assert views["player_1"].reward.tolist() == [-1.0] * 32
    assert views["player_0"].terminated.all() and views["player_1"].terminated.all()
    assert not any(v.turn.any() for v in views.values())  # type: ignore[union-attr]
    views = act(env, BET)
    assert all(v.reset.all() and not v.reward.any() for v in views.values())
    assert views["player_0"].turn.all()  # type: ignore[union-attr]


BET, FOLD = 0, 1  # in Kuhn poker


def test_cards_are_dealt_anew_in_every_slot_and_episode() -> None:
    env = playing("pgx:kuhn_poker", 32)
    deals = [env.reset(0)["player_0"].observation[""].argmax(axis=1)]
    for _ in range(3):
        act(env, BET)
        act(env, FOLD)
        deals.append(act(env, BET)["player_0"].observation[""].argmax(axis=1))
    assert all(len(set(deal.tolist())) == 3 for deal in deals)
    assert len({deal.tobytes() for deal in deals}) == 4


def test_an_illegal_action_never_reaches_the_game() -> None:
    env = playing("pgx:tic_tac_toe", 2)
    env.reset(0)
    act(env, [4, 5])
    with pytest.raises(MaskError, match=r"'player_1' of slot 1 .* action \[5\]"):
        act(env, [0, 5])
    act(env, [0, 4])  # nothing had been played


def test_views_share_what_the_mover_sees() -> None:
    views = playing("pgx:tic_tac_toe", 2).reset(0)
    assert views["player_0"].observation[""] is views["player_1"].observation[""]
    assert views["player_0"].reward is not views["player_1"].reward


# --- compiled ----------------------------------------------------------------------------------


def test_a_whole_rollout_is_one_scan() -> None:
    env, slots = compiled("pgx:tic_tac_toe"), 64

    @jax.jit
    def rollout(key: Any) -> Any:
        def body(carry: Any, key: Any) -> Any:
            state, last = carry
            choose_key, step_key = jax.random.split(key)
            logits = jnp.where(last.mask, 0.0, -jnp.inf)
            action = jax.random.categorical(choose_key, logits)
            state, step = jax.vmap(env.step)(jax.random.split(step_key, slots), state, action)
            return (state, step), (last, step)

        first = jax.vmap(env.reset)(jax.random.split(key, slots))
        return jax.lax.scan(body, first, jax.random.split(key, 60))[1]

    last, step = jax.tree.map(np.asarray, rollout(jax.random.key(0)))
    np.testing.assert_array_equal(step.reset, last.terminated)
    assert last.terminated.sum() > slots * 4
    assert (step.reward.sum(axis=-1) == 0).all() and step.reward.shape == (60, slots, 2)
    assert not step.reward[step.reset].any()
    # Between two moves of a game the turn passes; every game begins with the first seat.
    going = ~(step.reset | step.terminated)
    assert (step.seat[going] == 1 - last.seat[going]).all() and not step.seat[step.reset].any()
    # Whoever made the last move wins or draws.
    rows = step.terminated
    gained = np.take_along_axis(step.reward[rows], last.seat[rows][:, None], axis=1)
    assert set(gained.reshape(-1).tolist()) == {0.0, 1.0}
    share = float((step.reward[rows][:, 0] == 1).mean())
    assert 0.5 < share < 0.67  # the first of two random players wins 58.5 % of games


@pytest.mark.parametrize("id", ["pgx:connect_four", "pgx:2048", "pgx:kuhn_poker", "pgx:backgammon"])
def test_the_types_of_a_state_never_change(id: str) -> None:
    env, key = compiled(id), jax.random.key(0)
    begun = jax.eval_shape(env.reset, key)
    stepped = jax.eval_shape(env.step, key, begun[0], jnp.zeros((), jnp.int32))

    def types(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)

    assert types(begun) == types(stepped)


@pytest.mark.soak
def test_a_game_for_one_is_like_any_compiled_environment() -> None:
    env = playing("pgx:2048", 3)
    spec = env.spec.seats[SOLO_SEAT]
    assert list(env.spec.seats) == [SOLO_SEAT] and env.spec.simultaneous
    assert spec.masked and spec.action == Categorical(4)
    view = env.reset(0)[SOLO_SEAT]
    assert view.turn is None and view.reward.shape == (3,)
    gained = 0.0
    for _ in range(40):
        assert view.mask is not None
        action = view.mask.argmax(axis=1)
        view = env.step({SOLO_SEAT: action})[SOLO_SEAT]
        gained += float(view.reward.sum())
    assert gained > 0


def test_slots_of_one_seat_can_wait_too() -> None:
    env = SteppedCompiled(CountingCompiled(length=2), 2)
    env.reset(0)
    actions, first = {SOLO_SEAT: np.zeros(2, np.int64)}, np.array([True, False])
    env.step(actions)
    env.step(actions, first)
    waited = env.step(actions, ~first)[SOLO_SEAT]  # the first slot has ended, and waits to begin
    assert waited.observation[""].argmax(axis=1).tolist() == [2, 2]
    assert waited.terminated.tolist() == [False, True] and waited.reward.tolist() == [0.0, 1.0]
    assert env.step(actions, first)[SOLO_SEAT].reset.tolist() == [True, False]


def test_minatar_has_the_leaf_that_gymnax_gives_it() -> None:
    ours = compiled("pgx:minatar-breakout").spec.seats[SOLO_SEAT]
    theirs = GymnaxEnvironment("gymnax:Breakout-MinAtar").spec.seats[SOLO_SEAT]
    assert ours == theirs and not ours.masked


# --- names and options -------------------------------------------------------------------------


def test_options_reach_the_constructor_and_the_others_stay() -> None:
    env = PgxEnvironment("pgx:go_9x9", {"komi": 5.5, "max_terminal_steps": 50})
    (leaf,) = env.spec.seats["player_0"].observation
    assert (leaf.kind, leaf.shape) == ("image", (9, 9, 17))
    assert env._env._game.komi == 5.5
    with pytest.raises(ConfigError, match="did you mean komi"):
        PgxEnvironment("pgx:go_9x9", {"komy": 5.5})


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="pgx:connect_four"):
        PgxEnvironment("pgx:conect_four")
