"""The training loop.

    for update in learn(inbox, trainer, post, progress, leagues): ...

Checkpoints, metrics and the decision to stop consume the stream of updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.codec import Fragment
from rookery.learner.batching import Inbox, Turn
from rookery.learner.post import LearnerPost

if TYPE_CHECKING:
    from rookery.learner.leagues import Leagues
    from rookery.learner.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Updated:
    """What one update did."""

    number: int  # of the weights it made
    turns: list[Turn]
    lags: list[int]  # versions between each turn's weights and those it trained
    values: dict[str, dict[str, float]]  # by policy

    @property
    def fragments(self) -> list[Fragment]:
        return [fragment for turn in self.turns for fragment in turn.fragments]


def learn(
    inbox: Inbox,
    trainer: Trainer,
    post: LearnerPost,
    progress: Callable[[], float],
    leagues: Leagues | None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Updated | None]:
    """Update after update; yields None whenever experience is waited for."""
    while not stopped():
        if inbox.receive(post.number):
            post.grant()
        batch = inbox.batch(post.number)
        if batch is None:
            yield None
            continue
        lags = [inbox.lag(turn, post.number) for turn in batch]
        values = trainer.update(by_policy(batch), progress())
        inbox.settle(batch)
        arrays = trainer.acting_arrays()
        news = leagues.note(batch, post.number + 1, arrays) if leagues is not None else None
        post.publish(arrays, news)
        yield Updated(post.number, batch, lags, values)


def by_policy(turns: Sequence[Turn]) -> dict[str, list[Fragment]]:
    found: dict[str, list[Fragment]] = {}
    for turn in turns:
        for fragment in turn.fragments:
            found.setdefault(fragment.header.policy, []).append(fragment)
    return found
