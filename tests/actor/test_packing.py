"""Packed fragments hold every seat's own trajectory, whoever plays in between.

A naive simulator plays random games of many seats and writes down, seat by seat, what a learner
should see. Every observation and action has a number of its own, so that a row can be traced back
to the one decision it must come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.actor.packing import EDGE, FINAL, STEP, Outcomes, Turns, pack
from rookery.messages.steps import Steps
from rookery.worker.policies import Layout

POLICIES = ("a", "b")
ACTIONS = 5
GAMMA, LAMBDA = 0.9, 0.8


@dataclass
class Decision:
    """One turn of one seat, and what became of it by the end of the stream."""

    time: int
    seen: int
    reward: float = 0.0
    earlier: float = 0.0  # the part of the reward from before `time`
    next_seen: int | None = None  # what the same seat saw next; None: it saw nothing more
    known_at: int | None = None  # the time from which all of this was known
    terminated: bool = False
    truncated: bool = False

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


@dataclass
class Trajectory:
    """What one seat did in one episode."""

    slot: int
    seat: int
    policy: str | None
    start: int
    end: int | None = None  # the step that ended its part
    early: float = 0.0
    decisions: list[Decision] = field(default_factory=list)


@dataclass(frozen=True)
class Rules:
    seed: int
    slots: int
    seats: int
    together: bool
    steps: int  # of the environment in a fragment
    fragments: int
    truncates: bool
    calm: int  # the larger, the longer the episodes
    masked: bool

    @property
    def total(self) -> int:
        return self.steps * self.fragments


class Stream:
    """All that happened in a random game by these rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.random = np.random.default_rng(rules.seed)
        shape = (rules.total, rules.slots, rules.seats)
        self.reward = np.zeros(shape)
        self.terminated, self.truncated = np.zeros(shape, bool), np.zeros(shape, bool)
        self.trajectories: list[Trajectory] = []
        self.finals: list[tuple[int, Trajectory, int]] = []  # step, whose, what was seen
        self.numbers = np.cumsum(self.random.integers(0, 4, rules.fragments)).tolist()
        self.may_hold = {policy: self._some_seats() for policy in POLICIES}
        self.seen = 0
        for slot in range(rules.slots):
            self._play(slot)

    def _some_seats(self) -> tuple[int, ...]:
        count = int(self.random.integers(1, self.rules.seats + 1))
        return tuple(sorted(self.random.choice(self.rules.seats, count, replace=False).tolist()))

    def _look(self) -> int:
        self.seen += 1
        return self.seen

    def _reset(self, slot: int, time: int) -> list[Trajectory]:
        seats = []
        for seat in range(self.rules.seats):
            who = [None, *(p for p in POLICIES if seat in self.may_hold[p])]
            holder = who[self.random.integers(len(who))]
            seats.append(Trajectory(slot, seat, holder, time))
        self.trajectories += seats
        return seats

    def _play(self, slot: int) -> None:
        living = self._reset(slot, 0)
        for time in range(self.rules.total + 1):
            if not living:  # the environment's step resets the slot and does nothing else
                living = self._reset(slot, time + 1)
                continue
            movers = living
            if not self.rules.together:
                movers = [living[self.random.integers(len(living))]]
            for mover in movers:
                self._turn(mover, time)
            if time < self.rules.total:
                self._rewards(living, time)
                living = self._ends(living, time)

    def _turn(self, mover: Trajectory, time: int) -> None:
        decision = Decision(time, self._look())
        if mover.decisions:
            mover.decisions[-1].next_seen = decision.seen
            mover.decisions[-1].known_at = time
        else:
            decision.reward = decision.earlier = mover.early
        mover.decisions.append(decision)

    def _rewards(self, living: list[Trajectory], time: int) -> None:
        for one in living:
            if self.random.random() < 0.6:
                reward = float(self.random.integers(-8, 9)) / 4  # sums are exact
                self.reward[time, one.slot, one.seat] = reward
                if one.decisions:
                    one.decisions[-1].reward += reward
                else:
                    one.early += reward

    def _ends(self, living: list[Trajectory], time: int) -> list[Trajectory]:
        left = []
        over = self.random.random() < 1 / self.rules.calm
        cut = self.rules.truncates and self.random.random() < 0.6
        for one in living:
            leaves = self.random.random() < 0.5 / self.rules.calm
            if over or leaves:
                one.end = time
                self._end(one, time, cut)
            else:
                left.append(one)
        return left

    def _end(self, one: Trajectory, time: int, cut: bool) -> None:
        both = cut and self.random.random() < 0.1
        self.terminated[time, one.slot, one.seat] = both or not cut
        self.truncated[time, one.slot, one.seat] = cut
        if one.decisions:
            last = one.decisions[-1]
            last.terminated, last.truncated = both or not cut, cut
            last.known_at = time + 1
            if cut:
                last.next_seen = self._look()
                self.finals.append((time, one, last.next_seen))

    def layout(self, policy: str) -> Layout:
        """A layout whose fragments are of the steps that the rules say."""
        rules, seats = self.rules, self.may_hold[policy]
        rows = rules.steps + 2 * (1 if rules.together else len(seats))
        layout = Layout(rows, rules.slots, seats, rules.together)
        assert layout.env_steps == rules.steps
        if rules.truncates and not rules.together:  # final observations take rows of their own
            layout = Layout(2 * rows, rules.slots, seats, rules.together)
        return layout

    def turns(self, policy: str, fragment: int) -> Turns:
        """What the policy's seats saw and did in one fragment, in no order."""
        begin, steps = fragment * self.rules.steps, self.rules.steps
        rows = []
        for one in self.trajectories:
            for d in one.decisions if one.policy == policy else ():
                if begin <= d.time < begin + steps:
                    rows.append((STEP, one, d.time - begin, d.earlier, d.seen))
                elif d.time == begin + steps:
                    rows.append((EDGE, one, steps, 0.0, d.seen))
        for end, one, seen in self.finals:
            if one.policy == policy and begin <= end < begin + steps:
                rows.append((FINAL, one, end - begin, 0.0, seen))
        number = self.numbers[fragment]
        turns = table(
            [(k, o.slot, o.seat, t, e, number, s) for k, o, t, e, s in rows], self.rules.masked
        )
        return turns.take(self.random.permutation(len(turns)))

    def outcomes(self, fragment: int) -> Outcomes:
        part = slice(fragment * self.rules.steps, (fragment + 1) * self.rules.steps)
        return Outcomes(self.reward[part], self.terminated[part], self.truncated[part])

    def of(self, policy: str) -> list[Trajectory]:
        return [t for t in self.trajectories if t.policy == policy]

    def fragment_of(self, decision: Decision) -> int | None:
        """The fragment that the decision belongs in; None: it is still held at the end."""
        if decision.known_at is None:
            return None
        return (decision.known_at - 1) // self.rules.steps


