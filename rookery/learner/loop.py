"""The training loop.

    for update in learn(inbox, trainer, post, progress): ...

Checkpoints, metrics and the decision to stop consume the stream of updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.codec import Fragment
from rookery.learner.batching import Inbox
from rookery.learner.post import LearnerPost

if TYPE_CHECKING:
    from rookery.learner.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Updated:
    """What one update did."""

    number: int  # of the weights it made
    fragments: list[Fragment]
    lags: list[int]  # versions between each fragment's weights and those it trained
    values: dict[str, float]


def learn(
    inbox: Inbox,
    trainer: Trainer,
    post: LearnerPost,
    progress: Callable[[], float],
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
        lags = [inbox.lag(fragment, post.number) for fragment in batch]
        values = trainer.update(batch, progress())
        inbox.settle(batch)
        post.publish(trainer.acting_arrays())
        yield Updated(post.number, batch, lags, values)
