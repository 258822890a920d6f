"""What a request to a served policy asks: observations out of JSON, checked against its spaces."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rookery.errors import InputError
from rookery.messages.frame import Arrays
from rookery.spaces import Leaf, SeatSpec

MOST_ROWS = 4096  # observations of one request


class Asked(NamedTuple):
    """Some observations to decide for."""

    observation: Arrays  # leaf -> (rows, ...)
    mask: np.ndarray | None  # (rows, choices), where the environment has masks
    rows: int
    single: bool  # asked as one, to be answered as one


def read(body: Any, spec: SeatSpec, choices: int) -> Asked:
    """Raises an InputError of one line for whatever does not fit."""
    if not isinstance(body, dict) or ("observation" in body) == ("observations" in body):
        raise InputError('send {"observation": ...} or {"observations": [...]}')
    single = "observation" in body
    seen = [body["observation"]] if single else body["observations"]
    if not isinstance(seen, list) or not 0 < len(seen) <= MOST_ROWS:
        raise InputError(f"observations is a list of 1 to {MOST_ROWS:,} of them")
    leaves = {leaf.path: np.stack([_leaf(x, leaf) for x in seen]) for leaf in spec.observation}
    masks = body.get("mask" if single else "masks")
    if masks is not None and not spec.masked:
        raise InputError("this policy's environment has no masks: leave it out")
    legal = None
    if spec.masked:
        legal = np.ones((len(seen), choices), np.bool_)
        if masks is not None:
            legal[:] = _mask([masks] if single else masks, legal.shape)
    return Asked(leaves, legal, len(seen), single)


def _leaf(observation: Any, leaf: Leaf) -> np.ndarray:
    name = f"observation {leaf.path}".rstrip()
    found = np.asarray(_numbers(_at(observation, leaf.path, name), name))
    if found.shape != leaf.shape:
        raise InputError(f"{name} has shape {list(found.shape)}, not {list(leaf.shape)}")
    wanted = np.dtype(leaf.dtype)
    if wanted.kind != "f" and found.dtype.kind == "f":
        raise InputError(f"{name} is of whole numbers")
    with np.errstate(over="ignore"):  # it is looked for below
        made = found.astype(wanted)
    if not np.isfinite(made).all() or (wanted.kind in "iu" and (made != found).any()):
        raise InputError(f"{name} has a number that {wanted} cannot hold")
    sizes = np.asarray(leaf.sizes).reshape(leaf.shape) if leaf.sizes else None
    if sizes is not None and ((made < 0) | (made >= sizes)).any():
        raise InputError(f"{name} counts from 0 and stays below {list(leaf.sizes)}")
    return made


def _at(observation: Any, path: str, name: str) -> Any:
    """The leaf of an observation that may be nested in objects and lists."""
    for part in path.split(".") if path else ():
        if isinstance(observation, list) and part.isdecimal() and int(part) < len(observation):
            observation = observation[int(part)]
        elif isinstance(observation, dict) and part in observation:
            observation = observation[part]
        else:
            raise InputError(f"{name} is missing")
    return observation


def _numbers(value: Any, name: str) -> np.ndarray:
    try:
        found = np.asarray(value)
    except ValueError:  # lists of different lengths
        found = np.asarray("")
    if found.dtype.kind not in "biuf":
        raise InputError(f"{name} is not an array of numbers")
    return found


def _mask(masks: Any, shape: tuple[int, ...]) -> np.ndarray:
    found = _numbers(masks, "mask")
    if found.shape != shape or found.dtype.kind != "b":
        raise InputError(f"mask is true or false for each of {shape[1]} actions")
    if not found.any(-1).all():
        raise InputError("mask allows no action")
    return found