Row = tuple[int, int, int, int, float, int, int]  # kind, slot, seat, time, earlier, number, seen


def table(rows: Sequence[Row], masked: bool = False) -> Turns:
    kind, slot, seat, time, earlier, number, seen = (
        np.array([row[i] for row in rows], np.float64) for i in range(7)
    )
    return Turns(
        kind=kind.astype(np.int8),
        slot=slot.astype(np.int32),
        seat=seat.astype(np.int32),
        time=time.astype(np.int32),
        earlier=earlier,
        number=number.astype(np.int64),
        log_prob=log_prob_of(seen).astype(np.float32),
        action=action_of(seen).astype(np.int32),
        mask=mask_of(seen) if masked else None,
        observation={
            "": seen.astype(np.float32),
            "board/cells": np.stack([seen, -seen], -1).astype(np.float32),
        },
        player=(seen % 3).astype(np.uint8),
        state={"memory": np.stack([seen, seen + 1], -1).astype(np.float32)},
    )


def action_of(seen: np.ndarray) -> np.ndarray:
    return np.stack([seen + 10_000, seen + 20_000], -1)


def log_prob_of(seen: np.ndarray) -> np.ndarray:
    return -seen / 4


def mask_of(seen: np.ndarray) -> np.ndarray:
    bits = seen.astype(np.int64)[..., None] >> np.arange(ACTIONS)
    return (bits & 1).astype(bool)


