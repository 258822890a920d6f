"""Saves checkpoints one after the other until it is killed: python store_writer.py URI FIRST."""

from __future__ import annotations

import hashlib
import sys

from rookery.checkpoints.store import open_store


def content(number: int) -> dict[str, bytes]:
    """Several files, each with its digest in another."""
    parts = {f"part-{i}": bytes([number % 256, i]) * 20_000 for i in range(4)}
    digests = {f"{n}.sha256": hashlib.sha256(c).hexdigest().encode() for n, c in parts.items()}
    return {**parts, **digests}


if __name__ == "__main__":
    store, number = open_store(sys.argv[1]), int(sys.argv[2])
    while True:
        store.save(f"{number:06d}", content(number))
        for name in store.names()[:-2]:
            store.delete(name)
        print(number, flush=True)
        number += 1
