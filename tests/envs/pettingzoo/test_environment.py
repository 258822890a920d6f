"""PettingZoo games: who acts, what each seat is paid, how each part ends, and exact saves."""

from __future__ import annotations

import functools
import importlib
import io
import warnings
from typing import Any

import numpy as np
import pytest

from rookery.envs import Arrays, BatchedEnvironment, SeatView
from rookery.envs.pettingzoo.environment import PettingZooEnvironment
from rookery.envs.pettingzoo.replay import episode_seed
from rookery.envs.registry import make
from rookery.errors import EnvironmentFailed, InputError, MaskError
from rookery.spaces import Categorical, Continuous, MultiCategorical
from rookery.testing.games import ComingAndGoing, DwindlingGame

DWINDLING = "rookery.testing.games:DwindlingGame"
COMING = "rookery.testing.games:ComingAndGoing"
CONNECT_FOUR = "pettingzoo:connect_four_v3"
GAMES = [
    DWINDLING,
    COMING,
    CONNECT_FOUR,
    "pettingzoo:tictactoe_v3",
    "pettingzoo:simple_spread_v3",
    "pettingzoo:simple_tag_v3",
    "pettingzoo:rps_v2",
    "pgx:tic_tac_toe",
]
Views = dict[str, SeatView]
Actions = dict[str, np.ndarray]
SLOTS = 3


@functools.cache
def playing(id: str) -> BatchedEnvironment:
    """One environment per id for all tests: compiling Pgx's takes seconds. Tests reset it."""
    return make(id, SLOTS)


def turn_of(view: SeatView) -> np.ndarray:
    assert view.turn is not None
    return view.turn


def legal_actions(env: BatchedEnvironment, views: Views, rng: np.random.Generator) -> Actions:
    """Random legal actions of every seat, nonsense where it has no turn."""
    actions: Actions = {}
    for seat, view in views.items():
        head = env.spec.seats[seat].action
        if isinstance(head, Continuous):
            actions[seat] = rng.uniform(-1, 1, (env.slots, *head.shape)).astype(np.float32)
        elif isinstance(head, MultiCategorical):
            actions[seat] = rng.integers(0, head.sizes, (env.slots, len(head.sizes)))
        else:
            assert isinstance(head, Categorical)
            mask = np.ones((env.slots, head.n), bool) if view.mask is None else view.mask
            actions[seat] = (rng.random(mask.shape) * mask).argmax(axis=1)
        actions[seat][~turn_of(view)] = 99
    return actions


def play(
    env: BatchedEnvironment, views: Views, steps: int, seed: int = 0
) -> tuple[list[Views], list[Actions]]:
    """The views, the first included, and the actions between them."""
    rng = np.random.default_rng(seed)
    seen, played = [views], []
    for _ in range(steps):
        played.append(legal_actions(env, seen[-1], rng))
        seen.append(env.step(played[-1]))
    return seen, played


@pytest.mark.filterwarnings("ignore::UserWarning")  # its advice about spaces that differ
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own tests' imports
def test_our_own_games_keep_to_pettingzoos_interface() -> None:
    from pettingzoo.test import api_test, parallel_api_test

    api_test(DwindlingGame(), num_cycles=50)
    parallel_api_test(ComingAndGoing(), num_cycles=50)


# --- the contract ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("id", GAMES)
def test_random_play_keeps_the_contract(id: str, seed: int) -> None:
    env = playing(id)
    first = env.reset(seed)
    for view in first.values():
        assert not (view.reward.any() or view.terminated.any() or view.truncated.any())
        assert not view.reset.any()
    seats = list(env.spec.seats)
    assert list(first) == seats
    over = np.zeros(SLOTS, bool)
    ended = {seat: np.zeros(SLOTS, bool) for seat in seats}
    joined = {seat: turn_of(first[seat]).copy() for seat in seats}
    episodes = 0
    for views in play(env, first, 80, seed)[0][1:]:
        turns = np.stack([turn_of(view) for view in views.values()])
        for seat, view in views.items():
            assert view.reward.dtype == np.float32 and view.turn is not None
            np.testing.assert_array_equal(view.reset, over)  # the step after the last seat's end
            ended[seat][over] = joined[seat][over] = False
            flags = view.terminated | view.truncated
            assert not (view.terminated & view.truncated).any()
            assert not (flags & ended[seat]).any(), "a seat ended twice"
            assert not (view.turn & (ended[seat] | flags)).any(), "a turn after the end"
            assert not view.reward[ended[seat] | view.reset].any(), "paid after the end"
            joined[seat] |= view.turn
            ended[seat] |= flags
            if view.mask is not None:
                assert view.mask.any(axis=1).all()
        over = ~turns.any(axis=0)
        for seat in seats:  # everybody who took part was told
            np.testing.assert_array_equal((joined[seat] & over), (ended[seat] & over))
        if not env.spec.simultaneous:
            assert (turns.sum(axis=0) == ~over).all()
        episodes += int(over.sum())
    assert episodes >= SLOTS, "no episode ended: the test would prove little"


