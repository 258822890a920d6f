"""The driver's end of a switchboard: it takes calls out of the cluster and answers them here.

Several calls to the switchboard are under way at a time, as each takes as long as the way there and
back: some that wait for calls of workers, and one that hands over all answers that there are.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import TaskGroup
from typing import Any

import msgspec
from ray.exceptions import RayError

from rookery.launchers.ray.calling import asked
from rookery.launchers.ray.host import Ringing, RunHost
from rookery.launchers.ray.words import HostOrder

TAKERS = 2  # one is on its way while the other waits there
AGAIN_S = 0.5

logger = logging.getLogger(__name__)
_rings = msgspec.msgpack.Decoder(list[Ringing])


class Tunnel:
    """Answers for one run until it is closed; `board` is changed when it is placed again."""

    def __init__(self, order: HostOrder, board: Any) -> None:
        self.board = board
        self._host = RunHost(order.path, msgspec.json.encode(order.limits), order.directory)
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._given: asyncio.Queue[Ringing] = asyncio.Queue()

    def serve(self) -> None:
        """Until it is closed; raises when the cluster is out of reach for good."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())
        self._host.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self) -> None:
        async with TaskGroup() as tasks:
            work = tasks.create_task(self._work())
            await self._over.wait()
            work.cancel()

    async def _work(self) -> None:
        async with TaskGroup() as tasks:
            tasks.create_task(self._give())
            for _ in range(TAKERS):
                tasks.create_task(self._take(tasks))

    async def _take(self, tasks: TaskGroup) -> None:
        while True:
            content = await self._ask("take")
            for call in _rings.decode(content) if content is not None else []:
                tasks.create_task(self._answer(call))

    async def _answer(self, call: Ringing) -> None:
        answer = await self._host.answers[call.method](call.content)
        await self._given.put(Ringing(call.number, call.method, answer))

    async def _give(self) -> None:
        while True:
            answers = [await self._given.get()]
            while not self._given.empty():
                answers.append(self._given.get_nowait())
            await self._ask("give", msgspec.msgpack.encode(answers))

    async def _ask(self, method: str, *arguments: bytes) -> bytes | None:
        """None: the switchboard is away, and its callers call again at the next one. Even to send a
        call waits for the cluster, so that is done in a thread."""
        try:
            found = await asyncio.to_thread(asked, getattr(self.board, method), *arguments)
            answer: bytes = await asyncio.wrap_future(found)
        except RayError as error:
            logger.info("the switchboard is away: %s", type(error).__name__)
            await asyncio.sleep(AGAIN_S)
            return None
        return answer
