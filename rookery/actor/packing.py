"""From turns to fragments: what one policy did at its seats, as T x B rows.

A rollout writes down each decision as a `Turn`: who, when, what was seen and done. A seat's step is
complete at its own next turn or at the end of its part in the episode; until then it is held, over
the edge of a fragment if need be, so its next observation is always its own and every reward in
between is its own. A lane carries trajectories one after the other:

    step step step(terminated) step step edge step step edge padding ...

where an edge is a row outside experience whose observation is the seat's own next one: the value
of the step before it bootstraps from there, and nothing flows across. Where seats take turns, a
lane is a slot, so the turns of all its seats fill it up; where all act together, each seat of a
slot has a lane of its own.

A row says which kind of player decided it. Where that changes within a trajectory nothing flows
across either: the row below shows the next observation already, so no row is spent on an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rookery.messages.frame import Arrays
from rookery.messages.steps import LONG_AGO, Steps, each, from_named, named_arrays
from rookery.spaces import SeatSpec, stored_action
from rookery.worker.policies import Layout

STEP, EDGE, FINAL = 0, 1, 2  # a decision; an observation at a turn not yet taken; a truncation's


@dataclass(frozen=True)
class Turns:
    """Turns of one policy, a row each, in any order. Times count environment steps from 0."""

    kind: np.ndarray  # (E,) int8: STEP, EDGE or FINAL
    slot: np.ndarray  # (E,) int32
    seat: np.ndarray  # (E,) int32, in the order of the environment's seats
    time: np.ndarray  # (E,) int32; -1: held over from the fragment before
    earlier: np.ndarray  # (E,) float64: reward that belongs to it from before `time`
    number: np.ndarray  # (E,) int64: of the weights that acted
    log_prob: np.ndarray  # (E,) float32; NaN where another decided
    action: np.ndarray  # (E, ...)
    mask: np.ndarray | None  # (E, actions)
    observation: Arrays  # leaf -> (E, ...)
    player: np.ndarray  # (E,) uint8: which kind decided
    state: Arrays  # leaf -> (E, ...): the player's, before it decided

    def __len__(self) -> int:
        return len(self.kind)

    @staticmethod
    def none(spec: SeatSpec, choices: int, state: Arrays | None = None) -> Turns:
        """No turns, of these spaces; `choices` is the width of a mask, `state` of no lanes."""
        shape, dtype = stored_action(spec.action)
        return Turns(
            kind=np.zeros(0, np.int8),
            slot=np.zeros(0, np.int32),
            seat=np.zeros(0, np.int32),
            time=np.zeros(0, np.int32),
            earlier=np.zeros(0, np.float64),
            number=np.zeros(0, np.int64),
            log_prob=np.zeros(0, np.float32),
            action=np.zeros((0, *shape), dtype),
            mask=np.zeros((0, choices), np.bool_) if spec.masked else None,
            observation={
                leaf.path: np.zeros((0, *leaf.shape), leaf.dtype) for leaf in spec.observation
            },
            player=np.zeros(0, np.uint8),
            state={} if state is None else state,
        )

    def zeros(self, count: int) -> Turns:
        """As many turns as asked for, of these spaces and all zero."""
        return each(lambda x: np.zeros((count, *x.shape[1:]), x.dtype), self)

    def take(self, index: Any) -> Turns:
        """The turns at these rows, in their order."""
        return each(lambda x: x[index], self)

    @staticmethod
    def join(parts: Sequence[Turns]) -> Turns:
        if len(parts) == 1:
            return parts[0]
        return each(lambda *arrays: np.concatenate(arrays), *parts)

    def arrays(self) -> Arrays:
        """Everything by name, for a checkpoint; `from_arrays` reads it back."""
        return dict(named_arrays(self))

    @staticmethod
    def from_arrays(arrays: Arrays) -> Turns:
        copies = {name: np.array(array) for name, array in arrays.items()}
        copies.setdefault("player", np.zeros(len(copies["kind"]), np.uint8))
        return from_named(Turns, copies, ("observation", "state"))


@dataclass(frozen=True)
class Outcomes:
    """What each environment step gave each seat: (N, slots, seats)."""

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.reward)


def pack(turns: Turns, outcomes: Outcomes, layout: Layout, number: int) -> tuple[Steps, Turns]:
    """The fragment that these turns make, and the steps that are still held.

    `turns` include those held before; `number` is that of the weights that play now.
    """
    if not len(turns):  # one that makes no row, for a policy that sat nowhere
        turns = replace(turns.zeros(1), kind=np.array([EDGE], np.int8))
    turns = turns.take(np.lexsort((turns.kind == FINAL, turns.time, turns.seat, turns.slot)))
    count = len(turns)
    same_next = np.zeros(count, bool)  # the turn after it is of the same seat and slot
    if count > 1:
        same_next[:-1] = (turns.slot[1:] == turns.slot[:-1]) & (turns.seat[1:] == turns.seat[:-1])
    end = _first_end(outcomes, turns)
    next_time = np.full(count, outcomes.steps, np.int64)
    next_time[:-1][same_next[:-1]] = turns.time[1:][same_next[:-1]]
    next_is_final = np.zeros(count, bool)
    next_is_final[:-1] = same_next[:-1] & (turns.kind[1:] == FINAL)
    is_step = turns.kind == STEP
    ended = is_step & (end < outcomes.steps) & ((end < next_time) | next_is_final)
    at_end = (np.minimum(end, outcomes.steps - 1), turns.slot, turns.seat)
    cut = ended & outcomes.truncated[at_end] & ~outcomes.terminated[at_end]
    lost = cut & ~next_is_final  # what it led to was never shown: no value can stand for it
    complete = (ended | (is_step & same_next)) & ~lost
    until = np.where(ended, end + 1, next_time)  # first step whose reward is no longer its own
    reward = turns.earlier + _summed(outcomes.reward, turns, until)

    goes_on = np.zeros(count, bool)  # the step before it is the same seat's and goes on to here
    goes_on[1:] = same_next[:-1] & is_step[:-1] & (~ended[:-1] | (turns.kind[1:] == FINAL))
    rows = np.flatnonzero(complete | goes_on)
    steps = _lay_out(turns, rows, complete, ended, end, reward, outcomes, layout, number)
    open_steps = np.flatnonzero(is_step & ~complete & ~lost)
    held = turns.take(open_steps)
    held.time[:], held.earlier[:] = -1, reward[open_steps]
    return steps, held


def _first_end(outcomes: Outcomes, turns: Turns) -> np.ndarray:
    """The first step, from each turn's own on, that ended its seat's part; N if none did."""
    steps = outcomes.steps
    ended = outcomes.terminated | outcomes.truncated
    first = np.full((steps + 1, *ended.shape[1:]), steps, np.int64)
    for t in range(steps - 1, -1, -1):
        first[t] = np.where(ended[t], t, first[t + 1])
    found: np.ndarray = first[np.clip(turns.time, 0, steps), turns.slot, turns.seat]
    return found


def _summed(reward: np.ndarray, turns: Turns, until: np.ndarray) -> np.ndarray:
    """Each turn's reward from its own time up to, not including, `until`."""
    total = np.zeros((len(reward) + 1, *reward.shape[1:]))
    np.cumsum(reward, axis=0, dtype=np.float64, out=total[1:])
    first = np.maximum(turns.time, 0)
    at = (turns.slot, turns.seat)
    found: np.ndarray = total[np.maximum(until, first), *at] - total[first, *at]
    return found


