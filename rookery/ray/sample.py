"""A sample: what one call of `EnvRunner.sample` brought, a fragment of each policy that learns.

    fragment = sample.fragment()                     # or sample.fragment("blue")
    fragment.header.version, fragment.steps.reward   # `messages.fragment`, `messages.steps`

It crosses a process as the bytes of its fragments; whoever takes it apart meets one function of
ours and those bytes, and every claim in them is checked before an array is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.actor.loop import Played
from rookery.errors import MessageError, UnknownName
from rookery.messages import WeightsVersion
from rookery.messages.fragment import (
    Episode,
    Fragment,
    Game,
    decode_fragment,
    encode_fragment,
)
from rookery.messages.steps import SHAPES, Steps, from_named, named_arrays


@dataclass(frozen=True)
class Sample:
    """Fragments of one call, one of each policy that learns."""

    fragments: tuple[Fragment, ...]

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes, ...]]:
        return decode_sample, tuple(encode_fragment(fragment) for fragment in self.fragments)

    def fragment(self, policy: str | None = None) -> Fragment:
        """A policy's; the first one's unless one is named."""
        if policy is None:
            return self.fragments[0]
        found = {fragment.header.policy: fragment for fragment in self.fragments}
        if policy not in found:
            raise UnknownName("policy", policy, found, f"(that learn here: {', '.join(found)})")
        return found[policy]

    @property
    def sequence(self) -> int:
        """0, 1, 2 ... of its runner: a gap is a sample that was not seen."""
        return self.fragments[0].header.sequence // len(self.fragments)

    @property
    def first_step(self) -> int:
        """Agent steps of its runner before this sample."""
        return self.fragments[0].header.first_step

    @property
    def steps(self) -> int:
        """Agent steps in it, of all its policies."""
        return sum(fragment.header.steps for fragment in self.fragments)

    @property
    def version(self) -> WeightsVersion:
        """Of the weights that played; `Steps.behind` says where a step's are older."""
        return self.fragments[0].header.version

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """That ended in it, one for each seat of a policy that learns."""
        return tuple(each for fragment in self.fragments for each in fragment.header.episodes)

    @property
    def games(self) -> tuple[Game, ...]:
        """Of several seats, between different players, that ended in it."""
        return self.fragments[0].header.games


def decode_sample(*payloads: bytes) -> Sample:
    """The sample of these fragments, in the order of their parts."""
    fragments = tuple(decode_fragment(payload) for payload in payloads)
    headers = [fragment.header for fragment in fragments]
    if [(h.part, h.parts) for h in headers] != [(i, len(headers)) for i in range(len(headers))]:
        raise MessageError(f"{len(headers)} fragments that are not the parts of one sample")
    return Sample(fragments)


# --- the rollouts of one call become one --------------------------------------------------------


def one_of(parts: Sequence[Played], gapless: bool) -> Played:
    """Rollouts one after the other as one; `gapless` where each goes on in the row it ended at."""
    last = parts[-1]

    def rows(policy: str) -> Steps:
        steps = [part.steps[policy] for part in parts]
        return joined(steps if gapless else [trimmed(each) for each in steps], gapless)

    return Played(
        {policy: rows(policy) for policy in last.steps},
        {
            policy: tuple(each for part in parts for each in part.episodes[policy])
            for policy in last.steps
        },
        tuple(game for part in parts for game in part.games),
        last.players,  # earlier ones knew the first of them
    )


def trimmed(steps: Steps) -> Steps:
    """Without the rows below the last step of all lanes; what that one led to is still shown."""
    filled = np.flatnonzero(steps.valid.any(1))
    rows = int(filled[-1]) + 1 if len(filled) else 0
    return _of({name: x[: rows + _ahead(name)] for name, x in named_arrays(steps)})


def joined(parts: Sequence[Steps], gapless: bool) -> Steps:
    """Rows below each other.

    What a part shows beyond its last row is the first row of the next one, or, where there may be
    a gap between them, a row of its own that is no step.
    """
    if len(parts) == 1:
        return parts[0]
    below: dict[str, list[np.ndarray]] = {name: [] for name, _ in named_arrays(parts[0])}
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        for name, array in named_arrays(part):
            shown_below = gapless and _ahead(name) and not last
            below[name].append(array[:-1] if shown_below else array)
            if not (gapless or last or _ahead(name)):
                below[name].append(np.zeros((1, *array.shape[1:]), array.dtype))
    made = _of({name: np.concatenate(arrays) for name, arrays in below.items()})
    return made.with_state(made.state) if made.state else made


def _ahead(name: str) -> int:
    return SHAPES[name.partition("/")[0]].ahead


def _of(arrays: dict[str, np.ndarray]) -> Steps:
    return from_named(Steps, arrays, ("observation", "state"))
