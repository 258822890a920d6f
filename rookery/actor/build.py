"""An actor's tables: the lineups at them, and the rollout that plays them.

The rollout is compiled where the environment is JAX-native and every player that may be drawn is a
JAX function; otherwise the same turns are taken step by step. That is decided here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rookery import seeds
from rookery.actor.lineup import Lineup
from rookery.actor.loop import Rollout, play
from rookery.actor.packing import Turns
from rookery.actor.rating_lineup import RatingLineup
from rookery.actor.rollouts.rating import WithRatings
from rookery.actor.training_lineup import TrainingLineup
from rookery.actor.transport import ActorTransport
from rookery.algorithms.policies import grouped
from rookery.checkpoints.policies import FindRun, RunFiles, frozen_weights, load_snapshot
from rookery.checkpoints.store import open_store
from rookery.config.models import RunConfig
from rookery.envs.changes import check_unchanged
from rookery.messages import ActorId, SeatsChanged
from rookery.messages.fragment import Fragment
from rookery.players.factory import PlayerFactory, close_members, compilable
from rookery.players.member import Member, PolicyWeights
from rookery.players.names import PlayerName
from rookery.players.seat_map import Seating, SeatMap, reseated
from rookery.spaces import SeatSpec
from rookery.worker.context import RunContext
from rookery.worker.policies import Layout, env_steps, is_solo, layouts, networks, policy_setups

RATING_PLACES = 4  # snapshots that are rated at a time


class RunToPlay(Protocol):
    """What a rollout is made of, whoever wants to play; a `RunContext` has all of it."""

    @property
    def files(self) -> RunFiles: ...

    @property
    def seating(self) -> Seating: ...

    @property
    def find(self) -> FindRun: ...


@dataclass
class Actor:
    """An actor with its parts in place."""

    rollout: Rollout
    transport: ActorTransport
    loop: Iterator[tuple[Fragment, ...] | None]

    def close(self) -> None:
        self.rollout.close()


def build_actor(
    context: RunContext,
    actor: ActorId,
    wait_s: float,
    busy: Callable[[str], None] = lambda doing: None,
    stopped: Callable[[], bool] = lambda: False,
    heartbeat_s: float = 0.0,
) -> Actor:
    config = context.config
    rollout: Rollout
    if config.replay.run:
        rollout = _recorded_rollout(context)
    else:
        rollout = build_rollout(context, actor, busy)
    seats = tuple(context.spec.seats)
    transport = ActorTransport(
        context.bus,
        context.run,
        tuple(config.all_policies),  # whoever has no seat yet may be given one
        config.learning,
        actor,
        seats,
        wait_s,
        busy,
        heartbeat_s,
        context.seats_from,
    )

    def ended() -> bool:
        return stopped() or transport.replaced

    return Actor(rollout, transport, play(rollout, transport, ended))


def build_rollout(
    played: RunToPlay, actor: ActorId, busy: Callable[[str], None] = lambda doing: None
) -> Rollout:
    """The rollout of a run that is played: with one seat and one policy, or at tables."""
    solo = is_solo(played.seating)
    return _solo_rollout(played, actor, busy) if solo else make_rollout(played, actor, busy)


def _recorded_rollout(context: RunContext) -> Rollout:
    from rookery.actor.rollouts.recorded import RecordedRollout

    replay = context.config.replay
    return RecordedRollout(context.open_recorded(replay.run), context.config.learning, replay.start)


def _solo_rollout(played: RunToPlay, actor: ActorId, busy: Callable[[str], None]) -> Rollout:
    """The plain case, without a table: one seat, one policy."""
    config, whole = played.files.config, played.files.spec
    ((seat, spec),) = whole.seats.items()
    factory = run_factory(config, played.seating, played.find, whole.compiled)
    (policy,) = played.seating.live
    player: Any = factory.member(policy, seat, spec).player
    sizes = (config.actors.rollout_steps, config.actors.envs_per_actor)
    seed = seeds.number(config.seed, "environment", *actor)
    environment = config.environment
    if whole.compiled:
        from rookery.actor.rollouts.compiled import CompiledRollout
        from rookery.envs.registry import make_compiled

        env = make_compiled(environment.id, environment.kwargs)
        check_unchanged(whole, env.spec)
        return CompiledRollout(env, player, seat, *sizes, seed)
    from rookery.actor.rollouts.stepped import SteppedRollout
    from rookery.envs.registry import make

    busy("making the environment")
    stepped = make(environment.id, config.actors.envs_per_actor, environment.kwargs)
    check_unchanged(whole, stepped.spec)
    rng = seeds.generator(config.seed, "actor", *actor)
    return SteppedRollout(stepped, player, seat, config.actors.rollout_steps, rng, seed, busy)


def run_factory(
    config: RunConfig, seating: Seating, find: FindRun, compiled: bool = False, places: int = 1
) -> PlayerFactory:
    """Of a run that trains: its own policies have no weights yet, they come with each rollout."""
    frozen, nets = frozen_weights(find), networks(config, seating)

    def load(name: PlayerName, seat: str, spec: SeatSpec) -> PolicyWeights:
        if name.kind == "snapshot":
            return frozen(name, seat, spec)
        live = name.name if name.kind == "policy" else ""
        return PolicyWeights(live, nets[name.name], {}, live)

    return PlayerFactory(seating.spec.id, load, _namespace(compiled), places=places)


def check_players(config: RunConfig, seating: Seating, find: FindRun) -> None:
    """Make every player once, so that whoever can't play is refused before a run exists."""
    factory = run_factory(config, seating, find)
    for text in seating.others:
        close_members(factory.seated(seating, [text]))
    if seating.has_league:
        first = next(iter(seating.spec.seats.items()))
        for text in config.league.reference:
            close_members(factory.members(text, *first))
    setups = policy_setups(config, seating)
    grouped([setups[p] for p in config.learning], config.actors.rollout_steps)


