"""What an actor saves, as arrays by name: parts under prefixes, and plain data as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rookery.messages.frame import Arrays

LINEUP = "cast/"  # what checkpoints have always called it


def prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {prefix + name: array for name, array in arrays.items()}


def under(state: Arrays, prefix: str) -> Arrays:
    """The part that was saved under a prefix."""
    return {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}


def snapshot_files(state: Arrays) -> set[str]:
    """The snapshots that sit in what was saved: their weights are not part of it."""
    lineups = [from_json_array(a) for n, a in state.items() if n.endswith(f"{LINEUP}json")]
    return {file for lineup in lineups for _, file in lineup["names"] if file}


def json_array(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def from_json_array(array: np.ndarray) -> Any:
    return json.loads(array.tobytes())