@pytest.mark.parametrize("id", GAMES)
def test_slots_outside_advance_stay_as_they_are(id: str) -> None:
    env = playing(id)
    views, rng = env.reset(3), np.random.default_rng(3)
    still, alone = np.array([True, False, True]), np.array([False, True, False])
    for _ in range(40):  # across ends and beginnings
        actions = legal_actions(env, views, rng)
        ended = ~np.stack([turn_of(v) for v in views.values()]).any(axis=0)
        moved = env.step(actions, advance=alone)
        for seat, view in moved.items():
            before = views[seat]
            np.testing.assert_array_equal(turn_of(view)[still], turn_of(before)[still])
            for path, leaf in view.observation.items():
                np.testing.assert_array_equal(leaf[still], before.observation[path][still])
            if view.mask is not None and before.mask is not None:
                np.testing.assert_array_equal(view.mask[still], before.mask[still])
            assert not view.reward[still].any() and not view.reset[still].any()
            assert not (view.terminated | view.truncated)[still].any()
        assert all(view.reset[1] == ended[1] for view in moved.values())
        # The others now play the same actions and are none the worse for having waited.
        views = env.step(legal_actions(env, moved, rng), advance=still)
        assert all(not view.reset[1] and not view.reward[1] for view in views.values())


# Not Pgx: a slot that has waited gets other random numbers, since every call draws for all slots.
@pytest.mark.parametrize("id", GAMES[:-1])
def test_waiting_changes_nothing_in_what_a_slot_plays(id: str) -> None:
    env = playing(id)

    def rows(views: Views) -> list[Any]:
        return [
            [v.reward[0], v.terminated[0], v.truncated[0], v.reset[0], turn_of(v)[0]]
            for v in views.values()
        ] + [leaf[0].tobytes() for v in views.values() for leaf in v.observation.values()]

    together, played = play(env, env.reset(5), 30)
    env.reset(5)
    for actions, expected in zip(played, together[1:], strict=True):
        waited = env.step(actions, advance=np.array([False, False, False]))
        assert not any(v.reward.any() for v in waited.values())
        assert rows(env.step(actions, advance=np.array([True, False, False]))) == rows(expected)


# --- against the library's own loop ------------------------------------------------------------


def by_hand(id: str) -> Any:
    if id.startswith("rookery"):
        return DwindlingGame() if id == DWINDLING else ComingAndGoing()
    name = id.removeprefix("pettingzoo:")
    home = "mpe2" if name.startswith("simple") else "pettingzoo.classic"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(f"{home}.{name}")
    return getattr(module, "parallel_env", module.env)()


def first_episode(env: BatchedEnvironment, slot: int, steps: int) -> tuple[Any, ...]:
    """A slot's first episode through the adapter: moves, totals, ends and what was seen."""
    views, played = play(env, env.reset(11), steps)
    moves, totals = [], dict.fromkeys(env.spec.seats, 0.0)
    ends: dict[str, str] = {}
    seen: list[tuple[str, bytes]] = []
    for before, actions, after in zip(views, played, views[1:], strict=False):
        if any(view.reset[slot] for view in after.values()):
            return moves, totals, ends, seen
        acting = [seat for seat, view in before.items() if turn_of(view)[slot]]
        moves.append({seat: actions[seat][slot] for seat in acting})
        for seat in acting:
            (leaf,) = before[seat].observation.values()
            seen.append((seat, leaf[slot].astype(np.float32).tobytes()))
        for seat, view in after.items():
            totals[seat] += float(view.reward[slot])
            if view.terminated[slot]:
                ends[seat] = "terminated"
            if view.truncated[slot]:
                ends[seat] = "truncated"
                (leaf,) = view.observation.values()
                seen.append((seat, leaf[slot].astype(np.float32).tobytes()))
    raise AssertionError("the episode did not end")


