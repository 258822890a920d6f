"""Places that are few, such as streams and viewers, and who may take how many of them.

    streams = Shares(512, "streams")
    with streams.place(token): ...          # raises NoPlace, in words

A token below scope `admin` has at most half of the places, and an eighth is left for tokens of
that scope: whoever was given a token to look cannot shut out the others, and never the owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from rookery.control.tokens import Token
from rookery.errors import RookeryError

ASKER: ContextVar[Token | None] = ContextVar("asker", default=None)
"""Whose request a task carries out; None: this process's own."""


class NoPlace(RookeryError):
    """Why somebody gets no place, in one line."""


class Shares:
    """Places of one kind; for one thread."""

    def __init__(self, most: int, what: str, do: str = "close some") -> None:
        """`do`: what who has too many may do."""
        self._most, self._what, self._do = most, what, do
        self._share = (most + 1) // 2
        self._for_others = most - max(most // 8, min(most - 1, 1))
        self._taken: Counter[str] = Counter()  # by token
        self._count = self._by_others = 0  # in all, and by tokens that are not the owner's

    def __len__(self) -> int:
        """How many are taken."""
        return self._count

    def take(self, token: Token) -> None:
        own, is_owners = self._taken[token.id], token.scope == "admin"
        if not is_owners and own >= self._share:
            raise NoPlace(f"this token has {own} of {self._most} {self._what}: {self._do}")
        is_full = self._by_others >= self._for_others and not is_owners
        if is_full or len(self) >= self._most:
            raise NoPlace(f"all {self._most} {self._what} are taken: try again later")
        self._taken[token.id] += 1
        self._count += 1
        self._by_others += not is_owners

    def leave(self, token: Token) -> None:
        self._taken[token.id] -= 1
        self._count -= 1
        self._by_others -= token.scope != "admin"
        if not self._taken[token.id]:
            del self._taken[token.id]

    @contextmanager
    def place(self, token: Token) -> Iterator[None]:
        """A place while inside."""
        self.take(token)
        try:
            yield
        finally:
            self.leave(token)
