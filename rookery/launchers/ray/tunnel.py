"""The driver's end of a switchboard: it takes calls out of the cluster and answers them here."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from rookery.launchers.ray.host import Ringing, RunHost
from rookery.launchers.ray.words import HostOrder

TAKERS = 2  # one takes while the other hands over
AGAIN_S = 0.5

logger = logging.getLogger(__name__)
_rings = msgspec.msgpack.Decoder(list[Ringing])


class Tunnel:
    """Answers for one run until it is closed; `board` is changed when it is placed again."""

    def __init__(self, order: HostOrder, board: Any) -> None:
        self.board = board
        self._host = RunHost(order.path, msgspec.json.encode(order.limits), order.directory)
        self._over = threading.Event()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="host", daemon=True).start()
        for _ in range(TAKERS):
            threading.Thread(target=self._take, name="tunnel", daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _take(self) -> None:
        while not self._over.is_set():
            board = self.board
            try:
                calls = _rings.decode(ray.get(board.take.remote())) if board is not None else []
            except RayError as error:  # it is placed again
                logger.info("the switchboard is away: %s", type(error).__name__)
                calls = []
            if not calls and self._over.wait(0.0 if board is self.board else AGAIN_S):
                return
            for call in calls:
                asyncio.run_coroutine_threadsafe(self._answer(board, call), self._loop)

    async def _answer(self, board: Any, call: Ringing) -> None:
        asked = self._host.store if call.method == "store" else self._host.call
        given = Ringing(call.number, call.method, await asked(call.content))
        board.give.remote(msgspec.msgpack.encode([given]))