def value_of(seen: np.ndarray) -> np.ndarray:
    return np.sin(np.asarray(seen, np.float64) * 1.7) * 3


def play(stream: Stream, policy: str, saved: bool = False) -> tuple[list[Steps], Turns]:
    layout, held = stream.layout(policy), None
    experiences = []
    for fragment in range(stream.rules.fragments):
        turns = stream.turns(policy, fragment)
        if held is not None:
            if saved:
                held = Turns.from_arrays(held.arrays())
            turns = Turns.join([held, turns])
        number = stream.numbers[fragment]
        experience, held = pack(turns, stream.outcomes(fragment), layout, number)
        experiences.append(experience)
    assert held is not None
    return experiences, held


@dataclass(frozen=True)
class Placed:
    """A valid row, and the decision it was made of."""

    fragment: int
    experience: Steps
    row: int
    lane: int
    trajectory: Trajectory
    index: int  # of the decision within the trajectory

    @property
    def decision(self) -> Decision:
        return self.trajectory.decisions[self.index]

    @property
    def at(self) -> tuple[int, int]:
        return self.row, self.lane

    @property
    def valid_after(self) -> bool:
        valid = self.experience.valid
        return self.row + 1 < len(valid) and bool(valid[self.row + 1, self.lane])


def placed(stream: Stream, policy: str) -> Iterator[Placed]:
    """Every valid row, lane by lane."""
    known = {
        d.seen: (t, i) for t in stream.trajectories for i, d in enumerate(t.decisions)
    }  # of all policies: a row of another's would be found
    for fragment, e in enumerate(play(stream, policy)[0]):
        for lane, row in np.argwhere(e.valid.T).tolist():
            trajectory, index = known[int(e.observation[""][row, lane])]
            yield Placed(fragment, e, row, lane, trajectory, index)


def games(**fixed: bool) -> st.SearchStrategy[Stream]:
    drawn = {name: st.just(value) for name, value in fixed.items()}
    rules = st.builds(
        Rules,
        seed=st.integers(0, 2**32 - 1),
        slots=st.integers(1, 3),
        seats=st.integers(1, 4),
        steps=st.integers(1, 12),
        fragments=st.integers(1, 5),
        calm=st.sampled_from((1, 2, 5, 20)),
        **({n: st.booleans() for n in ("together", "truncates", "masked")} | drawn),
    )
    return rules.map(Stream)


many = settings(max_examples=60, deadline=None)
policies = st.sampled_from(POLICIES)


@many
@given(games(), policies)
def test_the_rows_of_a_seat_are_its_decisions_in_order_none_lost_none_twice(
    stream: Stream, policy: str
) -> None:
    layout, found = stream.layout(policy), {}
    for p in placed(stream, policy):
        slot, seat = p.lane, int(p.experience.seat[p.at])
        if layout.together:
            slot, place = divmod(p.lane, len(layout.seats))
            assert seat == layout.seats[place]
        found.setdefault((slot, seat), []).append((p.fragment, p.decision.seen))
    expected = {}
    for trajectory in stream.of(policy):
        for d in trajectory.decisions:
            if (fragment := stream.fragment_of(d)) is not None:
                key = (trajectory.slot, trajectory.seat)
                expected.setdefault(key, []).append((fragment, d.seen))
    assert found == expected


@many
@given(games(), policies)
def test_a_row_is_all_of_one_decision(stream: Stream, policy: str) -> None:
    for p in placed(stream, policy):
        e, seen = p.experience, np.array(p.decision.seen, np.float64)
        np.testing.assert_array_equal(e.observation["board/cells"][p.at], [seen, -seen])
        np.testing.assert_array_equal(e.action[p.at], action_of(seen))
        assert e.log_prob[p.at] == log_prob_of(seen)
        assert (e.mask is None) == (not stream.rules.masked)
        if e.mask is not None:
            np.testing.assert_array_equal(e.mask[p.at], mask_of(seen))
        assert e.reward[p.at] == p.decision.reward
        assert e.terminated[p.at] == p.decision.terminated
        assert e.truncated[p.at] == p.decision.truncated
        acted_in = p.decision.time // stream.rules.steps
        assert e.behind[p.at] == stream.numbers[p.fragment] - stream.numbers[acted_in]
        assert acted_in < p.fragment or e.behind[p.at] == 0


