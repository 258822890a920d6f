"""Watching: a game that is played live for one person over a WebSocket.

    watchers = Watchers(home.environment, most=4)
    await watchers.watch(websocket, authenticate)       # one person, from hello to good-bye

The viewer's process plays when it is asked to, so the pace is kept here: whoever pauses, leaves or
reads slowly makes nothing happen. The newest order counts: what was to come before a new episode
is forgotten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated

import anyio
import msgspec
from msgspec import Meta
from starlette.websockets import WebSocket

from rookery.foreign import clean_json
from rookery.server.security.shares import NoPlace, Shares
from rookery.server.stream.websocket import (
    BAD_MESSAGE,
    GONE,
    READY,
    TOO_MANY,
    Authenticate,
    Caller,
    Hangup,
    Hello,
    decoded,
    together,
)
from rookery.server.viewers import ViewerProcess
from rookery.viewing import (
    LEAST_FPS,
    MOST_FPS,
    Frame,
    Next,
    Order,
    Refused,
    Reply,
    Restart,
    Seek,
    Watch,
    Watching,
)

MOST_STEPS = 60  # that wait to be made
OVER_S = 1.0  # between two episodes, to see how one ended

logger = logging.getLogger(__name__)


class Play(msgspec.Struct, frozen=True, tag="play", forbid_unknown_fields=True):
    """Go on by itself."""


class Pause(msgspec.Struct, frozen=True, tag="pause", forbid_unknown_fields=True):
    """Stay where it is."""


class Step(msgspec.Struct, frozen=True, tag="step", forbid_unknown_fields=True):
    """One frame, and stay there."""


class Speed(msgspec.Struct, frozen=True, tag="speed", forbid_unknown_fields=True):
    """How many frames a second."""

    fps: Annotated[float, Meta(ge=LEAST_FPS, le=MOST_FPS)]


_Said = Hello | Watch | Restart | Seek | Play | Pause | Step | Speed
_decode: Callable[[str], _Said] = msgspec.json.Decoder(_Said).decode
_encode = msgspec.json.Encoder().encode


def decode(message: Mapping[str, object]) -> _Said:
    return decoded(message, _decode, "watching")


class Watchers:
    """Everyone who watches; each has a process, so they are few."""

    def __init__(self, environment: Mapping[str, str], most: int) -> None:
        self._environment, self._shares = environment, Shares(most, "viewers")

    async def watch(self, websocket: WebSocket, authenticate: Authenticate) -> None:
        """Converse with one person until they leave or have to."""
        caller = Caller(websocket, authenticate)
        try:
            await websocket.accept()
            with self._shares.place(await caller.greet(decode)):
                await self._show(caller)
        except NoPlace as crowded:
            await caller.refuse(Hangup(TOO_MANY, str(crowded)))
        except Hangup as refusal:
            await caller.refuse(refusal)
        except GONE:
            logger.debug("someone who watched has left")

    async def _show(self, caller: Caller) -> None:
        viewer = ViewerProcess(self._environment)
        show = _Show(caller, viewer)
        try:
            await caller.websocket.send_text(READY)
            await together(show.listen, caller.stay_known, show.play)
        finally:
            await viewer.close()


class _Show:
    """One conversation: orders come in, frames go out."""

    def __init__(self, caller: Caller, viewer: ViewerProcess) -> None:
        self._caller, self._viewer = caller, viewer
        self._order: Watch | Restart | Seek | None = None  # and not carried out
        self._steps = 0  # that were asked for, and not made
        self._wake = anyio.Event()
        self._is_playing, self._has_begun = True, False
        self._fps, self._due = 1.0, 0.0

    async def listen(self) -> None:
        while True:
            self._heed(decode(await self._caller.received()))
            self._wake.set()

    def _heed(self, said: _Said) -> None:
        match said:
            case Hello():
                raise Hangup(BAD_MESSAGE, "hello was said already: say what to watch")
            case Watch() | Restart() | Seek():
                if isinstance(said, Watch) or not isinstance(self._order, Watch):
                    self._order = said
                self._steps = 0
                self._is_playing &= not isinstance(said, Seek)
            case Step():
                self._is_playing = False
                self._steps = min(self._steps + 1, MOST_STEPS)
            case Play() | Pause():
                self._is_playing = isinstance(said, Play)
                self._due = anyio.current_time()
            case Speed(fps=fps):
                self._fps, self._due = fps, anyio.current_time() + 1 / fps

    async def play(self) -> None:
        while True:
            order = await self._next_order()
            if not (self._has_begun or isinstance(order, Watch)):
                continue
            reply = await self._viewer.ask(order)
            self._note(reply)
            if not isinstance(reply, Refused):
                reply = msgspec.structs.replace(reply, playing=self._is_playing)
            await self._caller.websocket.send_text(clean_json(_encode(reply).decode()))

    def _note(self, reply: Reply) -> None:
        """When the next frame is due."""
        self._has_begun = not isinstance(reply, Refused)
        if isinstance(reply, Watching):
            self._fps, self._due = reply.fps, 0.0
            if not self._is_playing:
                self._steps = max(self._steps, 1)  # its beginning is shown
        elif isinstance(reply, Frame):
            wait_s = max(1 / self._fps, OVER_S) if reply.over else 1 / self._fps
            self._due = anyio.current_time() + wait_s

    async def _next_order(self) -> Order:
        """What was said, or, while it plays by itself, the next frame when that is due."""
        while True:
            if (order := self._order) is not None:
                self._order = None
                return order
            if self._steps:
                self._steps -= 1
                return Next()
            self._wake = anyio.Event()
            due = self._due if self._is_playing and self._has_begun else float("inf")
            with anyio.CancelScope(deadline=due):
                await self._wake.wait()
                continue
            return Next()
