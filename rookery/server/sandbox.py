"""Having a process of its own check a config: the server's side of `rookery prepare`.

The code of environments and players runs there and never in the server. A few look at a time; each
has a deadline, and none outlives the server, which holds the other end of its standard input.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from rookery.control.tokens import Token
from rookery.errors import InputError, RookeryError
from rookery.server.child_process import Child, ChildLost
from rookery.server.security.shares import ASKER, Shares
from rookery.worker import LIFELINE

AT_A_TIME = 2
MOST_WAITING = 16
DEADLINE_S = 120.0
MAX_ANSWER_BYTES = 8 << 20
HERE = Token("", "admin", "")  # who asks in this process itself


class Busy(RookeryError):
    """Not now: the server is starting; try again later."""


class Sandbox:
    """Checks configs, in processes of `rookery prepare`."""

    def __init__(
        self,
        environment: Mapping[str, str],
        deadline_s: float = DEADLINE_S,
        at_a_time: int = AT_A_TIME,
    ) -> None:
        """`environment`: what leads a process to the same home."""
        self._environment = {**environment, LIFELINE: "stdin"}
        self._deadline_s = deadline_s
        self._free = asyncio.Semaphore(at_a_time)
        self._places = Shares(MOST_WAITING, "configs that wait to be looked at", "try again later")

    async def check(self, order: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of the environment; an InputError if there is something wrong with the order,
        and NoPlace where too many wait, or too many of whose request this is."""
        with self._places.place(ASKER.get() or HERE):
            async with self._free:
                answer = await self._ask(json.dumps(order).encode())
        if "error" in answer:
            raise InputError(str(answer["error"]))
        spec: dict[str, Any] = answer["spec"]
        return spec

    async def _ask(self, order: bytes) -> dict[str, Any]:
        child = Child(("prepare",), self._environment, MAX_ANSWER_BYTES)
        try:
            answer: dict[str, Any] = json.loads(await child.ask(order, self._deadline_s))
        except ChildLost as lost:
            raise InputError(f"the process that looked at the environment {lost}") from None
        finally:
            await child.close()
        return answer
