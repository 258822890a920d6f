"""An actor's tables: the casts at them, and the rollout that plays them.

The rollout is compiled where the environment is JAX-native and every player that may be drawn is a
JAX function; otherwise the same turns are taken step by step. That is decided here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rookery import seeds
from rookery.actor.cast import Cast, Member
from rookery.actor.loop import Rollout
from rookery.actor.packing import Layout, Turns
from rookery.actor.rating import WithRatings
from rookery.actor.rating_cast import RatingCast
from rookery.actor.training_cast import TrainingCast
from rookery.algorithms.networks import Network
from rookery.algorithms.policies import PolicySetup, grouped
from rookery.config import RunConfig
from rookery.control.home import Home
from rookery.dealer import Dealer, close_members, is_compiled
from rookery.errors import ConfigError
from rookery.frozen import snapshot_store
from rookery.learner.leagues import load_snapshot
from rookery.messages import ActorId
from rookery.players.making import compilable
from rookery.players.naming import PlayerName
from rookery.players.seat_map import Seating
from rookery.spaces import SeatSpec

RATING_PLACES = 4  # snapshots that are rated at a time


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


def policy_setups(config: RunConfig, seating: Seating) -> dict[str, PolicySetup]:
    """How each policy is trained; for those that only act, what they begin with."""
    lanes = {p: layout.lanes for p, layout in layouts(config, seating).items()}
    nets = networks(config, seating)
    return {
        name: PolicySetup(
            name,
            nets[name],
            policy.algorithm,
            lanes.get(name, 1) * config.learner.fragments_per_batch,
            policy.trains_encoder,
        )
        for name, policy in config.all_policies.items()
    }


def is_solo(seating: Seating) -> bool:
    """One seat with a policy that learns: the plain case, with a plain rollout."""
    return len(seating.spec.seats) == 1 and len(seating.map.options) == 1 and len(seating.live) == 1


def check_players(config: RunConfig, seating: Seating, home: Home) -> None:
    """Make every player once, so that whoever can't play is refused before a run exists."""
    dealer = Dealer(config, seating, home, "")
    for text in seating.others:
        for spec, seats in dealer.spaces(seating, text).items():
            close_members(dealer.members(text, spec, list(seating.spec.seats)[min(seats)]))
    if seating.has_league:
        for text in config.league.reference:
            close_members(dealer.members(PlayerName.parse(text).text, *_first_seat(seating)))
    setups = policy_setups(config, seating)
    grouped([setups[p] for p in config.learning], config.actors.rollout_steps)


def make_rollout(
    config: RunConfig,
    seating: Seating,
    home: Home,
    run: str,
    actor: ActorId,
    busy: Callable[[str], None],
) -> Rollout:
    """Tables for training and, beside them, for rating games."""
    dealer = Dealer(config, seating, home, run, _namespace(is_compiled(seating)))
    load = _loader(home, run, config)
    games = config.league.games_per_draw
    cast = TrainingCast(
        seating.map,
        dealer.all_members(seating),
        games,
        load,
        seeds.generator(config.seed, "seats", *actor, 0),
        dealer.recast,
        _blocks(config),
    )
    found = layouts(config, seating)
    training = _tables(config, seating, cast, found, actor, 0, config.actors.envs_per_actor, busy)
    rules = config.league
    alike = len(set(seating.spec.seats.values())) == 1
    if not (seating.has_league and rules.rating_every and alike and actor.ordinal == 0):
        return training
    rated, references = _rating_members(config, seating, home, run)
    rating_cast = RatingCast(
        len(seating.spec.seats),
        [*rated, *references],
        games,
        load,
        seeds.generator(config.seed, "seats", *actor, 1),
        _alike(config, seating),
    )
    rating = _tables(config, seating, rating_cast, {}, actor, 1, rules.rating_slots, busy)
    return WithRatings(training, rating, rules.rating_every, len(references))


def _blocks(config: RunConfig) -> int:
    """Blocks of two places each, where slots and places can be shared out evenly."""
    places, slots = config.actors.opponents_per_actor, config.actors.envs_per_actor
    blocks = max(1, places // 2)
    return blocks if places % blocks == 0 and slots % blocks == 0 else 1


def _alike(config: RunConfig, seating: Seating) -> list[str]:
    """The policies whose snapshots a place for the first one's can play: of the same network."""
    nets = networks(config, seating)
    return [policy for policy in config.learning if nets[policy] == nets[config.learning[0]]]


def _rating_members(
    config: RunConfig, seating: Seating, home: Home, run: str
) -> tuple[list[Member], list[Member]]:
    names = [PlayerName.parse(text) for text in config.league.reference]
    compiled = seating.spec.compiled and all(compilable(n) for n in names)
    dealer = Dealer(config, seating, home, run, _namespace(compiled))
    policy = config.learning[0]
    seat, spec = next(iter(seating.spec.seats.items()))
    rated = [
        Member(f"league:{policy}", dealer.policy(policy, "snapshot")) for _ in range(RATING_PLACES)
    ]
    return rated, [m for name in names for m in dealer.members(name.text, spec, seat)]


def _tables(
    config: RunConfig,
    seating: Seating,
    cast: Cast,
    found: Mapping[str, Layout],
    actor: ActorId,
    part: int,
    slots: int,
    busy: Callable[[str], None],
) -> Rollout:
    """One rollout: compiled if its members are."""
    seed = seeds.number(config.seed, "environment", *actor, *([part] if part else []))
    nets = networks(config, seating)
    blank = {p: Turns.none(nets[p].spec, nets[p].distribution.parameters) for p in found}
    environment = config.environment
    if seating.spec.compiled and all(getattr(m.player, "xp", np) is not np for m in cast.members):
        from rookery.actor.compiled_table import ROUND_STEPS, CompiledTableRollout
        from rookery.envs.registry import make_compiled

        steps = env_steps(found) if found else ROUND_STEPS
        env = make_compiled(environment.id, environment.kwargs)
        return CompiledTableRollout(env, cast, found, blank, steps, slots, seed)
    from rookery.actor.table import Table
    from rookery.actor.table_rollout import TableRollout
    from rookery.envs.registry import make

    busy("making the environment")
    stepped = make(environment.id, slots, environment.kwargs)
    rng = seeds.generator(config.seed, "actor", *actor, *([part] if part else []))
    table = Table(stepped, cast, rng, seed, busy)
    limit = env_steps(found) if found else None
    return TableRollout(table, found, blank, limit)


def _loader(home: Home, run: str, config: RunConfig) -> Callable[[str], Any]:
    store = snapshot_store(home, run, config)
    return lambda file: load_snapshot(store, file)


def _namespace(compiled: bool) -> Any:
    if not compiled:
        return np
    import jax.numpy as jnp

    return jnp


def _first_seat(seating: Seating) -> tuple[SeatSpec, str]:
    seat, spec = next(iter(seating.spec.seats.items()))
    return spec, seat
