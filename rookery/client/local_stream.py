"""What happens to the runs of a home, read from its topics: the stream of a server without one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from types import TracebackType

from rookery.client.subscription import OF_ALL_RUNS, Event, StreamSubscription
from rookery.control.home import Home
from rookery.control.log_messages import Message
from rookery.control.log_reader import newest_seq, read_bus
from rookery.control.run_state import RunState

TICK_S = 0.05
PORTION = 1000  # messages of a channel at a time


class LocalFollowing:
    """For who may block; one thread's. Nothing is missed, and nothing comes twice."""

    def __init__(self, home: Home, wanted: StreamSubscription) -> None:
        self._home, self._wanted = home, wanted

    def __enter__(self) -> LocalFollowing:
        """What happens from now on will come."""
        for channel, state in self._channels() if self._wanted.fresh_from is None else ():
            if channel not in self._wanted.at:
                self._wanted.at[channel] = newest_seq(self._home, state, channel)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    @property
    def trouble(self) -> str | None:
        return self._home.control.trouble

    def poll(self, timeout_s: float) -> list[Event]:
        """What is new, as soon as there is something; nothing after so many seconds."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = [event for pair in self._channels() for event in self._new(*pair)]
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(max(0.0, min(TICK_S, deadline - time.monotonic())))

    def _channels(self) -> Iterator[tuple[str, RunState | None]]:
        """Every channel that is wanted, and its run where it has one."""
        yield from ((kind, None) for kind in self._wanted.kinds if kind in OF_ALL_RUNS)
        own = [kind for kind in self._wanted.kinds if kind not in OF_ALL_RUNS]
        for run, state in self._home.states().items() if own else ():
            if self._wants(run):
                yield from ((f"{kind}/{run}", state) for kind in own)

    def _new(self, channel: str, state: RunState | None) -> Iterator[Event]:
        after = self._wanted.at.get(channel, -1)
        messages = read_bus(self._home, state, channel, None, after, PORTION).messages
        if messages:
            self._wanted.at[channel] = messages[-1].seq
        return (_event(message) for message in messages if self._wants(message.run))

    def _wants(self, run: str) -> bool:
        return "*" in self._wanted.runs or run in self._wanted.runs


def _event(message: Message) -> Event:
    return Event(*message[:-1], data=json.loads(message.payload))
