"""Answers that were just given: many who ask the same at once cost what one does."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Kept(NamedTuple):
    stamp: tuple[object, ...]
    until_s: float
    answer: object


class Memo(Generic[T]):
    """Keeps the newest answers for a moment; safe from threads.

    An answer holds while its stamp is made of the very same objects and it is not too old.
    """

    def __init__(self, seconds: float, most: int = 256) -> None:
        self._seconds, self._most = seconds, most
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, stamp: tuple[object, ...], make: Callable[[], T]) -> T:
        with self._lock:
            kept = self._kept.get(key)
        if (
            kept is not None
            and time.monotonic() < kept.until_s
            and all(a is b for a, b in zip(kept.stamp, stamp, strict=True))
        ):
            return kept.answer  # type: ignore[return-value]
        answer = make()
        with self._lock:
            self._kept[key] = _Kept(stamp, time.monotonic() + self._seconds, answer)
            self._kept.move_to_end(key)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return answer