def lone(observation: Any) -> bytes:
    found = observation["observation"] if isinstance(observation, dict) else observation
    return np.asarray(found, np.float32).tobytes()


@pytest.mark.parametrize("slot", range(SLOTS))
@pytest.mark.parametrize("id", [DWINDLING, CONNECT_FOUR, "pettingzoo:tictactoe_v3"])
def test_turns_pay_and_show_what_the_librarys_own_loop_does(id: str, slot: int) -> None:
    moves, totals, ends, seen = first_episode(playing(id), slot, 50)
    env = by_hand(id)
    env.reset(seed=episode_seed(11, slot, 1))
    expected = dict.fromkeys(env.possible_agents, 0.0)
    expected_ends, expected_seen, left = {}, [], iter(moves)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        expected[agent] += reward
        if terminated or truncated:
            expected_ends[agent] = "terminated" if terminated else "truncated"
            env.step(None)
        else:
            env.step(next(left)[agent])
        if not terminated:
            expected_seen.append((agent, lone(observation)))
    assert next(left, None) is None
    assert totals == pytest.approx(expected) and ends == expected_ends and seen == expected_seen


@pytest.mark.parametrize("id", [COMING, "pettingzoo:simple_tag_v3", "pettingzoo:rps_v2"])
def test_all_at_once_pays_and_shows_what_the_library_does(id: str) -> None:
    adapter = playing(id)
    moves, totals, ends, seen = first_episode(adapter, 1, 50)
    env = by_hand(id)
    observations, _ = env.reset(seed=episode_seed(11, 1, 1))
    expected = dict.fromkeys(env.possible_agents, 0.0)
    expected_ends: dict[str, str] = {}
    expected_seen = []
    for move in moves:
        assert set(move) == set(env.agents)
        expected_seen += [(a, lone(observations[a])) for a in adapter.spec.seats if a in move]
        starts = {a: getattr(env.action_space(a), "start", 0) for a in move}
        actions = {a: np.asarray(action) + starts[a] for a, action in move.items()}
        if id.startswith("pettingzoo:"):
            actions = {a: int(action) for a, action in actions.items()}
        observations, rewards, terminated, truncated, _ = env.step(actions)
        for agent, reward in rewards.items():
            expected[agent] += reward
        for agent in terminated:
            if terminated[agent] or truncated[agent]:
                expected_ends[agent] = "terminated" if terminated[agent] else "truncated"
        cut = [a for a in adapter.spec.seats if truncated.get(a) and not terminated[a]]
        expected_seen += [(a, lone(observations[a])) for a in cut]
    assert not env.agents and ends == expected_ends
    assert totals == pytest.approx(expected, rel=1e-5)
    assert seen == expected_seen


def test_the_dead_are_paid_until_they_are_told_and_told_once() -> None:
    env = make(DWINDLING, 1)
    views = env.reset(0)
    story = []
    for action in [1, 2, 3, 0, 1, 2, 0, 1, 2]:
        acting = [seat for seat, view in views.items() if turn_of(view)[0]]
        views = env.step({seat: np.array([action]) for seat in env.spec.seats})
        paid = [float(view.reward[0]) for view in views.values()]
        ends = [s for s, v in views.items() if v.terminated[0] or v.truncated[0]]
        story.append((acting[0], paid, ends))
    assert story == [
        ("red", [1.0, 0.5, 0.5], []),
        ("green", [0.5, 2.0, 0.5], []),
        ("blue", [0.5, 0.5, 3.0], []),
        ("red", [0.0, 0.5, 0.5], []),  # red's last move, but its turn has yet to come round
        ("green", [0.5, 1.0, 0.5], []),
        ("blue", [0.5, 0.5, 2.0], ["red"]),
        ("green", [0.0, 0.0, 0.5], []),
        ("blue", [0.0, 0.5, 1.0], ["green"]),
        ("blue", [0.0, 0.0, 2.0], ["blue"]),
    ]
    assert [v.terminated[0] for v in views.values()] == [False, False, True]


