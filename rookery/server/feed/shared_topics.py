"""The metrics of all runs of a cluster that share topics: two readers, however many runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from rookery.bus import EARLIEST, Position, Record, Subscription
from rookery.control.home import Home
from rookery.control.log_messages import PORTION, TOPICS, Message, only
from rookery.server.feed.run_metrics import RunMetrics

POLL_S = 0.001  # of a reader on a cluster: with no time at all it would ask for the topic's end


class SharedFeed:
    """Sorts what is new by run; messages of runs that it was not told of are passed over."""

    def __init__(self, home: Home) -> None:
        self._runs: dict[str, RunMetrics] = {}
        self._live: set[str] = set()  # runs whose messages are kept in memory
        self._home = home
        self._found: list[Message] = []  # read, not handed on yet
        self._next: dict[str, Position] = {}
        self._readers: dict[str, Subscription] = {}

    def follow(self, run: str, is_live: bool) -> RunMetrics:
        metrics = self._runs.setdefault(run, RunMetrics(run))
        if is_live:
            self._live.add(run)
        else:
            self._live.discard(run)
            metrics.recent.clear()
        return metrics

    def forget(self, run: str) -> None:
        self._runs.pop(run, None)
        self._live.discard(run)

    def poll(self) -> list[Message]:
        for part, topic in TOPICS.items():
            if part not in self._readers:
                self._readers[part] = self._reader(part, topic)
            reader = self._readers[part]
            self._found += self._take(part, reader.poll(POLL_S, limit=PORTION))
            self._next[part] = reader.position()
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        readers, self._readers = self._readers, {}
        for reader in readers.values():
            reader.close()

    def _reader(self, part: str, topic: str) -> Subscription:
        """At first it reads all that is kept, for the newest of each run; that is not handed on."""
        control = self._home.control
        if part in self._next:
            return control.subscribe(topic, self._next[part])
        only(control.end(topic), topic)
        reader = control.subscribe(topic, EARLIEST)
        while records := reader.poll(0.0, limit=PORTION):
            self._take(part, records)
        self._next[part] = reader.position()
        return reader

    def _take(self, part: str, records: Iterable[Record]) -> list[Message]:
        by_run: Mapping[str, list[Record]] = defaultdict(list)
        for record in records:
            by_run[record.headers.get("run", "")].append(record)
        found: list[Message] = []
        for run, own in by_run.items():
            metrics = self._runs.get(run)
            if metrics is None:
                continue
            if run in self._live and part not in metrics.recent:
                metrics.begin(part, own[0].offset - 1)
            found += metrics.take(part, own)
        return sorted(found, key=lambda message: message.seq)