def make_rollout(played: RunToPlay, actor: ActorId, busy: Callable[[str], None]) -> Rollout:
    """Tables for training and, beside them, for rating games."""
    config, seating = played.files.config, played.seating
    places = config.actors.opponents_per_actor
    factory = run_factory(config, seating, played.find, seating.is_compiled, places)

    def members(seats: Seating, known: Sequence[Member] = ()) -> list[Member]:
        """Policies first, in the config's order: saved lineups are in this one."""
        policies = [policy for policy in config.all_policies if policy in seats.live]
        return factory.seated(seats, dict.fromkeys([*policies, *seats.map.options]), known)

    def reseat(changed: SeatsChanged, known: Sequence[Member]) -> tuple[SeatMap, list[Member]]:
        seats = reseated(config, seating, changed.seats)
        return seats.map, members(seats, known)

    load = _loader(played.files)
    games = config.league.games_per_draw
    lineup = TrainingLineup(
        seating.map,
        members(seating),
        games,
        load,
        seeds.generator(config.seed, "seats", *actor, 0),
        reseat,
        _blocks(config),
    )
    found = layouts(config, seating)
    training = _tables(config, seating, lineup, found, actor, 0, config.actors.envs_per_actor, busy)
    rules = config.league
    alike = len(set(seating.spec.seats.values())) == 1
    if not (seating.has_league and rules.rating_every and alike and actor.ordinal == 0):
        return training
    rated, references = _rating_members(played)
    rating_lineup = RatingLineup(
        len(seating.spec.seats),
        [*rated, *references],
        games,
        load,
        seeds.generator(config.seed, "seats", *actor, 1),
        _alike(config, seating),
    )
    rating = _tables(config, seating, rating_lineup, {}, actor, 1, rules.rating_slots, busy)
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


def _rating_members(played: RunToPlay) -> tuple[list[Member], list[Member]]:
    config, seating = played.files.config, played.seating
    names = [PlayerName.parse(text) for text in config.league.reference]
    compiled = seating.spec.compiled and all(compilable(n) for n in names)
    factory = run_factory(config, seating, played.find, compiled, RATING_PLACES)
    first = next(iter(seating.spec.seats.items()))
    rated = factory.members(f"league:{config.learning[0]}", *first)
    return rated, [m for name in names for m in factory.members(name.text, *first)]


def _tables(
    config: RunConfig,
    seating: Seating,
    lineup: Lineup,
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
    if seating.spec.compiled and all(getattr(m.player, "xp", np) is not np for m in lineup.members):
        from rookery.actor.rollouts.table_compiled import ROUND_STEPS, CompiledTableRollout
        from rookery.envs.registry import make_compiled

        steps = env_steps(found) if found else ROUND_STEPS
        env = make_compiled(environment.id, environment.kwargs)
        check_unchanged(seating.spec, env.spec)
        return CompiledTableRollout(env, lineup, found, blank, steps, slots, seed)
    from rookery.actor.rollouts.table import Table
    from rookery.actor.rollouts.table_rollout import TableRollout
    from rookery.envs.registry import make

    busy("making the environment")
    stepped = make(environment.id, slots, environment.kwargs)
    check_unchanged(seating.spec, stepped.spec)
    rng = seeds.generator(config.seed, "actor", *actor, *([part] if part else []))
    table = Table(stepped, lineup, rng, seed, busy, f"{actor}.{part}")
    limit = env_steps(found) if found else None
    return TableRollout(table, found, blank, limit)


def _loader(files: RunFiles) -> Callable[[str], Any]:
    store = open_store(files.snapshots)
    return lambda file: load_snapshot(store, file)


def _namespace(compiled: bool) -> Any:
    if not compiled:
        return np
    import jax.numpy as jnp

    return jnp
