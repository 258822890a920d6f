"""What was played becomes fragments: one of each policy that learns, numbered and counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rookery.actor.loop import Played
from rookery.messages import WeightsVersion
from rookery.messages.fragment import Fragment, FragmentHeader
from rookery.messages.steps import Steps


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
        steps = _told(played.steps[policy])
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


def _told(steps: Steps) -> Steps:
    """A policy knows how likely its own choice was. Where that is no number it has diverged: what
    is trained on it must come out as not finite, and not pass for another's choice."""
    diverged = steps.valid & (steps.player == 0) & np.isnan(steps.log_prob)
    if not diverged.any():
        return steps
    return steps._replace(log_prob=np.where(diverged, np.float32(-np.inf), steps.log_prob))
