"""Every error that Rookery raises on purpose.

RookeryError
├── InputError             what a person asked for cannot be done; exit code 2
│   ├── ConfigError        a key, type or range in a config
│   ├── UnknownName        a name that does not exist; carries the nearest ones
│   ├── MissingExtra       an optional package that the named thing needs
│   ├── Unreachable        a server that does not answer at its address
│   ├── Unauthorized       a server that does not know the token
│   ├── Forbidden          what the owner of the server has not allowed
│   └── Rejected           a command that its run cannot carry out now
├── MessageError           bytes that are not a valid message
├── BusError               the bus cannot do what was asked
│   ├── BusUnmade          the bus is being made by another process, or was left half-made
│   ├── BusRefused         a cluster that does not answer or does not let us in; an InputError too
│   │   └── BusAway        one that does not answer
│   ├── BusFull            a bounded topic stayed full for the whole time-out
│   └── BusClosed          used after close
├── StoreError             a checkpoint store cannot be read or written
│   ├── StoreRefused       one that does not answer or does not let us in; an InputError too
│   └── DamagedCheckpoint  a checkpoint whose content does not match its manifest
│       └── CheckpointGone  one that was removed meanwhile
├── EnvironmentFailed      an environment raised, or hung past its deadline
├── MaskError              a seat was offered no legal action, or was about to play an illegal one
├── MoveFailed             a deferred player gave no move and its fallback is to stop
├── LearnerFenced          another learner took the run over
├── CrewLost               another learner of the crew is gone: this one cannot go on alone
├── ServerFailed           a server's answer that says nothing but that it failed
├── TimedOut               what was waited for did not come in time; a TimeoutError too
└── StalenessError         a fragment reached the learner later than the bound allows
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from rookery.errors.words import bare, key_of

MOST_TOLD = 10  # problems of one request or config; the others are counted
_MOST_NAME = 100  # letters of a wrong name that are shown, and compared


class RookeryError(Exception):
    """Root of the tree."""

    def __reduce__(self) -> tuple[Any, ...]:
        """By its message, whatever its kind is made of: it leaves another process whole."""
        return _again, (type(self), str(self), self.__dict__)


def _again(kind: type[RookeryError], message: str, fields: dict[str, Any]) -> RookeryError:
    error = kind.__new__(kind, message)
    error.__dict__.update(fields)
    return error


class InputError(RookeryError):
    """What a person asked for cannot be done; the message is one line that says what to do."""


class ConfigError(InputError):
    """A config key, type or range is wrong."""


class UnknownName(InputError):
    """A name that does not exist, with the nearest ones that do."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind = kind
        self.name = name = name[:_MOST_NAME]
        self.nearest = nearest_names(name, known)
        message = f"unknown {kind} {name!r}"
        if self.nearest:
            message += f"; did you mean {', '.join(self.nearest)}?"
        if hint:
            message += f" {hint}" if self.nearest else f"; {hint[:1].lower()}{hint[1:]}"
        super().__init__(message)


class MissingExtra(InputError):
    """The named thing needs an optional package."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional package: pip install 'rookery[{extra}]'")


class Unreachable(InputError):
    """No server answers at the address."""


class Unauthorized(InputError):
    """The server does not know the token, or there is none."""


class Forbidden(InputError):
    """Something that the owner of the server has not allowed to those who come by network."""


class Rejected(InputError):
    """A command that its run cannot carry out now."""


class MessageError(RookeryError):
    """Bytes that are not a valid message."""


class BusError(RookeryError):
    """The bus cannot do what was asked."""


class BusUnmade(BusError):
    """The bus is being made by another process, or was left half-made: nothing is in it yet."""


class BusRefused(BusError, InputError):
    """A cluster that does not answer, or does not let this user in or do this."""


class BusAway(BusRefused):
    """A cluster that does not answer: it may come back."""


class BusFull(BusError):
    """A bounded topic stayed full for the whole time-out."""


class BusClosed(BusError):
    """The bus was used after it was closed."""


class StoreError(RookeryError):
    """A checkpoint store cannot be read or written."""


class StoreRefused(StoreError, InputError):
    """A store that does not answer, or does not let us in or do this."""


class DamagedCheckpoint(StoreError):
    """A checkpoint whose content does not match its manifest."""


class CheckpointGone(DamagedCheckpoint):
    """A checkpoint, or a snapshot, that was removed meanwhile."""


class EnvironmentFailed(RookeryError):
    """An environment raised, or hung past its deadline."""

    def __init__(
        self,
        message: str = "",
        *,
        seat: str | None = None,
        slot: int | None = None,
        step: int | None = None,
        user_traceback: str = "",
    ) -> None:
        self.seat = seat
        self.slot = slot  # None when the slots are stepped as one, or none was being played
        self.step = step  # how many steps that slot has played in total
        self.user_traceback = user_traceback  # only the frames of the environment's own code
        super().__init__(message)


class MaskError(RookeryError):
    """A seat was offered no legal action, or an illegal one was about to be played."""


class StalenessError(RookeryError):
    """A fragment reached the learner later than the bound allows: a bug, never load."""


def nearest_names(name: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """The known names most like `name`, case aside, best first: by meaning, or else by letters."""
    known, name = list(known), name[:_MOST_NAME]
    meant = key_of(name)
    if meant is not None and (same := [k for k in known if k in (meant, bare(meant))]):
        return tuple(same[:count])
    by_lower: dict[str, str] = {}
    for candidate in known:
        by_lower.setdefault(candidate.lower(), candidate)
    found = difflib.get_close_matches(name.lower(), by_lower, n=count, cutoff=0.5)
    if not found:
        found = [low for low in by_lower if name.lower() in low][:count]
    return tuple(by_lower[low] for low in found)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, to stand inside a message of ours."""
    return (str(error).strip().splitlines() or ["no message"])[0].rstrip(".")


class CrewLost(RookeryError):
    """Another learner of the crew is gone: this one cannot go on alone."""


class LearnerFenced(RookeryError):
    """Another learner took the run over: this one must not train any more."""


class ServerFailed(RookeryError):
    """A server's answer says nothing but that it failed, or cannot be read."""


class TimedOut(RookeryError, TimeoutError):
    """What was waited for did not come in time."""
