"""The metrics of all runs, from wherever they come."""

from __future__ import annotations

from collections.abc import Iterable

from rookery.control.home import Home
from rookery.control.log_messages import Message, is_shared
from rookery.control.run_state import DELETED, ENDED, STOPPED, RunState
from rookery.server.feed.run import RunFeed
from rookery.server.feed.run_metrics import RunMetrics
from rookery.server.feed.shared_topics import SharedFeed

FIRST = 200  # the newest runs, which are looked at before anybody is answered
LATER = 10  # others, at each poll


class Feeds:
    """One feed for each run with a bus of its own, one for all that share a cluster's topics."""

    def __init__(self, home: Home) -> None:
        self.metrics: dict[str, RunMetrics] = {}
        self._home = home
        self._shared = SharedFeed(home) if home.cluster is not None else None
        self._feeds: dict[str, RunFeed] = {}
        self._active: set[str] = set()  # runs whose feeds are polled
        self._later: dict[str, RunState] = {}  # runs of long ago that were not looked at yet

    def begin(self, states: Iterable[RunState]) -> None:
        """All that there is at first, oldest first: old runs that ended are looked at by and by,
        for each has a bus to be opened."""
        known = list(states)
        self._later = {s.id: s for s in known[:-FIRST] if s.status in ENDED and not is_shared(s)}
        for state in known:
            if state.id not in self._later:
                self.look(state, is_new=False)

    def look(self, state: RunState, *, is_new: bool) -> None:
        """The log spoke of the run: its metrics may begin, go on or end."""
        is_new = self._later.pop(state.id, None) is None and is_new
        if state.desired == DELETED:
            self._forget(state.id)
        elif self._shared is not None and is_shared(state):
            self.metrics[state.id] = self._shared.follow(state.id, state.desired != STOPPED)
        else:
            self._follow(state, is_new)

    def poll(self) -> list[Message]:
        for run in list(reversed(self._later))[:LATER]:  # the newest first
            self.look(self._later[run], is_new=False)
        found = self._shared.poll() if self._shared is not None else []
        for run in sorted(self._active):
            feed = self._feeds[run]
            found += feed.poll()
            if feed.is_done:
                self._active.discard(run)
        return found

    @property
    def troubles(self) -> dict[str, str]:
        """Run -> one line while its metrics cannot be read."""
        feeds = list(self._feeds.items())
        return {run: feed.trouble for run, feed in feeds if feed.trouble is not None}

    def reset(self) -> None:
        """After a failure: the next poll begins anew."""
        if self._shared is not None:
            self._shared.close()

    def close(self) -> None:
        self.reset()
        for feed in self._feeds.values():
            feed.close()

    def _follow(self, state: RunState, is_new: bool) -> None:
        if state.id in self._feeds:
            self._feeds[state.id].look(state)
        else:
            self._feeds[state.id] = RunFeed(self._home, state, is_new=is_new)
            self.metrics[state.id] = self._feeds[state.id].metrics
        self._active.add(state.id)

    def _forget(self, run: str) -> None:
        """Once its metrics are gone, no file of it is open."""
        self._active.discard(run)
        feed = self._feeds.pop(run, None)
        if feed is not None:
            feed.close()
        if self._shared is not None:
            self._shared.forget(run)
        self.metrics.pop(run, None)
