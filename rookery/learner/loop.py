"""The training loop.

    for update in learn(inbox, trainer, transport, progress, league): ...

Checkpoints, metrics and the decision to stop consume the stream of updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.learner.inbox import Delivery, Inbox
from rookery.learner.transport import LearnerTransport
from rookery.messages.fragment import Fragment

if TYPE_CHECKING:
    from rookery.learner.league import LearnerLeague
    from rookery.learner.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Updated:
    """What one update did."""

    number: int  # of the weights it made
    deliveries: list[Delivery]
    lags: list[int]  # versions between each delivery's weights and those it trained
    values: dict[str, dict[str, float]]  # by policy

    @property
    def fragments(self) -> list[Fragment]:
        return [fragment for delivery in self.deliveries for fragment in delivery.fragments]


def learn(
    inbox: Inbox,
    trainer: Trainer,
    transport: LearnerTransport,
    progress: Callable[[], float],
    league: LearnerLeague | None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Updated | None]:
    """Update after update; yields None whenever experience is waited for."""
    while not stopped():
        if inbox.receive(transport.number):
            transport.grant()
        batch = inbox.batch(transport.number)
        if batch is None:
            yield None
            continue
        lags = [inbox.lag(delivery, transport.number) for delivery in batch]
        values = trainer.update(by_policy(batch), progress())
        inbox.settle(batch)
        arrays = trainer.acting_arrays()
        news = league.note(batch, transport.number + 1, arrays) if league is not None else None
        transport.publish(arrays, news)
        yield Updated(transport.number, batch, lags, values)


def by_policy(deliveries: Sequence[Delivery]) -> dict[str, list[Fragment]]:
    found: dict[str, list[Fragment]] = {}
    for delivery in deliveries:
        for fragment in delivery.fragments:
            found.setdefault(fragment.header.policy, []).append(fragment)
    return found
