"""What a run's seats mean for its policies: their networks, and the shape of their fragments.

Actor and learner both need these, and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import blank
from rookery.algorithms.networks import Network
from rookery.algorithms.policies import PolicySetup, grouped
from rookery.config.models import RunConfig
from rookery.config.reading import for_actors
from rookery.errors import ConfigError
from rookery.messages.steps import named_arrays
from rookery.players.seat_map import Seating
from rookery.processes import memory_bytes

EPISODE_BYTES = 16  # of the header, for each row: an episode that ends takes some 30
HEADER_BYTES = 16 << 10


@dataclass(frozen=True)
class Layout:
    """The shape of a policy's fragments."""

    rows: int  # T
    slots: int
    seats: tuple[int, ...]  # numbers of the seats that the policy may hold
    together: bool  # all seats act at every step: a lane per seat

    @property
    def lanes(self) -> int:
        return self.slots * (len(self.seats) if self.together else 1)

    @property
    def env_steps(self) -> int:
        """How many environment steps fit: held steps and edges take two rows a seat.

        Where seats take turns, a truncated game takes a row more for each seat but one: a rollout
        that meets one ends earlier.
        """
        return self.rows - 2 * (1 if self.together else max(1, len(self.seats)))

    def lane(self, slot: np.ndarray, seat: np.ndarray) -> np.ndarray:
        if not self.together:
            return slot
        return slot * len(self.seats) + np.searchsorted(self.seats, seat)


def networks(config: RunConfig, seating: Seating) -> dict[str, Network]:
    """Every policy's network, over the spaces of its seats."""
    return {
        name: Network(seating.spaces[name], policy.network)
        for name, policy in config.all_policies.items()
    }


def layouts(config: RunConfig, seating: Seating) -> dict[str, Layout]:
    """The shape of each learning policy's fragments."""
    spec, actors = seating.spec, config.actors
    found = {
        policy: Layout(
            actors.rollout_steps, actors.envs_per_actor, seating.live[policy], spec.simultaneous
        )
        for policy in config.learning
    }
    if is_solo(seating):
        return found
    if env_steps(found) < 1:
        raise ConfigError(
            f"actors.rollout_steps={actors.rollout_steps} is too few for {len(spec.seats)} seats: "
            f"a fragment needs more than {2 * len(spec.seats)} rows"
        )
    return found


def env_steps(found: Mapping[str, Layout]) -> int:
    """Environment steps of a rollout: what fits every policy."""
    return min(layout.env_steps for layout in found.values())


def delivery_bytes(config: RunConfig, seating: Seating) -> int:
    """How large a delivery is on the bus, at most: a fragment of each policy that learns."""
    nets, total = networks(config, seating), 0
    for policy, layout in layouts(config, seating).items():
        lane = sum(array.nbytes for _, array in named_arrays(blank(nets[policy], layout.rows, 1)))
        total += layout.lanes * (lane + layout.rows * EPISODE_BYTES) + HEADER_BYTES
    return total


def fragment_bytes(config: RunConfig, seating: Seating) -> int:
    """How much memory the steps of one actor's rollout take, reckoned without taking any."""
    nets, total = networks(config, seating), 0
    for policy, layout in layouts(config, seating).items():
        one, two = (
            sum(array.nbytes for _, array in named_arrays(blank(nets[policy], rows, 1)))
            for rows in (1, 2)
        )
        total += layout.lanes * layout.rows * (two - one)
    return total


def most_fragments(config: RunConfig, seating: Seating) -> int:
    """Of a batch: it is held as it came and as it is trained, so half of the memory must hold
    one."""
    return memory_bytes() // (2 * fragment_bytes(config, seating))


def fragments_with(config: RunConfig, actors: int) -> int:
    """Of a batch, when the run is scaled to that many actors."""
    all_ages = all(
        algorithm_of(policy.algorithm).corrects_staleness for policy in config.all_policies.values()
    )
    learner = config.learner
    return (
        for_actors(actors, all_ages)[0] if learner.follows_actors else learner.fragments_per_batch
    )


def least_experience(config: RunConfig, seating: Seating) -> int:
    """What a bus has to hold, in bytes, so that nobody waits for room that nobody can make.

    Credits allow K + 1 batches, and one more is trained and not let go of yet. A batch may grow
    with the number of actors, as far as memory holds one; and a learner that came back reads as
    much again that was abandoned.
    """
    learner = config.learner
    scaled = 0 if config.launcher == "inline" else config.actors.max_count
    batch = max(2 * learner.fragments_per_batch, min(scaled, most_fragments(config, seating)))
    return batch * (learner.max_policy_lag_versions + 2) * delivery_bytes(config, seating)


def policy_setups(config: RunConfig, seating: Seating) -> dict[str, PolicySetup]:
    """How each policy is trained; for those that only act, what they begin with."""
    lanes = {p: layout.lanes for p, layout in layouts(config, seating).items()}
    nets = networks(config, seating)
    return {
        name: PolicySetup(
            name,
            nets[name],
            algorithm_of(policy.algorithm).config,
            lanes.get(name, 1) * config.learner.fragments_per_batch,
            policy.trains_encoder,
        )
        for name, policy in config.all_policies.items()
    }


def check_crew(config: RunConfig, seating: Seating) -> None:
    """Raise what keeps several learners from sharing the batches of any policy that learns."""
    setups, learner = policy_setups(config, seating), config.learner
    learning = [setups[policy] for policy in config.learning]
    grouped(learning, config.actors.rollout_steps, learner.count)


def is_solo(seating: Seating) -> bool:
    """One seat with a policy that learns: the plain case, with a plain rollout."""
    return len(seating.spec.seats) == 1 and len(seating.map.options) == 1 and len(seating.live) == 1
