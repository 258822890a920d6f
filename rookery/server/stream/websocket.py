"""A conversation over a WebSocket: who it is with, what is said, and how it ends.

    caller = Caller(websocket, authenticate)
    token = await caller.greet(decode)          # by the header of its request or its first message
    await together(receive, caller.stay_known, send)     # until the first of them ends

The stream and watching are such conversations. Whoever says something wrong, or is not known any
more, is told why in a frame and then by a code.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, TypeVar

import anyio
import msgspec
from msgspec import Meta
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected

from rookery.control.tokens import Token, allows
from rookery.server.security.connections import know

MAX_BYTES = 64 << 10  # of a client's message
BAD_MESSAGE, BAD_TOKEN, BAD_SCOPE, TOO_MANY, NOT_READY = 4400, 4401, 4403, 4429, 1013
READY = '{"type":"ready"}'
HELLO_S = 5.0  # for the first message of a client without a header
TOKEN_S = 10.0  # how often a client's token is looked at again: it may be revoked, or expire
GOOD_BYE_S = 5.0  # for the last frame to a client that may not read

MOST_REASON = 120  # bytes; a frame that ends a conversation has room for 123

GONE = (WebSocketDisconnect, WebSocketDisconnected, OSError)  # what a lost client looks like

Authenticate = Callable[[str], Token | None]
Said = TypeVar("Said")

logger = logging.getLogger(__name__)


class Hello(msgspec.Struct, tag="hello", forbid_unknown_fields=True):
    """Who it is, where no header could say it."""

    token: Annotated[str, Meta(max_length=256)]


class Hangup(Exception):
    """The conversation ends: a code of the contract, and one line."""

    def __init__(self, code: int, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class Caller:
    """Whom we speak with."""

    def __init__(self, websocket: WebSocket, authenticate: Authenticate) -> None:
        self.websocket, self._authenticate = websocket, authenticate
        self._token = ""

    async def greet(self, decode: Callable[[Mapping[str, object]], object]) -> Token:
        scheme, _, text = self.websocket.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and text:
            self._token = text.strip()
        else:
            with anyio.move_on_after(HELLO_S):
                said = decode(await self.received())
                if not isinstance(said, Hello):
                    raise Hangup(BAD_TOKEN, "say hello first, with a token")
                self._token = said.token
        token = self._know()
        know(self.websocket.scope, token)
        return token

    async def stay_known(self) -> None:
        while True:
            await anyio.sleep(TOKEN_S)
            self._know()

    def _know(self) -> Token:
        token = self._authenticate(self._token) if self._token else None
        if token is None:
            raise Hangup(BAD_TOKEN, "no valid token: make one with rookery tokens create")
        if not allows(token.scope, "read"):
            raise Hangup(BAD_SCOPE, "the token's scope does not let it read")
        return token

    async def received(self) -> Mapping[str, object]:
        message = await self.websocket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1005))
        return message

    async def refuse(self, refusal: Hangup) -> None:
        """Say why in a frame, then in the code."""
        try:
            with anyio.move_on_after(GOOD_BYE_S):
                await self.websocket.send_text(error(refusal.detail))
                await self.websocket.close(refusal.code, _reason(refusal.detail))
        except GONE:
            logger.debug("a client left before it could be told")


async def together(*parts: Callable[[], Awaitable[None]]) -> None:
    """All at once until the first of them ends; a Hangup is raised when all have."""
    ended: list[Hangup] = []
    async with anyio.create_task_group() as tasks:

        async def run(part: Callable[[], Awaitable[None]]) -> None:
            try:
                await part()
            except Hangup as refusal:
                ended.append(refusal)
            except GONE:
                logger.debug("a client has left")
            tasks.cancel_scope.cancel()

        for part in parts:
            tasks.start_soon(run, part)
    if ended:
        raise ended[0]


def decoded(message: Mapping[str, object], decode: Callable[[str], Said], where: str) -> Said:
    """A client's message as the server received it, checked as it is decoded."""
    text = message.get("text")
    if not isinstance(text, str):
        raise Hangup(BAD_MESSAGE, "messages are text: send JSON")
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise Hangup(BAD_MESSAGE, f"a message has at most {MAX_BYTES} bytes")
    try:
        return decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise Hangup(BAD_MESSAGE, f"not a message of {where}: {str(problem)[:300]}") from None


def _reason(detail: str) -> str:
    """As much as the frame that ends a conversation has room for."""
    return detail.encode(errors="replace")[:MOST_REASON].decode(errors="ignore")


def error(detail: str) -> str:
    return msgspec.json.encode({"type": "error", "detail": detail}).decode()
