"""Saves a checkpoint, and a part of the next: python store_writer.py URI FIRST OBJECTS.

It says so after OBJECTS objects of the second one, and waits to be killed.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from rookery.checkpoints.store import open_store


def content(number: int) -> dict[str, bytes]:
    """Several files, each with its digest in another."""
    parts = {f"part-{i}": bytes([number % 256, i]) * 20_000 for i in range(4)}
    digests = {f"{n}.sha256": hashlib.sha256(c).hexdigest().encode() for n, c in parts.items()}
    return {**parts, **digests}


def stop_after(store: Any, objects: int) -> None:
    put = store._put

    def counted(path: str, content: bytes) -> None:
        nonlocal objects
        put(path, content)
        objects -= 1
        if objects == 0:
            print("cut", flush=True)
            sys.stdin.read()

    store._put = counted


if __name__ == "__main__":
    store, number = open_store(sys.argv[1]), int(sys.argv[2])
    store.save(f"{number:06d}", content(number))
    for name in store.names()[:-2]:
        store.delete(name)
    stop_after(store, int(sys.argv[3]))
    store.save(f"{number + 1:06d}", content(number + 1))