@many
@given(games(), policies)
def test_a_seats_rows_of_an_episode_add_up_to_what_the_environment_gave_it(
    stream: Stream, policy: str
) -> None:
    totals: dict[int, float] = {}
    for p in placed(stream, policy):
        key = id(p.trajectory)
        totals[key] = totals.get(key, 0.0) + float(p.experience.reward[p.at])
    for t in stream.of(policy):
        if t.end is not None and t.decisions:
            assert totals[id(t)] == stream.reward[t.start : t.end + 1, t.slot, t.seat].sum()


@many
@given(games(), policies)
def test_only_the_last_row_of_a_seats_part_is_done(stream: Stream, policy: str) -> None:
    for p in placed(stream, policy):
        last = p.trajectory.end is not None and p.index == len(p.trajectory.decisions) - 1
        assert (p.experience.terminated[p.at] or p.experience.truncated[p.at]) == last


@many
@given(games(), policies)
def test_the_next_row_shows_what_the_same_seat_saw_next(stream: Stream, policy: str) -> None:
    for p in placed(stream, policy):
        if not p.decision.terminated:
            after = (p.row + 1, p.lane)
            assert p.experience.observation[""][after] == p.decision.next_seen
            np.testing.assert_array_equal(
                p.experience.observation["board/cells"][after],
                [p.decision.next_seen, -p.decision.next_seen],
            )


@many
@given(games(), policies)
def test_a_trajectory_breaks_off_only_where_it_goes_on_in_a_later_fragment(
    stream: Stream, policy: str
) -> None:
    for p in placed(stream, policy):
        if p.decision.done:
            continue
        following = stream.fragment_of(p.trajectory.decisions[p.index + 1])
        assert p.valid_after == (following == p.fragment)
        assert following is None or following >= p.fragment
    for p in placed(stream, policy):
        if p.decision.truncated:
            assert not p.valid_after