def _lay_out(
    turns: Turns,
    rows: np.ndarray,
    complete: np.ndarray,
    ended: np.ndarray,
    end: np.ndarray,
    reward: np.ndarray,
    outcomes: Outcomes,
    layout: Layout,
    number: int,
) -> Steps:
    """Lay the rows into their lanes, one below the other."""
    steps, lanes = layout.rows, layout.lanes
    lane = layout.lane(turns.slot[rows], turns.seat[rows])
    position = _count_within(lane)
    source = np.full((steps + 1, lanes), -1, np.int64)
    if (position >= np.where(complete[rows], steps, steps + 1)).any():
        raise RuntimeError("a lane overflows: the rollout was longer than its layout allows")
    source[position, lane] = rows
    filled = source >= 0
    seen = source[:-1]
    valid = filled[:-1] & complete[seen]
    finished = valid & ended[seen]
    at = (np.clip(end[seen], 0, outcomes.steps - 1), turns.slot[seen], turns.seat[seen])
    behind = np.clip(number - turns.number[seen], 0, LONG_AGO)
    laid = Steps(
        observation={leaf: _rows(x, source, filled) for leaf, x in turns.observation.items()},
        action=_rows(turns.action, seen, valid),
        reward=np.where(valid, reward[seen], 0.0).astype(np.float32),
        terminated=finished & outcomes.terminated[at],
        truncated=finished & outcomes.truncated[at],
        valid=valid,
        log_prob=np.where(valid, turns.log_prob[seen], 0.0).astype(np.float32),
        seat=np.where(valid, turns.seat[seen], 0).astype(np.uint8),
        player=_rows(turns.player, seen, valid),
        behind=np.where(valid, behind, 0).astype(np.uint8),
        mask=None if turns.mask is None else _mask(turns.mask, source, filled),
    )
    if not turns.state:
        return laid
    return laid.with_state({leaf: x[seen] for leaf, x in turns.state.items()})


def _count_within(lane: np.ndarray) -> np.ndarray:
    """0, 1, 2 ... within each run of equal lanes."""
    if not len(lane):
        return np.zeros(0, np.int64)
    begins = np.flatnonzero(np.r_[True, lane[1:] != lane[:-1]])
    lengths = np.diff(np.r_[begins, len(lane)])
    return np.arange(len(lane)) - np.repeat(begins, lengths)


def _rows(array: np.ndarray, source: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """(T, B, ...) rows of `array`, zero where nothing is."""
    out: np.ndarray = array[source]
    out[~filled] = 0
    return out


def _mask(mask: np.ndarray, source: np.ndarray, filled: np.ndarray) -> np.ndarray:
    """As `_rows`; every action is legal in padding, so that no arithmetic meets an empty choice."""
    out = _rows(mask, source, filled)
    out[~filled] = True
    return out
