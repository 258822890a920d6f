"""Batches that follow the number of actors: when a run is scaled, the learner goes on with others.

Their size and the bound on their lag change between two updates, and only when all that waits or
was granted fits into them. A smaller size may have to wait until larger batches are used up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from rookery.config.models import LearnerConfig
from rookery.config.reading import for_actors
from rookery.errors import ConfigError
from rookery.learner.inbox import Inbox

logger = logging.getLogger(__name__)


class Scaling:
    """Looks at the orders, and changes the book and the trainer together."""

    def __init__(
        self,
        inbox: Inbox,
        config: LearnerConfig,
        any_age: bool,
        reshape: Callable[[int], None],
        grant: Callable[[], None],
    ) -> None:
        self._inbox, self._config, self._any_age = inbox, config, any_age
        self._reshape = reshape  # the trainer, to this many fragments of a batch
        self._grant = grant  # what there is room for then
        self._refused = (0, 0)

    def wanted(self) -> tuple[int, int]:
        """F and K for the actors of now; as they are until all that were asked for have joined."""
        book, count = self._inbox.book, self._inbox.orders.actors
        now = book.fragments_per_batch, book.max_lag
        if not count or not self._config.follows_actors:
            return now
        fragments, lag = for_actors(count, self._any_age)
        found = (
            now[0] if self._any_age else fragments,
            self._config.max_policy_lag_versions if lag is None else lag,
        )
        joined = sum(actor not in book.away for actor in book.upto)
        return now if found > now and joined < count else found

    def holds(self, now: int, begun: int) -> bool:
        """Whether no update may begin before those that were begun are finished; then it changes.

        Called between updates; `now` is the number of the next one.
        """
        book, wanted = self._inbox.book, self.wanted()
        drained, now_as = book.draining, (book.fragments_per_batch, book.max_lag)
        book.draining = wanted not in (now_as, self._refused)
        if not book.draining:
            if drained:
                self._grant()  # it was called off
            return False
        if not self._inbox.fits_as(*wanted, now):
            return False
        if not begun:
            self._change(*wanted)
        return bool(begun)

    def _change(self, fragments_per_batch: int, max_lag: int) -> None:
        try:
            self._reshape(fragments_per_batch)
        except ConfigError as error:
            logger.warning("batches stay as they are: %s", error)
            self._refused = (fragments_per_batch, max_lag)
            return
        logger.info("batches of %d, at most %d versions old", fragments_per_batch, max_lag)
        self._inbox.book.resize(fragments_per_batch, max_lag)
        self._grant()
