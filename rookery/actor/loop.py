"""The playing loop.

    for happening in play(rollout, post): ...

Whatever is not playing (metrics, deadlines, the order in which an inline run takes turns) consumes
the stream of what happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from rookery.actor.experience import Experience
from rookery.codec import Arrays, Fragment, Weights


class Rollout(Protocol):
    """Plays one fragment's worth of steps with the given weights, going on where it left off."""

    can_save: bool

    def __call__(self, arrays: Arrays) -> Experience: ...

    def save(self) -> Arrays: ...

    def restore(self, state: Arrays) -> None: ...

    def restart(self, seed: int) -> None:
        """Begin new episodes; for environments whose state cannot be saved."""
        ...


class Post(Protocol):
    """The actor's side of the bus."""

    def admit(self) -> Weights | None:
        """The newest weights, once the learner lets the next fragment be played."""
        ...

    def send(self, experience: Experience, weights: Weights) -> Fragment: ...


def play(
    rollout: Rollout, post: Post, stopped: Callable[[], bool] = lambda: False
) -> Iterator[Fragment | None]:
    """Play fragment after fragment; yields None whenever the learner's credit is waited for."""
    while not stopped():
        weights = post.admit()
        if weights is None:
            yield None
            continue
        experience = rollout(weights.arrays)
        yield post.send(experience, weights)
