"""Viewing: one game at a time, played for whoever watches, with what its policies think.

    viewing = Viewing(home, Watch(run="cartpole-1"))
    frame = viewing.next()      # the beginning; then a move, and the next frame

It runs in a process of its own (`viewer`), never in the server, and nothing that is played here is
experience. A frame shows a moment before its action: the picture, what each policy thinks of it and
what it is about to do.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

NEWEST = "newest"
LEAST_FPS, MOST_FPS = 0.2, 60.0


class Watch(msgspec.Struct, kw_only=True, frozen=True, tag="watch", forbid_unknown_fields=True):
    """What to show, from a new episode on."""

    run: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._-]{0,99}\Z")]
    weights: Annotated[str, Meta(max_length=200)] = NEWEST  # or a checkpoint, or POLICY@NUMBER
    sampled: bool = False  # else the most probable action
    players: Annotated[dict[str, Annotated[str, Meta(max_length=400)]], Meta(max_length=64)] = {}
    seed: Annotated[int, Meta(ge=0, le=2**53)] | None = None  # None: another one each time
    fps: Annotated[float, Meta(ge=LEAST_FPS, le=MOST_FPS)] | None = None  # None: the game's own
    game: Annotated[str, Meta(max_length=200)] = ""  # of a match, to be shown again: nobody plays


class Next(msgspec.Struct, frozen=True, tag="next"):
    """The next frame."""


class Restart(msgspec.Struct, frozen=True, tag="restart"):
    """A new episode, and its first frame."""


class Seek(msgspec.Struct, frozen=True, tag="seek", forbid_unknown_fields=True):
    """A game that is shown again, after so many steps."""

    step: Annotated[int, Meta(ge=0, le=1_000_000)]


Order = Watch | Next | Restart | Seek


class Watching(msgspec.Struct, kw_only=True, frozen=True, tag="watching"):
    """What is shown from now on."""

    run: str
    environment: str
    weights: str
    sampled: bool
    fps: float
    seats: list[str]
    choices: list[str]  # that `weights` could be now
    playing: bool = True  # whether frames come by themselves; as the server knows it
    steps: int = 0  # that a game which is shown again has; 0: it is played now


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """It cannot be shown; what was asked for before is not shown any more either."""

    detail: str


class ActionOption(msgspec.Struct, frozen=True):
    """One of several actions."""

    action: int
    name: str  # "": nobody named it
    p: float
    legal: bool


class ChoiceHead(msgspec.Struct, frozen=True, tag_field="kind", tag="choice"):
    """What a policy thinks of one choice of several actions."""

    count: int
    legal: int
    options: list[ActionOption]  # all in their order, or only the most probable of many


class NumberHead(msgspec.Struct, frozen=True, tag_field="kind", tag="number"):
    """What it thinks of one number, in the environment's units; JSON has no infinity."""

    low: float | None
    high: float | None
    mean: float
    near: float = msgspec.field(name="from")  # a standard deviation below the mean
    far: float = msgspec.field(name="to")  # and above
    action: float


Action = int | list[float] | None  # one choice; several, or numbers


class SeatFrame(msgspec.Struct, kw_only=True, frozen=True):
    """A seat at the moment that is shown."""

    player: str
    turn: bool
    reward: float  # of the step that led here
    returned: float = msgspec.field(name="return")  # so far in this episode
    value: float | None  # what the policy expects from here on
    action: Action  # that it is about to do
    heads: list[ChoiceHead | NumberHead]
    move: str = ""  # its action in words, where it has any


class Frame(msgspec.Struct, kw_only=True, frozen=True, tag="frame"):
    """A moment of a game."""

    episode: int
    step: int
    weights: str
    env_steps: int
    picture: str | None  # a data: address
    no_picture: str  # why there is none
    over: bool
    ended: str  # "terminated", "truncated" or ""
    seats: dict[str, SeatFrame]
    playing: bool = True


Reply = Watching | Refused | Frame
