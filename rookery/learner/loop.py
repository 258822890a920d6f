"""The training loop.

    for update in learn(inbox, trainer, transport, progress, league): ...

Checkpoints, metrics and the decision to stop consume the stream of updates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rookery.learner.deliveries import Delivery
from rookery.learner.inbox import Inbox
from rookery.learner.transport import LearnerTransport
from rookery.messages.fragment import Fragment

if TYPE_CHECKING:
    from rookery.learner.league import LearnerLeague
    from rookery.learner.trainer import Running, Trainer


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

    @property
    def skipped(self) -> list[str]:
        """Policies that it left as they were."""
        return skipped(self.values)


@dataclass(frozen=True, slots=True)
class Begun:
    """An update that may still be computed."""

    deliveries: list[Delivery]
    lags: list[int]
    running: Running


def learn(
    inbox: Inbox,
    trainer: Trainer,
    transport: LearnerTransport,
    progress: Callable[[], float],
    league: LearnerLeague | None,
    stopped: Callable[[], bool] = lambda: False,
    ahead: int = 0,
    holds: Callable[[int, int], bool] = lambda now, begun: False,
) -> Iterator[Updated | None]:
    """Update after update; yields None whenever one of them or experience is waited for.

    Up to `ahead` updates are computed while the one before them is published; none is begun while
    `holds` says so of the next one's number and of how many were begun.
    """
    begun: deque[Begun] = deque()
    while not stopped():
        now = transport.number + len(begun)
        if inbox.receive(now) or transport.is_silent:
            transport.grant()
        batch = None if holds(now, len(begun)) else inbox.batch(now)
        if batch is not None:
            lags = [inbox.lag(delivery, now) for delivery in batch]
            begun.append(Begun(batch, lags, trainer.begin(by_policy(batch), progress())))
        if not begun or (len(begun) <= ahead and not begun[0].running.done()):
            yield None
            continue
        first = begun.popleft()
        values = trainer.finish(first.running)
        inbox.settle(first.deliveries, skipped(values))
        arrays = trainer.acting_arrays()
        number = transport.number + 1
        news = league.note(first.deliveries, number, arrays) if league is not None else None
        transport.publish(arrays, news)
        yield Updated(transport.number, first.deliveries, first.lags, values)


def skipped(values: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Policies whose next weights would not have been finite."""
    return [policy for policy, found in values.items() if found.get("skipped")]


def by_policy(deliveries: Sequence[Delivery]) -> dict[str, list[Fragment]]:
    found: dict[str, list[Fragment]] = {}
    for delivery in deliveries:
        for fragment in delivery.fragments:
            found.setdefault(fragment.header.policy, []).append(fragment)
    return found
