"""Rows of experience: one record from the rollout that makes them to the batch that is trained.

What a row consists of is said once, in `Steps`; the wire's names, the checks before a batch is
built of it and the laying side by side are all read off its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import numpy as np

from rookery.errors import MessageError
from rookery.messages.frame import Arrays

POLICY = "policy"  # the kind of player whose rows are trained on
LONG_AGO = 255  # of `behind`: so many versions, or more


class Shape(NamedTuple):
    """What is asked of a field: (T + ahead, B, ...) of a type."""

    dtype: str = ""  # any, if none is said
    ahead: int = 0  # rows beyond T
    rank: int = 0  # any, if 0


_Flags = Annotated[np.ndarray, Shape("bool", rank=2)]
_Numbers = Annotated[np.ndarray, Shape("float32", rank=2)]
_Indices = Annotated[np.ndarray, Shape("uint8", rank=2)]


class Steps(NamedTuple):
    """T x B rows of one policy's experience; a pytree. A lane is a seat of a slot, or a slot.

    A lane holds trajectories one after the other. One that goes on later is followed by a row that
    is not valid and only shows its next observation; one also ends where another kind of player
    decides than in the row before.
    """

    observation: Annotated[Arrays, Shape(ahead=1)]  # leaf -> (T+1, B, ...), raw
    action: Annotated[np.ndarray, Shape()]  # (T, B, ...): as sampled, before squashing or clipping
    reward: _Numbers  # raw
    terminated: _Flags
    truncated: _Flags
    valid: _Flags  # False on rows that are no step: they reset a slot, are an edge, or padding
    log_prob: _Numbers  # of the behaviour; NaN where it is unknown
    seat: _Indices
    player: _Indices  # which kind decided; names are in the header
    behind: _Indices  # versions by which a row's weights are older than the header's
    mask: Annotated[np.ndarray | None, Shape("bool", ahead=1, rank=3)] = None  # True where legal
    # leaf -> (T, B, ...): the policy's where a trajectory begins, else 0
    state: Annotated[Arrays, Shape()] = {}  # noqa: RUF012 (a tuple's default: never written to)

    @property
    def known(self) -> np.ndarray:
        """(T, B) bool: rows that policy gradient can train on."""
        found: np.ndarray = self.valid & ~np.isnan(self.log_prob)
        return found

    @property
    def begins(self) -> np.ndarray:
        """(T, B) bool: the first row of each trajectory."""
        found = self.valid.copy()
        ended = self.terminated | self.truncated
        same = self.player[1:] == self.player[:-1]
        found[1:] &= ~(self.valid[:-1] & ~ended[:-1] & same)
        return found

    def with_state(self, state: Arrays) -> Steps:
        """With the player's (T, B, ...) state of every row kept where a trajectory begins."""
        begins = self.begins
        kept = {leaf: np.array(x) for leaf, x in state.items()}
        for x in kept.values():
            x[~begins] = 0
        return self._replace(state=kept)


SHAPES: dict[str, Shape] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Steps, include_extras=True).items()
}


def check_steps(steps: Steps) -> None:
    """T and B agree everywhere, and every type is what it should be."""
    if steps.reward.ndim != 2:
        raise MessageError(f"a reward of shape {steps.reward.shape}, not (T, B)")
    rows, lanes = steps.reward.shape
    for name, array in named_arrays(steps):
        shape = SHAPES[name.partition("/")[0]]
        wanted = (rows + shape.ahead, lanes)
        if array.shape[:2] != wanted or shape.rank not in (0, array.ndim):
            raise MessageError(f"{name} has shape {array.shape}, not {wanted} + ...")
        if shape.dtype and array.dtype != shape.dtype:
            raise MessageError(f"{name} is {array.dtype}, not {shape.dtype}")


def padded(steps: Steps, blank: Steps) -> Steps:
    """These rows in the upper left of blank ones, which may be more."""

    def put(under: np.ndarray, array: np.ndarray) -> np.ndarray:
        out = under.copy()
        out[: len(array), : array.shape[1]] = array
        return out

    return each(put, blank, steps)


def fits(steps: Steps, blank: Steps) -> bool:
    """Whether there are as many rows and lanes at most, of the same arrays."""
    mine, room = dict(named_arrays(steps)), dict(named_arrays(blank))
    return mine.keys() == room.keys() and all(
        array.dtype == room[name].dtype
        and array.shape[2:] == room[name].shape[2:]
        and array.shape[0] <= room[name].shape[0]
        and array.shape[1] <= room[name].shape[1]
        for name, array in mine.items()
    )


# --- records whose fields are arrays, arrays by leaf, or nothing ---------------------------------

Fields = TypeVar("Fields")


def each(change: Callable[..., np.ndarray], *parts: Fields) -> Fields:
    """A record whose every array is `change` of that array of each part."""
    kind = type(parts[0])

    def of(values: Sequence[Any]) -> Any:
        if isinstance(values[0], dict):
            return {leaf: change(*(v[leaf] for v in values)) for leaf in values[0]}
        return None if values[0] is None else change(*values)

    names = kind.__annotations__
    return kind(**{name: of([getattr(part, name) for part in parts]) for name in names})


def named_arrays(record: Any) -> list[tuple[str, np.ndarray]]:
    """Every array by name, those by leaf as FIELD/LEAF; `from_named` reads them back."""
    found: list[tuple[str, np.ndarray]] = []
    for name in type(record).__annotations__:
        value = getattr(record, name)
        if isinstance(value, dict):
            found += [(f"{name}/{leaf}", array) for leaf, array in value.items()]
        elif value is not None:
            found.append((name, value))
    return found


def from_named(kind: type[Fields], arrays: Arrays, leaves: Sequence[str]) -> Fields:
    """The record of these arrays; `leaves` are the fields that hold arrays by leaf."""
    values: dict[str, Any] = {name: {} for name in leaves}
    for name, array in arrays.items():
        field, slash, leaf = name.partition("/")
        if slash and field in leaves:
            values[field][leaf] = array
        elif not slash and field in kind.__annotations__ and field not in leaves:
            values[name] = array
        else:
            raise MessageError(f"unknown array {name!r} in a fragment")
    values.setdefault("mask", None)
    missing = [name for name in kind.__annotations__ if name not in values]
    if missing:
        raise MessageError(f"a fragment without {', '.join(missing)}")
    return kind(**values)
