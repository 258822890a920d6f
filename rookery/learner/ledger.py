"""The learner's count of every agent step: which fragments came, and what became of each.

A fragment is known by (actor, sequence). Each actor's sequences are kept as intervals per outcome,
so the whole history of a run is a few numbers, and a gap or an overlap cannot hide. Walk-ins are
trained or dropped one by one as room happens to be: of them only the steps are kept, by sender.
"""

from __future__ import annotations

import msgspec

from rookery.messages import WALK_IN, LedgerSummary

TRAINED = "trained"
LOST = "lost"  # gone from the bus before it was read
DAMAGED = "damaged"  # could not be read, or was part of a turn that could not

Interval = tuple[int, int]  # first and last sequence, both included


class Ledger(msgspec.Struct):
    """Plain data, part of the checkpoint."""

    trained: int = 0  # agent steps
    dropped: dict[str, int] = {}  # reason -> agent steps
    seen: dict[str, int] = {}  # actor -> agent steps received
    next_sequence: dict[str, int] = {}  # actor -> what should come next
    outcomes: dict[str, dict[str, list[Interval]]] = {}  # actor -> outcome -> sequences
    duplicates: int = 0
    gaps: int = 0
    damaged: int = 0  # messages that are none
    walk_ins: dict[str, dict[str, int]] = {}  # sender -> outcome -> agent steps

    def receive(self, actor: str, sequence: int, steps: int, first_step: int = 0) -> bool:
        """Note an arrival; False if this fragment has been here before.

        `first_step` says how many steps its actor had sent before: those that never came, as when
        retention overtook the learner, are dropped as lost.
        """
        expected = self.next_sequence.get(actor, 0)
        if sequence < expected:
            self.duplicates += 1
            return False
        self.gaps += sequence - expected
        self.next_sequence[actor] = sequence + 1
        self.catch_up(actor, first_step)
        self.seen[actor] = self.seen.get(actor, 0) + steps
        return True

    def catch_up(self, actor: str, steps: int) -> None:
        """An actor says how many steps it had sent: those that never came are lost."""
        lost = steps - self.seen.get(actor, 0)
        if lost > 0:
            self.seen[actor] = steps
            self.drop_some(lost, LOST, actor)

    def goes_on(self, actor: str, sequence: int, first_step: int) -> bool:
        """Whether these are the very next numbers of this actor."""
        known = self.next_sequence.get(actor, 0), self.seen.get(actor, 0)
        return (sequence, first_step) == known

    def train(self, actor: str, sequence: int, steps: int) -> None:
        self.trained += steps
        self._settle(actor, sequence, steps, TRAINED)

    def drop(self, actor: str, sequence: int, steps: int, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + steps
        self._settle(actor, sequence, steps, reason)

    def drop_some(self, steps: int, reason: str, actor: str) -> None:
        """Steps of a fragment whose others were trained, or that never came."""
        self.dropped[reason] = self.dropped.get(reason, 0) + steps
        self._count(actor, steps, reason)

    def _count(self, actor: str, steps: int, outcome: str) -> None:
        if actor.startswith(WALK_IN):
            counts = self.walk_ins.setdefault(actor, {})
            counts[outcome] = counts.get(outcome, 0) + steps

    def _settle(self, actor: str, sequence: int, steps: int, outcome: str) -> None:
        if actor.startswith(WALK_IN):
            self._count(actor, steps, outcome)
            return
        intervals = self.outcomes.setdefault(actor, {}).setdefault(outcome, [])
        if intervals and intervals[-1][1] == sequence - 1:
            intervals[-1] = (intervals[-1][0], sequence)
        else:
            intervals.append((sequence, sequence))

    def summary(self, pending: int, position: tuple[int, ...]) -> LedgerSummary:
        return LedgerSummary(
            trained=self.trained,
            dropped=dict(self.dropped),
            pending=pending,
            position=position,
            seen=dict(self.seen),
            duplicates=self.duplicates,
            gaps=self.gaps,
            damaged=self.damaged,
        )
