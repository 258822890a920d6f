"""What was played becomes fragments: one of each policy that learns, numbered and counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.actor.loop import Played
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader


def fragments_of(
    played: Played,
    version: WeightsVersion,
    *,
    run: str,
    actor: str,
    learning: Sequence[str],
    seats: Sequence[str],
    sequence: int,
    first_step: int,
) -> tuple[Fragment, ...]:
    """The parts of one turn of the playing loop.

    `sequence` and `first_step` are those of the first part: how many fragments and agent steps the
    sender has made before.
    """
    fragments = []
    for part, policy in enumerate(learning):
        steps = played.steps[policy]
        header = FragmentHeader(
            run=run,
            policy=policy,
            actor=actor,
            sequence=sequence + part,
            first_step=first_step,
            steps=int(np.count_nonzero(steps.valid)),
            version=version,
            seats=tuple(seats),
            players=played.players,
            part=part,
            parts=len(learning),
            episodes=played.episodes[policy],
            games=played.games if part == 0 else (),
        )
        first_step += header.steps
        fragments.append(Fragment(header, steps))
    return tuple(fragments)
