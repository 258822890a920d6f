"""How much one client may ask for: token buckets for requests, a bound on how JSON nests.

A bucket holds `burst` requests and fills at `per_s`: a client may come in a burst, and in the long
run no faster than that. Changes have a bucket of their own, far smaller, because each is a record
in the log for good.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import accumulate
from typing import Literal

Kind = Literal["request", "change"]
MAX_KEYS = 4096  # clients that are remembered; the one that was silent longest is forgotten
MAX_DEPTH = 64  # levels of JSON

# A string that never ends goes on to the end of the text, and nothing is tried twice: one pass.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_UP_DOWN = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # as signed bytes: 1 and -1


class RateLimits:
    """One pair of buckets for each key, a token's id."""

    def __init__(
        self,
        requests_per_s: float,
        burst: float,
        changes_per_s: float,
        change_burst: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates: dict[Kind, tuple[float, float]] = {
            "request": (requests_per_s, float(burst)),
            "change": (changes_per_s, float(change_burst)),
        }
        self._clock = clock
        self._buckets: dict[tuple[str, Kind], tuple[float, float]] = {}  # (content, as of when)

    def take(self, key: str, kind: Kind) -> float:
        """Take one from a bucket. 0.0: go on; else the seconds until there is one again."""
        per_s, burst = self._rates[kind]
        now = self._clock()
        content, since = self._buckets.pop((key, kind), (burst, now))
        content = min(burst, content + (now - since) * per_s)
        wait_s = 0.0 if content >= 1.0 else (1.0 - content) / per_s
        if not wait_s:
            content -= 1.0
        self._buckets[key, kind] = (content, now)
        if len(self._buckets) > 2 * MAX_KEYS:
            del self._buckets[next(iter(self._buckets))]
        return wait_s


def is_too_deep(body: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON in UTF-8 nests deeper than that.

    A parser that recurses runs out of stack on a few kB of brackets, so they are counted first.
    Where the text stops being JSON the count may be wrong, and a parser stops too.
    """
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    steps = _STRINGS.sub(b"", body).translate(_UP_DOWN, _OTHERS)
    if b"\x01" * (limit + 1) in steps:
        return True
    return max(accumulate(memoryview(steps).cast("b")), default=0) > limit