@many
@given(games(), policies)
def test_what_is_held_at_the_end_is_what_is_not_yet_known(stream: Stream, policy: str) -> None:
    _, held = play(stream, policy)
    found = {
        int(seen): (int(slot), int(seat), float(reward), int(number))
        for seen, slot, seat, reward, number in zip(
            held.observation[""], held.slot, held.seat, held.earlier, held.number, strict=True
        )
    }
    assert len(found) == len(held)
    assert (held.kind == STEP).all()
    assert (held.time == -1).all()
    assert found == {
        d.seen: (t.slot, t.seat, d.reward, stream.numbers[d.time // stream.rules.steps])
        for t in stream.of(policy)
        for d in t.decisions
        if d.known_at is None and d.time < stream.rules.total
    }


def advantages(e: Steps) -> np.ndarray:
    """GAE down the lanes: a valid row before one that is not is as if truncated there."""
    value = value_of(e.observation[""])
    after = np.zeros(e.valid.shape[1])
    result = np.zeros(e.valid.shape)
    for t in range(len(e.valid) - 1, -1, -1):
        more = e.valid[t + 1] if t + 1 < len(e.valid) else np.zeros_like(e.valid[t])
        flows = more & ~e.terminated[t] & ~e.truncated[t]
        delta = e.reward[t] + GAMMA * value[t + 1] * ~e.terminated[t] - value[t]
        after = np.where(e.valid[t], delta + GAMMA * LAMBDA * flows * after, 0.0)
        result[t] = after
    return result


def expected_advantage(decisions: Sequence[Decision]) -> float:
    """GAE of the first of these decisions, by its definition as a sum."""
    total = 0.0
    for k, d in enumerate(decisions):
        bootstrap = 0.0 if d.terminated else GAMMA * float(value_of(d.next_seen))
        total += (GAMMA * LAMBDA) ** k * (d.reward + bootstrap - float(value_of(d.seen)))
    return total


@many
@given(games(), policies)
def test_advantages_down_a_lane_are_those_of_the_seats_trajectory(
    stream: Stream, policy: str
) -> None:
    computed: dict[int, np.ndarray] = {}
    for p in placed(stream, policy):
        if id(p.experience) not in computed:
            computed[id(p.experience)] = advantages(p.experience)
        rest = p.trajectory.decisions[p.index :]
        same = [d for d in rest if stream.fragment_of(d) == p.fragment]
        got = computed[id(p.experience)][p.at]
        assert got == pytest.approx(expected_advantage(same), abs=1e-9)


@many
@given(games(), policies)
def test_a_row_outside_experience_is_there_only_for_the_step_above_it(
    stream: Stream, policy: str
) -> None:
    shown = sorted(
        p.decision.next_seen
        for p in placed(stream, policy)
        if p.decision.next_seen is not None and not p.valid_after
    )
    outside = []
    for e in play(stream, policy)[0]:
        valid = np.vstack([e.valid, np.zeros_like(e.valid[:1])])
        seen = e.observation[""]
        outside += seen[(seen != 0) & ~valid].astype(int).tolist()
    assert sorted(outside) == shown


@many
@given(games(), policies)
def test_every_array_has_its_shape_and_padding_is_empty(stream: Stream, policy: str) -> None:
    for e in play(stream, policy)[0]:
        check_shapes(e, stream.layout(policy), stream.rules.masked)
        for rows in (e.reward, e.log_prob, e.terminated, e.truncated, e.seat, e.behind):
            assert not rows[~e.valid].any()
        assert not e.action[~e.valid].any()
        padding = e.observation[""] == 0
        assert not e.observation["board/cells"][padding].any()
        assert not padding[:-1][e.valid].any()
        assert (padding[1:] >= padding[:-1]).all()  # at the bottom of the lane only
        assert e.mask is None or e.mask[padding].all()


def check_shapes(e: Steps, layout: Layout, masked: bool) -> None:
    rows, lanes = layout.rows, layout.lanes
    types = {
        "reward": np.float32,
        "terminated": bool,
        "truncated": bool,
        "valid": bool,
        "log_prob": np.float32,
        "seat": np.uint8,
        "player": np.uint8,
        "behind": np.uint8,
    }
    for name, dtype in types.items():
        array = getattr(e, name)
        assert (array.shape, array.dtype) == ((rows, lanes), dtype), name
    assert (e.action.shape, e.action.dtype) == ((rows, lanes, 2), np.int32)
    assert {n: (x.shape, x.dtype) for n, x in e.observation.items()} == {
        "": ((rows + 1, lanes), np.float32),
        "board/cells": ((rows + 1, lanes, 2), np.float32),
    }
    if masked:
        assert e.mask is not None
        assert (e.mask.shape, e.mask.dtype) == ((rows + 1, lanes, ACTIONS), bool)
    else:
        assert e.mask is None


def test_the_games_hold_every_case_that_matters() -> None:
    counts = dict.fromkeys(
        ("whole", "cut", "late", "behind", "early", "died", "truncated", "both", "held over"), 0
    )
    for seed in range(20):
        stream = Stream(Rules(seed, 2, 3, bool(seed % 2), 2, 16, True, 10, False))
        for p in placed(stream, "a"):
            decisions, d = p.trajectory.decisions, p.decision
            fragments = {stream.fragment_of(x) for x in decisions}
            counts["whole"] += len(decisions) > 1 and fragments == {p.fragment}
            counts["cut"] += len(fragments) > 1
            counts["late"] += d.known_at > d.time + 1
            counts["behind"] += bool(p.experience.behind[p.at])
            counts["early"] += d.earlier != 0
            counts["died"] += d.terminated and not d.truncated
            counts["truncated"] += d.truncated and not d.terminated
            counts["both"] += d.truncated and d.terminated
            counts["held over"] += d.time // 2 < p.fragment - 1
    assert all(counts.values()), counts


@settings(max_examples=200, deadline=None)
@given(st.one_of(games(together=True), games(together=False, truncates=False)), policies)
def test_lanes_hold_the_steps_that_the_layout_promises(stream: Stream, policy: str) -> None:
    layout = stream.layout(policy)
    assert layout.env_steps == stream.rules.steps
    experiences, _ = play(stream, policy)
    assert all(e.valid.shape == (layout.rows, layout.lanes) for e in experiences)


@pytest.mark.parametrize("seats", [1, 2, 4])
def test_the_fullest_lane_in_turns_still_fits(seats: int) -> None:
    """Every seat is held over, the policy moves at every step, and has the turn at the end."""
    layout = Layout(2 * seats + 8, 1, tuple(range(seats)), together=False)
    steps = layout.env_steps
    held = [(STEP, 0, seat, -1, 0.0, 1, 1 + seat) for seat in range(seats)]
    moves = [(STEP, 0, t % seats, t, 0.0, 1, 100 + t) for t in range(steps)]
    edge = [(EDGE, 0, steps % seats, steps, 0.0, 1, 999)]
    experience, left = pack(table(held + moves + edge), quiet(steps, 1, seats), layout, 1)
    assert experience.valid.sum() == steps + 1
    assert len(left) == seats - 1


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_fullest_lane_together_still_fits(length: int) -> None:
    """One truncated episode after the other, each with a final observation and a reset."""
    layout = Layout(12, 1, (0,), together=True)
    steps = layout.env_steps
    outcomes = quiet(steps, 1, 1)
    rows: list[Row] = [(STEP, 0, 0, -1, 0.0, 1, 1)]
    decided = 1
    for t in range(steps):
        phase = (t + 1) % (length + 1)
        if phase == 0:
            continue
        rows.append((STEP, 0, 0, t, 0.0, 1, 100 + t))
        decided += 1
        if phase == length:
            outcomes.truncated[t] = True
            rows.append((FINAL, 0, 0, t, 0.0, 1, 200 + t))
    if (steps + 1) % (length + 1):
        rows.append((EDGE, 0, 0, steps, 0.0, 1, 999))
    experience, left = pack(table(rows), outcomes, layout, 1)
    assert experience.valid.sum() == decided
    assert not len(left)


def quiet(steps: int, slots: int, seats: int) -> Outcomes:
    shape = (steps, slots, seats)
    return Outcomes(np.zeros(shape), np.zeros(shape, bool), np.zeros(shape, bool))


def test_rewards_between_a_seats_turns_are_its_own() -> None:
    """Two seats in turns; seat 1 is paid before its first turn and while seat 0 moves."""
    outcomes = quiet(5, 1, 2)
    outcomes.reward[:, 0, 0] = [1, 2, 4, 8, 16]
    outcomes.reward[:, 0, 1] = [32, 64, 128, 256, 512]
    outcomes.terminated[4] = True
    layout = Layout(9, 1, (0, 1), together=False)
    moves = [(STEP, 0, t % 2, t, 32.0 * (t == 1), 7, t + 1) for t in range(5)]
    experience, held = pack(table(moves), outcomes, layout, 7)
    assert experience.observation[""][:5, 0].tolist() == [1, 3, 5, 2, 4]
    assert experience.seat[:5, 0].tolist() == [0, 0, 0, 1, 1]
    assert experience.reward[:5, 0].tolist() == [3, 12, 16, 224, 768]
    assert experience.terminated[:5, 0].tolist() == [False, False, True, False, True]
    assert experience.valid[:, 0].sum() == 5
    assert not len(held)


def test_a_step_waits_over_several_fragments_for_its_seats_next_turn() -> None:
    layout = Layout(8, 1, (0, 1), together=False)
    held = table([(STEP, 0, 1, 2, 0.5, 3, 1)])
    paid = quiet(4, 1, 2)
    paid.reward[:, 0, 1] = [1, 2, 4, 8]
    for number, total in ((3, 12.5), (4, 27.5), (6, 42.5)):
        experience, held = pack(held, paid, layout, number)
        assert not experience.valid.any()
        assert held.earlier.tolist() == [total]
        assert held.number.tolist() == [3]
    turn = table([(STEP, 0, 1, 2, 0.0, 9, 2)])
    experience, held = pack(Turns.join([held, turn]), paid, layout, 9)
    assert experience.valid[:, 0].tolist() == [True] + [False] * 7
    assert experience.reward[0, 0] == 45.5
    assert experience.behind[0, 0] == 6
    assert experience.observation[""][:3, 0].tolist() == [1, 2, 0]
    assert held.observation[""].tolist() == [2]
    assert held.earlier.tolist() == [12]


@pytest.mark.parametrize(("now", "behind"), [(255, 255), (256, 255), (10_000, 255)])
def test_a_step_from_long_ago_is_as_far_behind_as_can_be_said(now: int, behind: int) -> None:
    layout = Layout(3, 1, (0,), together=False)
    turns = table([(STEP, 0, 0, -1, 0.0, 0, 1), (EDGE, 0, 0, 1, 0.0, now, 2)])
    experience, _ = pack(turns, quiet(1, 1, 1), layout, now)
    assert experience.behind[0, 0] == behind


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_a_policy_without_a_turn_makes_a_fragment_without_a_row(
    together: bool, masked: bool
) -> None:
    layout = Layout(9, 3, (1, 2), together)
    outcomes = quiet(layout.env_steps, 3, 4)
    outcomes.reward[:], outcomes.terminated[1], outcomes.truncated[2] = 1.0, True, True
    nothing = table([], masked)
    experience, held = pack(nothing, outcomes, layout, 5)
    check_shapes(experience, layout, masked)
    assert not experience.valid.any()
    assert not experience.observation[""].any()
    assert experience.mask is None or experience.mask.all()
    assert not len(held)
    assert held.action.shape == (0, 2)
    assert held.observation["board/cells"].shape == (0, 2)
    again, _ = pack(Turns.join([held, nothing]), outcomes, layout, 6)
    check_shapes(again, layout, masked)
    assert not again.valid.any()


def assert_same(one: Turns, other: Turns) -> None:
    left, right = one.arrays(), other.arrays()
    assert left.keys() == right.keys()
    for name, array in left.items():
        np.testing.assert_array_equal(array, right[name], err_msg=name)
        assert array.dtype == right[name].dtype, name


@many
@given(games(), policies)
def test_turns_come_back_from_their_arrays(stream: Stream, policy: str) -> None:
    turns = stream.turns(policy, 0)
    back = Turns.from_arrays(turns.arrays())
    assert_same(back, turns)
    assert (back.mask is None) == (turns.mask is None)
    assert back.observation.keys() == turns.observation.keys()
    assert ("mask" in turns.arrays()) == stream.rules.masked


@many
@given(games(), policies)
def test_held_steps_that_were_saved_make_the_same_fragments(stream: Stream, policy: str) -> None:
    (plain, held), (saved, held_saved) = (
        play(stream, policy),
        play(stream, policy, saved=True),
    )
    assert_same(held, held_saved)
    equal = partial(np.testing.assert_array_equal, strict=True)
    for one, other in zip(plain, saved, strict=True):
        equal(one.observation["board/cells"], other.observation["board/cells"])
        for name in ("action", "reward", "terminated", "truncated", "valid", "seat", "behind"):
            equal(getattr(one, name), getattr(other, name))


@many
@given(games(), policies)
def test_packing_leaves_what_it_was_given_as_it_was(stream: Stream, policy: str) -> None:
    turns, outcomes = stream.turns(policy, 0), stream.outcomes(0)
    before = Turns.from_arrays(turns.arrays())
    _, held = pack(turns, outcomes, stream.layout(policy), 1)
    assert_same(turns, before)
    assert not any(np.shares_memory(x, turns.arrays()[n]) for n, x in held.arrays().items())


def test_joined_turns_are_in_the_order_of_their_parts() -> None:
    first = table([(STEP, 0, 0, 0, 0.0, 1, 1), (STEP, 0, 1, 1, 0.5, 1, 2)], masked=True)
    second = table([(EDGE, 0, 0, 2, 0.0, 2, 3)], masked=True)
    joined = Turns.join([first, second])
    assert len(joined) == 3
    assert joined.observation[""].tolist() == [1, 2, 3]
    assert_same(joined.take([2]), second)
    assert_same(joined.take(slice(0, 2)), first)
    assert_same(Turns.join([first]), first)
