"""What a client wants of the stream and how far it came, without I/O.

    send(subscription.request())
    for frame in connection:
        handle(subscription.take(frame))
        if subscription.again: send(subscription.request())

After a lost connection the same loop goes on after the last message of each channel.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rookery.errors import InputError, UnknownName
from rookery.foreign import one_line

KINDS = ("events", "commands", "metrics", "actors")
OF_ALL_RUNS = ("events", "commands")  # one channel each; of the others every run has its own
MOST_CHANNELS = 1000  # that are named when coming back: a server takes messages of 64 kB
LEFT_OUT = "left_out"


@dataclass(frozen=True, slots=True)
class Event:
    """One message of the stream; `data` was written by others, some of it by environments."""

    channel: str  # events, commands, metrics/RUN, actors/RUN
    seq: int  # grows along its channel; go on `after` it
    run: str
    kind: str  # worker_started, pause_run, training ...; left_out: messages that are gone for good
    time_s: float
    data: dict[str, Any]


FIELDS = tuple(field.name for field in fields(Event))


class StreamSubscription:
    """Frames in, events out: without a gap, and none twice."""

    def __init__(
        self,
        runs: Collection[str],
        kinds: Collection[str],
        after: Mapping[str, int] | int | None = None,
    ) -> None:
        """`after`: by channel, the seq to go on after; -1: all from the beginning; None: what
        comes from now on."""
        for kind in kinds:
            if kind not in KINDS:
                raise UnknownName("kind of events", kind, KINDS, f"Known: {', '.join(KINDS)}.")
        if not runs or not kinds:
            raise InputError("nothing to follow: name runs and kinds")
        self.again = False  # ask once more, on the same connection
        self.refused = ""  # why, if the server said so
        self.is_begun = False
        self.runs, self.kinds = list(runs), list(kinds)
        self.at: dict[str, int] = dict(after) if isinstance(after, Mapping) else {}  # last seq
        self.fresh_from = after if isinstance(after, int) else None  # of channels not known yet
        self._deaf = True  # until what was asked for begins
        self._gaps: dict[str, int] = {}  # channel -> first seq of what was asked for once more

    def request(self) -> str:
        """What to send; what comes before its answer does not count."""
        self.again, self._deaf, self.refused = False, True, ""
        newest = list(self.at.items())[-MOST_CHANNELS:]
        wanted = {"runs": self.runs, "kinds": self.kinds, "after": dict(newest)}
        return json.dumps({"type": "subscribe", **wanted})

    def take(self, frame: str | bytes) -> list[Event]:
        found = json.loads(frame)
        match found.get("type"):
            case "batch" if not self._deaf:
                return [e for m in found["messages"] if (e := self._fresh(m)) is not None]
            case "subscribed":
                self._begin(found["at"])
            case "left_out" if not self._deaf:
                return self._left_out(found)
            case "error":
                self.refused = one_line(str(found.get("detail", "")))
        return []

    def _fresh(self, message: Mapping[str, Any]) -> Event | None:
        event = Event(*(message[name] for name in FIELDS))
        if event.seq <= self.at.get(event.channel, -1):
            return None
        self._reach(event.channel, event.seq)
        return event

    def _reach(self, channel: str, seq: int) -> None:
        self.at.pop(channel, None)
        self.at[channel] = seq  # the liveliest channels stand last

    def _begin(self, at: Mapping[str, int]) -> None:
        """The server begins there. Channels that came up while we were away begin at their own
        beginning: those are asked for once more."""
        self._deaf = False
        unknown = {channel: seq for channel, seq in at.items() if channel not in self.at}
        begin = self.fresh_from
        if begin is not None and any(seq > begin for seq in unknown.values()):
            self.again = self._deaf = True
        self.at = {
            **{c: seq if begin is None else begin for c, seq in unknown.items()},
            **self.at,
        }
        for channel in self._named():
            self.at.setdefault(channel, -1)
        self.fresh_from, self.is_begun = -1, True

    def _named(self) -> list[str]:
        """The channels that can be told without the server."""
        shared = [kind for kind in self.kinds if kind in OF_ALL_RUNS]
        own = [kind for kind in self.kinds if kind not in OF_ALL_RUNS]
        runs = [run for run in self.runs if run != "*"]
        return shared + [f"{kind}/{run}" for kind in own for run in runs]

    def _left_out(self, frame: Mapping[str, Any]) -> list[Event]:
        """We were too slow: ask for it once more. What is left out again is gone for good."""
        channel, first, last = frame["channel"], int(frame["from"]), int(frame["to"])
        if self._gaps.get(channel) != first:
            self._gaps[channel] = first
            self.again = self._deaf = True
            return []
        self._reach(channel, max(last, self.at.get(channel, -1)))
        run = channel.partition("/")[2]
        gone = {"from": first, "to": last, "count": frame.get("count", last - first + 1)}
        return [Event(channel, last, run, LEFT_OUT, time.time(), gone)]