def test_a_truncated_seat_sees_its_final_observation() -> None:
    env = make(DWINDLING, 1)
    env.reset(0)
    for action in [1, 2, 3, 0, 1, 2, 0, 1]:
        views = env.step({seat: np.array([action]) for seat in env.spec.seats})
    assert views["green"].truncated[0] and not views["green"].terminated[0]
    assert views["green"].observation[""].tolist() == [[8.0, 1.0, 0.0]]  # moves, last move, left


def test_an_agent_that_vanishes_without_a_word_has_terminated() -> None:
    env = make(COMING, 1, {"end": "vanish"})
    views = env.reset(0)
    assert [turn_of(v)[0] for v in views.values()] == [True, False, True]
    views = play(env, views, 6)[0][-1]
    assert views["late"].terminated[0] and views["lasting"].truncated[0]
    assert not any(turn_of(v)[0] for v in views.values())


# --- seats and masks ---------------------------------------------------------------------------


def test_every_seat_has_its_own_spaces() -> None:
    spec = playing(DWINDLING).spec
    assert list(spec.seats) == ["red", "green", "blue"] and not spec.simultaneous
    assert [seat.action for seat in spec.seats.values()] == [Categorical(n) for n in (2, 3, 4)]
    assert [seat.observation[0].shape for seat in spec.seats.values()] == [(2,), (3,), (4,)]
    assert all(seat.masked and len(seat.observation) == 1 for seat in spec.seats.values())
    assert all(seat.observation[0].path == "" for seat in spec.seats.values())
    spec = playing(COMING).spec
    assert spec.simultaneous and [seat.masked for seat in spec.seats.values()] == [
        True,
        False,
        False,
    ]
    assert spec.seats["early"].action == Categorical(4, start=1)
    assert isinstance(spec.seats["late"].action, Continuous)
    assert playing("pettingzoo:simple_spread_v3").spec.max_episode_steps == 25


@pytest.mark.parametrize(
    ("id", "seat"), [(DWINDLING, "red"), (COMING, "early"), (CONNECT_FOUR, "player_0")]
)
def test_an_illegal_action_never_reaches_the_game(id: str, seat: str) -> None:
    env = make(id, 2)
    rng = np.random.default_rng(0)
    views = env.reset(0)
    mask = views[seat].mask
    assert mask is not None
    while mask[1].all() or not turn_of(views[seat])[1]:
        actions = legal_actions(env, views, rng)
        if id == CONNECT_FOUR:  # fill a column
            actions = {s: np.zeros(2, int) for s in views}
        views = env.step(actions)
        mask = views[seat].mask
        assert mask is not None
    actions = legal_actions(env, views, rng)
    actions[seat][1] = int(mask[1].argmin())
    with pytest.raises(MaskError, match=rf"'{seat}' of slot 1 .* its mask forbids"):
        env.step(actions)


def test_masks_in_an_info_are_read_at_every_step() -> None:
    env = playing(COMING)
    views, rng = env.reset(0), np.random.default_rng(0)
    for count in range(3):
        mask = views["early"].mask
        assert mask is not None and mask.tolist() == [[bool((a - count) % 2) for a in range(4)]] * 3
        views = env.step(legal_actions(env, views, rng))
        assert (views["early"].reward < 100).all()


# --- failures ----------------------------------------------------------------------------------


def test_a_game_that_raises_is_told_with_its_seat_slot_and_step() -> None:
    env = make(DWINDLING, 2, {"fail_at": 3})
    with pytest.raises(EnvironmentFailed, match="this game fails at move 3") as caught:
        play(env, env.reset(0), 5)
    failed = caught.value
    assert (failed.seat, failed.slot, failed.step) == ("blue", 0, 2)
    assert "games.py" in failed.user_traceback and "rookery/envs/" not in failed.user_traceback
    env = make(COMING, 2, {"fail_at": 2})
    with pytest.raises(EnvironmentFailed, match="fails at step 2") as caught:
        play(env, env.reset(0), 5)
    assert (caught.value.seat, caught.value.slot, caught.value.step) == (None, 0, 1)


