"""States as named arrays: plain values as exact text, views as flat arrays, and a header.

What an environment saves goes into a checkpoint, which holds arrays and nothing else; no pickle, so
that reading a state never runs code. The header says whose state it is.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from rookery.envs import Arrays, SeatView
from rookery.errors import InputError
from rookery.spaces import SeatSpec


def to_text(value: Any) -> np.ndarray:
    """Plain values and small arrays, exact to the bit, as the bytes of JSON text."""
    return _to_bytes(_to_json(value))


def from_text(text: np.ndarray) -> Any:
    """The values that `to_text` wrote."""
    return _from_json(json.loads(text.tobytes()))


def _to_json(value: Any) -> Any:
    # numpy scalars before Python's: np.float64 is a float, yet must come back as np.float64.
    if isinstance(value, np.generic | np.ndarray):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("an array of Python objects cannot be saved")
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: [array.dtype.str, list(array.shape), array.tobytes().hex()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return {type(value).__name__: [_to_json(part) for part in value]}
    if isinstance(value, dict):
        return {"dict": {str(key): _to_json(part) for key, part in value.items()}}
    raise TypeError(f"a {type(value).__name__} cannot be saved")


def _from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "dict":
        return {key: _from_json(part) for key, part in content.items()}
    if kind in ("list", "tuple"):
        parts = [_from_json(part) for part in content]
        return parts if kind == "list" else tuple(parts)
    dtype, shape, data = content
    array = np.frombuffer(bytes.fromhex(data), np.dtype(dtype)).reshape(shape).copy()
    return array if kind == "array" else array[()]


def save_view(view: SeatView, name: str = "view") -> Arrays:
    """A view as flat arrays; `load_view` is its inverse."""
    state = {f"{name}.observation.{path}": array for path, array in view.observation.items()}
    for part in ("mask", "reward", "terminated", "truncated", "reset", "turn"):
        if getattr(view, part) is not None:
            state[f"{name}.{part}"] = getattr(view, part)
    return {key: array.copy() for key, array in state.items()}


def load_view(state: Arrays, seat: SeatSpec, name: str = "view") -> SeatView:
    """The view that `save_view` wrote, in arrays of its own."""

    def part(key: str) -> np.ndarray:
        return state[f"{name}.{key}"].copy()

    return SeatView(
        {leaf.path: part(f"observation.{leaf.path}") for leaf in seat.observation},
        part("mask") if seat.masked else None,
        part("reward"),
        part("terminated"),
        part("truncated"),
        part("reset"),
        part("turn") if f"{name}.turn" in state else None,
    )


def header_text(header: dict[str, Any]) -> np.ndarray:
    """Whose state this is, as `check_header` reads it: its id, its slots and the like."""
    return _to_bytes(header)


def check_header(state: Arrays, header: dict[str, Any]) -> None:
    """Refuse a state that was saved by another environment or another number of slots."""
    saved = json.loads(state["header"].tobytes()) if "header" in state else {}
    for name, value in header.items():
        if saved.get(name) != value:
            raise InputError(
                f"this state is not of {header['id']} with {header['slots']} slots: "
                f"its {name} is {saved.get(name)!r}, not {value!r}"
            )


def _to_bytes(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8).copy()
