"""Walk-ins: fragments that nobody granted a credit for, from whoever cannot wait for one.

They take room that is free, and never a place that a credit stands for; `places` says how much is
left free for them. Each brings rows of one policy, of any number up to those of a granted fragment:
it is filled up with rows that are not valid, and so are the fragments of the other policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from rookery.learner.deliveries import Delivery
from rookery.messages.fragment import Fragment
from rookery.messages.steps import Steps, fits, padded

LATE = "late"  # older than the bound, and nothing here corrects for that or has room for it
MISFIT = "misfit"  # not of the shape of this run's experience, or from weights to come
OTHERS = "others"  # not decided by the policy, whose algorithm learns from nothing else


@dataclass(frozen=True)
class WalkIns:
    """What a learner makes of them."""

    blanks: Mapping[str, Steps] = field(default_factory=dict)  # by policy: an empty fragment's rows
    places: int = 0  # that credits leave free
    corrects: bool = False  # every algorithm does, for the age of what it trains on
    imitating: frozenset[str] = frozenset()  # policies that learn from what others decided too

    @property
    def parts(self) -> int:
        """Fragments of a delivery: one of each policy that learns."""
        return max(1, len(self.blanks))

    def refusal(self, delivery: Delivery, lag: int, max_lag: int) -> str:
        """Why a delivery cannot be trained however much room there is; empty: it can."""
        if lag < 0 or not all(map(self._fits, delivery.fragments)):
            return MISFIT
        if not delivery.walk_in:
            return ""
        if not self.used(delivery.fragments[0]).any():
            return OTHERS
        return LATE if lag > max_lag and not self.corrects else ""

    def _fits(self, fragment: Fragment) -> bool:
        """Only a walk-in may be smaller than what is trained."""
        header, steps = fragment
        blank = self.blanks.get(header.policy)
        if blank is None:
            return not (self.blanks or header.walk_in)
        same = steps.valid.shape == blank.valid.shape
        return (same or header.walk_in) and fits(steps, blank)

    def used(self, fragment: Fragment) -> np.ndarray:
        """(T, B) bool: rows that the policy's algorithm learns from."""
        steps = fragment.steps
        return steps.valid if fragment.header.policy in self.imitating else steps.known

    def whole(self, delivery: Delivery) -> Delivery:
        """With fragments of every policy, each as large as a granted one."""
        (header, steps), rest = delivery.fragments[0], dict(self.blanks)
        own = Fragment(header, padded(steps, rest.pop(header.policy)))
        empty = [
            Fragment(msgspec.structs.replace(header, policy=p, steps=0, episodes=(), games=()), s)
            for p, s in rest.items()
        ]
        return replace(delivery, fragments=(own, *empty))

    def kept_free(self, waiting: Iterable[Delivery]) -> int:
        """How many of the places are not taken yet."""
        return max(0, self.places - sum(delivery.walk_in for delivery in waiting))


def younger(fragment: Fragment, bound: int) -> Fragment:
    """Without the rows whose weights are older than the header's by more than this."""
    steps = fragment.steps
    return fragment._replace(steps=steps._replace(valid=steps.valid & (steps.behind <= bound)))


def oldest(fragment: Fragment) -> int:
    return int(np.max(fragment.steps.behind, initial=0))
