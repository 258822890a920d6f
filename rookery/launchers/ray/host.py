"""What a run has on its owner's node for workers elsewhere: its bus, and its stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rookery.bus.ray.host import BusHost
from rookery.checkpoints.hosted import answer
from rookery.checkpoints.store import FileStore


class RunHost:
    """A plain class that the driver places as a Ray actor; what crosses is bytes."""

    def __init__(self, path: str, limits: bytes, directory: str) -> None:
        self._bus = BusHost(path, limits)
        names = ("checkpoints", "snapshots")
        self._stores = {name: FileStore(Path(directory) / name) for name in names}

    async def alive(self) -> bytes:
        return b""

    async def call(self, content: bytes) -> bytes:
        return await self._bus.call(content)

    async def store(self, content: bytes) -> bytes:
        """In a thread: a checkpoint is large, and written through to the disk."""
        return await asyncio.to_thread(answer, self._stores, content)