# --- save and restore --------------------------------------------------------------------------


def through_a_file(state: Arrays) -> Arrays:
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return dict(np.load(file, allow_pickle=False))


def assert_same(left: list[Views], right: list[Views]) -> None:
    for a, b in zip(left, right, strict=True):
        for seat in a:
            for path in a[seat].observation:
                np.testing.assert_array_equal(
                    a[seat].observation[path], b[seat].observation[path], strict=True
                )
            for name in ("mask", "reward", "terminated", "truncated", "reset", "turn"):
                np.testing.assert_array_equal(getattr(a[seat], name), getattr(b[seat], name))


@pytest.mark.parametrize("steps", [0, 5, 17, 26])
@pytest.mark.parametrize("id", [*GAMES, "pettingzoo:leduc_holdem_v4"])
def test_a_restored_game_plays_on_as_if_never_saved(id: str, steps: int) -> None:
    env = playing(id)
    assert env.spec.can_save
    played = play(env, env.reset(3), steps)[0]
    if steps == 17:  # one slot ahead of the others
        played.append(
            env.step(
                legal_actions(env, played[-1], np.random.default_rng(1)),
                advance=np.array([True, False, False]),
            )
        )
    state = through_a_file(env.save())
    onward = play(env, played[-1], 40, seed=1)[0]
    env.reset(9)
    restored = env.restore(state)
    assert_same(play(env, restored, 40, seed=1)[0], onward)
    if not id.startswith("pgx:"):
        fresh = make(id, SLOTS)  # as after a restart of the process
        assert_same(play(fresh, fresh.restore(state), 40, seed=1)[0], onward)
        fresh.close()


def test_a_game_that_ignores_its_seed_cannot_be_saved() -> None:
    env = make(COMING, 1, {"seeded": False})
    env.reset(0)
    assert not env.spec.can_save
    with pytest.raises(InputError, match="cannot save its state"):
        env.save()


def test_a_state_that_does_not_come_back_is_refused() -> None:
    env = make(COMING, 1)
    play(env, env.reset(0), 2)
    state = env.save()
    state["slot.0.acted"] = state["slot.0.acted"][:1]  # a move is lost
    with pytest.raises(InputError, match="did not come back to the state that was saved"):
        env.restore(state)
    with pytest.raises(InputError, match="2 slots"):
        make(COMING, 2).restore(state)


@pytest.mark.parametrize("id", [COMING, "pettingzoo:simple_spread_v3"])
def test_seeds_decide_the_episodes_and_slots_differ(id: str) -> None:
    env = playing(id)
    seat = list(env.spec.seats)[-1]
    first, again, other = (play(env, env.reset(s), 30)[0] for s in (1, 1, 2))
    assert_same(first, again)
    begun = [v[seat].observation[""][v[seat].reset] for v in first]
    starts = np.concatenate(
        [first[0][seat].observation[""], other[0][seat].observation[""], *begun]
    )
    assert len({row.tobytes() for row in starts}) == len(starts) >= 9


# --- recorded games ----------------------------------------------------------------------------


FOOLS_MATE = [2997, 2421, 3589, 1783]  # f3 e5 g4 Qh4, as PettingZoo numbers moves


def test_fools_mate_is_played_as_recorded() -> None:
    env = PettingZooEnvironment("pettingzoo:chess_v6", 1)
    (leaf,) = env.spec.seats["player_0"].observation
    assert (leaf.kind, leaf.shape, leaf.dtype) == ("image", (8, 8, 111), "uint8")
    env.reset(0)
    assert env.position(0) == "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1"
    for action in FOOLS_MATE:
        views = env.step({seat: np.array([action]) for seat in env.spec.seats})
    assert env.position(0) == "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
    assert [v.reward.tolist() for v in views.values()] == [[-1.0], [1.0]]
    assert all(v.terminated[0] for v in views.values())
    assert playing(CONNECT_FOUR).position(0) is None
