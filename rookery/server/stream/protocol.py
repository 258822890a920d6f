"""What is said on the stream: a client's messages, checked as they are decoded, and our frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from rookery.control.log_messages import Message
from rookery.foreign import clean_json
from rookery.server.stream.websocket import Hello, decoded

_RUN = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}"
_Run = Annotated[str, Meta(pattern=rf"\A(\*|{_RUN})\Z")]
_Channel = Annotated[str, Meta(pattern=rf"\A(events|commands|(metrics|actors)/{_RUN})\Z")]
_Seq = Annotated[int, Meta(ge=-1, le=2**62)]
_Kind = Literal["events", "commands", "metrics", "actors"]


class Subscribe(msgspec.Struct, tag="subscribe", forbid_unknown_fields=True):
    """What to send from now on, in place of what was asked for before."""

    runs: Annotated[list[_Run], Meta(min_length=1, max_length=1000)]
    kinds: Annotated[list[_Kind], Meta(min_length=1, max_length=4)]
    after: dict[_Channel, _Seq] = {}

    @property
    def selection(self) -> Selection:
        everybody = "*" in self.runs
        return Selection(None if everybody else frozenset(self.runs), frozenset(self.kinds))


class Selection(NamedTuple):
    """Which messages a client wants; those with the same one get the same frames."""

    runs: frozenset[str] | None  # None: all
    kinds: frozenset[str]

    def has_channel(self, channel: str) -> bool:
        """Whether some of the channel's messages are wanted."""
        kind, _, run = channel.partition("/")
        return kind in self.kinds and (not run or self.runs is None or run in self.runs)

    def of(self, messages: Iterable[Message]) -> list[Message]:
        runs, kinds = self
        return [
            message
            for message in messages
            if (runs is None or message.run in runs) and message.channel.partition("/")[0] in kinds
        ]


class Left(NamedTuple):
    """Messages of a channel that a client did not get."""

    first: int
    last: int
    count: int  # type: ignore[assignment] # NamedTuple's own method is not needed


class _Entry(msgspec.Struct):
    channel: str
    seq: int
    run: str
    kind: str
    time_s: float
    data: msgspec.Raw


_decode: Callable[[str], Hello | Subscribe] = msgspec.json.Decoder(Hello | Subscribe).decode
_encode = msgspec.json.Encoder().encode


def decode(message: Mapping[str, object]) -> Hello | Subscribe:
    return decoded(message, _decode, "the stream")


def entry(message: Message) -> str:
    """A message as one entry of a batch."""
    written = _encode(
        _Entry(
            message.channel,
            message.seq,
            message.run,
            message.kind,
            message.time_s,
            msgspec.Raw(message.payload),
        )
    )
    return clean_json(written.decode())


def batch(entries: Iterable[str]) -> str:
    return f'{{"type":"batch","messages":[{",".join(entries)}]}}'


def subscribed(at: Mapping[str, int]) -> str:
    return _encode({"type": "subscribed", "at": at}).decode()


def left_out(channel: str, left: Left) -> str:
    found = {"type": "left_out", "channel": channel, "from": left.first, "to": left.last}
    return _encode({**found, "count": left.count}).decode()
