"""The control log for the follower: folded into states, and kept as messages.

Commands that nobody vouches for are not handed on: whoever may write to the bus could put any name
under them.
"""

from __future__ import annotations

import heapq

from rookery.bus import Record, Subscription
from rookery.control.home import Home
from rookery.control.log_messages import CHANNELS, PORTION, Message, only, read_record
from rookery.control.run_log import RunLog
from rookery.control.run_state import RunState
from rookery.messages import Command, CommandAccepted, CommandRejected, Event
from rookery.server.feed.recent_log import Stretch
from rookery.server.feed.shared_topics import POLL_S

RECENT = 20_000  # messages of a channel in memory
RECENT_BYTES = 32 << 20
AT_FIRST = 2_000  # that are read when the following begins; older ones are on the bus
ANSWERS = 20_000  # to commands, in memory

_Said = tuple[Message, Command | Event]


class ControlFeed:
    """Events and commands from where the reading was left, and the states that follow from them."""

    def __init__(self, home: Home) -> None:
        self.answers: dict[str, CommandAccepted | CommandRejected] = {}
        self.recent = {channel: Stretch(-1, RECENT, RECENT_BYTES) for channel in CHANNELS}
        self.ends = dict.fromkeys(CHANNELS, -1)
        self.states: dict[str, RunState] = {}  # exchanged as a whole
        self._home = home
        self._next = dict.fromkeys(CHANNELS, 0)
        self._readers: dict[str, Subscription] = {}
        self._log: RunLog | None = None
        self._is_behind = True  # the states, after the messages
        self._wait_s = 0.0

    def poll(self) -> list[Message]:
        """What is new, in the order of time; the states are never behind it.

        Events are read first: what they answer was published before, so it is read too.
        """
        if not self._readers:
            self._begin()
        records = {channel: self._records(channel) for channel in CHANNELS}
        self._is_behind |= any(records.values())
        if self._is_behind:
            self._fold()
        said = {channel: self._said(channel, found) for channel, found in records.items()}
        self._wait_s = POLL_S if self._home.cluster is not None else 0.0
        for channel, found in records.items():  # from here on nothing can fail
            if found:
                self._next[channel] = found[-1].offset + 1
        lists = [self._taken(channel, pairs) for channel, pairs in said.items()]
        return list(heapq.merge(*lists, key=lambda message: message.time_s))

    def reset(self) -> None:
        """After a failure: read on from what was handed on, and fold from what was saved."""
        readers, self._readers, self._log = self._readers, {}, None
        self._is_behind, self._wait_s = True, 0.0
        for reader in readers.values():
            reader.close()

    def _begin(self) -> None:
        control, readers = self._home.control, {}
        for channel, (topic, _) in CHANNELS.items():
            end = only(control.end(topic), topic)
            if not self._next[channel] and end > AT_FIRST:
                self._next[channel] = end - AT_FIRST
                self.recent[channel] = Stretch(end - AT_FIRST - 1, RECENT, RECENT_BYTES)
            readers[channel] = control.subscribe(topic, (self._next[channel],))
        self._log = RunLog(self._home)
        self._readers = readers

    def _records(self, channel: str) -> list[Record]:
        reader, found = self._readers[channel], list[Record]()
        while more := reader.poll(self._wait_s, limit=PORTION):
            found += more
        return found

    def _said(self, channel: str, records: list[Record]) -> list[_Said]:
        pairs = (read_record(self._home, channel, record, self.states) for record in records)
        return [pair for pair in pairs if pair is not None]

    def _fold(self) -> None:
        assert self._log is not None
        self._log.read()
        self._is_behind = self._home.control.trouble is not None
        self.states = dict(self._log.states)

    def _taken(self, channel: str, pairs: list[_Said]) -> list[Message]:
        messages = [message for message, _ in pairs]
        for _, said in pairs:
            if isinstance(said, CommandAccepted | CommandRejected):
                self.answers.setdefault(said.command, said)  # the first counts
                if len(self.answers) > ANSWERS:
                    del self.answers[next(iter(self.answers))]
        if messages:
            self.recent[channel].add(messages)
            self.ends[channel] = messages[-1].seq
        return messages
