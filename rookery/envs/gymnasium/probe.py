"""What one copy of an environment tells, before any is played.

Its spaces become leaves and a head, and one reset shows whether it masks actions and whether it
keeps to its own spaces. This is on the start-up path of every run, so it needs neither the code
that steps environments nor the code that saves them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from rookery.envs import SOLO_SEAT, Options
from rookery.envs.action_spaces import (
    MASK,
    ActionWriter,
    MaskSource,
    find_mask,
    flat_mask,
    write_space,
)
from rookery.envs.failures import environment_failed
from rookery.envs.gymnasium.make import Factory, make_copy, make_vector
from rookery.envs.gymnasium.wrapper_state import can_save, layers_of
from rookery.envs.observation_spaces import LeafReader, read_space
from rookery.errors import InputError
from rookery.spaces import EnvironmentSpec, SeatSpec


@dataclass(frozen=True, slots=True)
class Interface:
    """Everything needed to talk with an environment, learned from one copy that is thrown away."""

    spec: EnvironmentSpec
    readers: tuple[LeafReader, ...]
    writer: ActionWriter
    mask_source: MaskSource

    @property
    def mask_width(self) -> int:
        """How many booleans a mask has."""
        return self.writer.mask_width or 0


def probe(id: str, kwargs: Options, factory: Factory | None = None) -> Interface:
    """Make one copy, read its spaces, reset it once to see whether it masks actions; close it."""
    vector = make_vector(id, 1, kwargs, factory)
    env: Any = vector if vector is not None else make_copy(id, kwargs, factory)
    try:
        return _probe(id, env, vector is not None)
    finally:
        env.close()


def _probe(id: str, env: Any, native: bool) -> Interface:
    observation_space = env.single_observation_space if native else env.observation_space
    writer = write_space(
        env.single_action_space if native else env.action_space, f"{id}: the action space"
    )
    try:
        observation, info = env.reset(seed=0)
    except Exception as error:
        raise environment_failed(error, id, "reset", 0, 0) from error
    mask_source = find_mask(observation_space, info, writer)
    if mask_source == "observation":
        kept = {key: part for key, part in observation_space.spaces.items() if key != MASK}
        observation_space = spaces.Dict(kept)
    readers = read_space(observation_space, f"{id}: the observation space")
    if not readers:
        raise InputError(f"{id}: the observation space has nothing to observe")
    lead = (1,) if native else ()
    check_observation(id, readers, observation, lead)
    if mask_source != "none":
        given = (info if mask_source == "info" else observation)[MASK]
        try:
            flat_mask(given, cast(int, writer.mask_width), lead)
        except ValueError as error:
            raise InputError(f"{id}: {error}") from error
    seat = SeatSpec(
        tuple(reader.leaf for reader in readers), writer.head, masked=mask_source != "none"
    )
    spec = EnvironmentSpec(
        id,
        {SOLO_SEAT: seat},
        can_save=can_save(env),
        max_episode_steps=_time_limit(env),
    )
    return Interface(spec, readers, writer, mask_source)


def check_observation(
    id: str, readers: tuple[LeafReader, ...], observation: Any, lead: tuple[int, ...]
) -> None:
    """An observation that does not fit its space is told at once, not as a broken batch later."""
    for reader in readers:
        place = f" at {reader.leaf.path!r}" if reader.leaf.path else ""
        try:
            shape = np.shape(reader.dig(observation))
        except (LookupError, TypeError) as error:
            raise InputError(f"{id}: reset gave an observation without its part{place}") from error
        if shape != (*lead, *reader.raw_shape):
            raise InputError(
                f"{id}: reset gave an observation of shape {shape}{place}, "
                f"but its space says {(*lead, *reader.raw_shape)}"
            )


def _time_limit(env: Any) -> int | None:
    for layer in layers_of(env):
        if isinstance(layer, TimeLimit):
            return int(layer._max_episode_steps)
    spec = getattr(env, "spec", None)
    limit = getattr(env, "max_episode_steps", None)
    if limit is None and spec is not None:
        limit = spec.max_episode_steps or _frames_limit(spec.kwargs)
    return limit if isinstance(limit, int) else None


def _frames_limit(kwargs: dict[str, Any]) -> int | None:
    """Atari counts frames, and plays several of them in a step."""
    frames, skip = kwargs.get("max_num_frames_per_episode"), kwargs.get("frameskip", 1)
    return frames // skip if isinstance(frames, int) and isinstance(skip, int) else None
