"""The metrics of a run that has a bus of its own.

The bus is open only while there may be something new on it. A run that does not run is read once
and its bus closed; one that should run but says nothing is put to sleep until its file or its
log changes: thousands of old runs cost a little memory each, and no open file.
"""

from __future__ import annotations

import logging
import os
import time

from rookery.bus import Bus, Subscription
from rookery.control.home import Home
from rookery.control.log_messages import PORTION, TOPICS, Message, only
from rookery.control.run_state import DELETED, STOPPED, RunState
from rookery.errors import RookeryError
from rookery.server.feed.run_metrics import RECENT, RunMetrics
from rookery.server.feed.shared_topics import POLL_S

logger = logging.getLogger(__name__)

NEWEST = 16  # records that are looked at for the newest metrics of a run that does not run
LINGER_S = 5.0  # a run that ended is listened to this long: its learner's last words come late
QUIET_S = 30.0  # without a word before a run is put to sleep; a learner reports every second
LOOK_S = 1.0  # how often a file is looked at: whether it was exchanged, or has grown in sleep
ABSENT_S = 0.25  # how often to look for a bus that does not exist yet
RETRY_S = 5.0  # until a bus that failed is tried again

_File = tuple[int, int, int]  # inode, size and time of the log before a database


class RunFeed:
    """Follows one run's own bus; a failure is noted in `trouble` and tried again."""

    def __init__(self, home: Home, state: RunState, *, is_new: bool) -> None:
        """A run that is new is handed on from its first message, others from now on."""
        self.metrics = RunMetrics(state.id)
        self.trouble: str | None = None
        self._home, self._state = home, state
        self._bus: Bus | None = None
        self._readers: dict[str, Subscription] = {}
        self._next: dict[str, int] = dict.fromkeys(TOPICS, 0) if is_new else {}
        self._inode = 0
        self._found: list[Message] = []  # read, not handed on yet
        self._quiet: _File | None = None  # as it was before a read that found nothing
        self._asleep: _File | None = None
        self._try_at = self._look_at = self._heard_at = 0.0
        self._wait_s = POLL_S if home.cluster is not None else 0.0
        self._until = time.monotonic()  # a run that does not run is read once
        self.look(state)

    def look(self, state: RunState) -> None:
        """Something was said about the run: its bus is worth a look."""
        was_live, self._state = self._is_live, state
        now = time.monotonic()
        if self._is_live or was_live:
            self._until = now + LINGER_S
        self._heard_at, self._asleep, self._try_at = now, None, 0.0

    @property
    def _is_live(self) -> bool:
        return self._state.desired not in (STOPPED, DELETED)

    @property
    def is_done(self) -> bool:
        """Nothing is open and nothing will come unless the log speaks of the run again."""
        return self._bus is None and not self._is_live and time.monotonic() > self._until

    def poll(self) -> list[Message]:
        now = time.monotonic()
        try:
            if not self._is_awake(now):
                return []
            found = self._read()
            self.trouble = None
        except (RookeryError, OSError) as error:
            self._fail(str(error))
            return []
        except Exception as error:
            logger.exception("metrics of run %s", self._state.id)
            self._fail(f"{type(error).__name__}: {error}")
            return []
        if found:
            self._heard_at = now
        elif not self._is_live and now > self._until:
            self._rest()
        elif self._is_live and now - self._heard_at > QUIET_S:
            self._sleep()
        return found

    def close(self) -> None:
        bus, self._bus = self._bus, None
        self._readers = {}
        try:
            if bus is not None:
                bus.close()
        except (RookeryError, OSError) as error:
            logger.warning("the bus of run %s was not closed: %s", self._state.id, error)

    def _is_awake(self, now: float) -> bool:
        """Whether the bus is open; opens it if that is worth a try."""
        if now < self._look_at and self._asleep is not None:
            return False
        if now >= self._look_at:
            self._look_at = now + LOOK_S
            file = self._file()
            if self._asleep is not None and file == self._asleep:
                return False
            if self._bus is not None and self._inode and (not file or file[0] != self._inode):
                logger.warning("the bus of run %s was taken away", self._state.id)
                self.close()
        if self._bus is None and now >= self._try_at:
            self._open()
        return self._bus is not None

    def _open(self) -> None:
        self._try_at = time.monotonic() + ABSENT_S
        self._bus, self._asleep = self._home.read_run_bus(self._state), None
        if self._bus is None:
            self._next = self._next or dict.fromkeys(TOPICS, 0)  # all of it will be new
            return
        file = self._file()
        if file is not None and self._inode not in (0, file[0]):
            self._next = dict.fromkeys(TOPICS, 0)  # another file: it counts from its beginning
            self.metrics.recent.clear()
        self._inode = file[0] if file is not None else 0
        for part, topic in TOPICS.items():
            self._readers[part] = self._reader(self._bus, part, topic)

    def _reader(self, bus: Bus, part: str, topic: str) -> Subscription:
        """From where it was left; at first from a little before the end, which is not handed on."""
        if part in self._next:
            if part not in self.metrics.recent:
                self.metrics.begin(part, self._next[part] - 1)
            return bus.subscribe(topic, (self._next[part],))
        end = only(bus.end(topic), topic)
        back = RECENT if self._is_live or part == "actors" else NEWEST
        reader = bus.subscribe(topic, (max(0, end - back),))
        self.metrics.begin(part, only(reader.position(), topic) - 1)
        while records := reader.poll(0.0, limit=PORTION):
            found = self.metrics.take(part, records)
            if self.trouble is not None:  # who listens has waited for it
                self._found += found
            if records[-1].offset + 1 >= end:
                break
        self._next[part] = only(reader.position(), topic)
        return reader

    def _read(self) -> list[Message]:
        for part, reader in self._readers.items():
            self._found += self.metrics.take(part, reader.poll(self._wait_s, limit=PORTION))
            self._next[part] = only(reader.position(), TOPICS[part])
        found, self._found = self._found, []
        return found

    def _rest(self) -> None:
        """The run does not run: its newest numbers stay, its messages are on the bus."""
        self.close()
        self.metrics.recent.clear()

    def _sleep(self) -> None:
        """A file is looked at from outside; a cluster's topics have no outside."""
        file = self._file()
        if file is not None and file == self._quiet:  # nothing came since it was last read
            self._asleep = file
            self.close()
        self._quiet = file

    def _file(self) -> _File | None:
        path = self._home.bus_path(self._state.id)
        try:
            inode = os.stat(path).st_ino
        except FileNotFoundError:
            return None
        try:
            log = os.stat(f"{path}-wal")
        except FileNotFoundError:
            return inode, 0, 0
        return inode, log.st_size, log.st_mtime_ns

    def _fail(self, why: str) -> None:
        line = f"metrics of run {self._state.id} cannot be read: {why}"
        if line != self.trouble:
            logger.warning("%s", line)
        self.trouble, self._try_at = line, time.monotonic() + RETRY_S
        self.close()
