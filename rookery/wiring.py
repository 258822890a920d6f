"""Who exists and who is handed what: one wiring for every launcher and every bus.

A learner and an actor are each built from a `Place` (where the run lives) and a `wait_s`: how long
they may sleep on the bus. In an inline run that is 0 and the two take turns in one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rookery import seeds
from rookery.actor.loop import Rollout, play
from rookery.actor.post import ActorPost
from rookery.algorithms.policies import initial_weights
from rookery.bus import EARLIEST, Bus, Record
from rookery.codec import Fragment
from rookery.config import RunConfig
from rookery.control.allow import refused, seats_refused
from rookery.control.home import Home
from rookery.errors import Forbidden, InputError, MessageError
from rookery.frozen import snapshot_store
from rookery.learner.batching import Branch, Inbox
from rookery.learner.checkpoint import Manifest, acting_arrays, newest_checkpoint, pending_fragments
from rookery.learner.claims import claim
from rookery.learner.keeper import Keeper
from rookery.learner.leagues import Leagues
from rookery.learner.loop import Updated, learn
from rookery.learner.post import LearnerPost
from rookery.learner.report import Report
from rookery.learner.store import open_store
from rookery.messages import (
    ActorId,
    CheckpointDamaged,
    LearnerOrders,
    SeatsChanged,
    decode_json,
)
from rookery.players.policy import PolicyPlayer, draw_jax
from rookery.players.seat_map import SeatFunction, Seating
from rookery.spaces import EnvironmentSpec
from rookery.tables import is_solo, make_rollout, networks, policy_setups


@dataclass(frozen=True)
class Place:
    """Where a worker finds its run."""

    home: Home
    run: str
    config: RunConfig
    seating: Seating
    bus: Bus
    orders: LearnerOrders

    @property
    def spec(self) -> EnvironmentSpec:
        return self.seating.spec

    @classmethod
    def open(cls, home: Home, run: str, seat_function: SeatFunction | None = None) -> Place:
        state = home.state(run)
        config = home.config(state)
        if state.origin == "network" and (why := refused(config, home.settings.allow)):
            raise Forbidden(why)
        seating = Seating.of(config, home.spec(state), seat_function)
        return cls(home, run, config, seating, home.open_run_bus(run, config), state.orders)

    def trusted(self, record: Record) -> bool:
        """Whether a controller of this home wrote it."""
        return self.home.trusts(record.topic, self.run, record.payload, record.headers)

    def seats_from(self, record: Record) -> SeatsChanged:
        """A change of seats, if a controller asked for it and the owner allows who is in it."""
        changed = decode_json(record.payload, SeatsChanged)
        if not self.trusted(record):
            raise MessageError("a change of seats that is not signed with this home's key")
        if changed.origin == "network":
            why = seats_refused(changed.seats, self.home.settings.allow)
            if why is not None:
                raise MessageError(why)
        return changed


def prepare_xla(threads: int) -> None:
    """Size XLA's pool and switch the persistent compile cache on; before JAX is imported."""
    os.environ["NPROC"] = str(threads)
    cache = compile_cache_dir()
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu,cuda" if os.environ.get("CUDA_HOME") else "cpu")


def compile_cache_dir() -> Path:
    chosen = os.environ.get("ROOKERY_COMPILE_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery" / "xla"


@dataclass
class Actor:
    """An actor with its parts in place."""

    rollout: Rollout
    post: ActorPost
    loop: Iterator[tuple[Fragment, ...] | None]


def wire_actor(
    place: Place,
    actor: ActorId,
    wait_s: float,
    busy: Callable[[str], None] = lambda doing: None,
    stopped: Callable[[], bool] = lambda: False,
    heartbeat_s: float = 0.0,
) -> Actor:
    config, seating = place.config, place.seating
    rollout: Rollout
    if config.replay.run:
        rollout = _recorded_rollout(place)
    elif is_solo(seating):
        rollout = _solo_rollout(place, actor, busy)
    else:
        rollout = make_rollout(config, seating, place.home, place.run, actor, busy)
    policies = [p for p in config.all_policies if p in seating.live]
    seats = tuple(place.spec.seats)
    post = ActorPost(
        place.bus,
        place.run,
        policies,
        config.learning,
        actor,
        seats,
        wait_s,
        busy,
        heartbeat_s,
        place.seats_from,
    )
    return Actor(rollout, post, play(rollout, post, stopped))


def _recorded_rollout(place: Place) -> Rollout:
    from rookery.actor.recorded import RecordedRollout

    replay, home = place.config.replay, place.home
    bus = home.read_run_bus(home.state(home.find(replay.run)))
    if bus is None:
        raise InputError(f"run {replay.run} has recorded nothing: its bus is gone")
    return RecordedRollout(bus, place.config.learning, replay.start)


def _solo_rollout(place: Place, actor: ActorId, busy: Callable[[str], None]) -> Rollout:
    """The plain case, without a table: one seat, one policy."""
    config, (seat,) = place.config, place.spec.seats
    (network,) = networks(config, place.seating).values()
    seed = seeds.number(config.seed, "environment", *actor)
    if place.spec.compiled:
        import jax.numpy as jnp

        from rookery.actor.compiled import CompiledRollout
        from rookery.envs.registry import make_compiled

        return CompiledRollout(
            make_compiled(config.environment.id, config.environment.kwargs),
            PolicyPlayer(network, jnp, draw_jax),
            seat,
            config.actors.rollout_steps,
            config.actors.envs_per_actor,
            seed,
        )
    from rookery.actor.stepped import SteppedRollout
    from rookery.envs.registry import make

    busy("making the environment")
    env = make(config.environment.id, config.actors.envs_per_actor, config.environment.kwargs)
    rng = seeds.generator(config.seed, "actor", *actor)
    return SteppedRollout(
        env, PolicyPlayer(network), seat, config.actors.rollout_steps, rng, seed, busy
    )


@dataclass
class Learner:
    """A learner with its parts in place."""

    keeper: Keeper
    loop: Iterator[Updated | None]


def wire_learner(
    place: Place,
    at_least: int,
    wait_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Learner:
    """The learner, going on from the newest good checkpoint if there is one.

    The first weights go out before anything is compiled: actors get ready meanwhile.
    """
    home, run, config = place.home, place.run, place.config
    nets = networks(config, place.seating)
    setups = policy_setups(config, place.seating)
    store = open_store(home.checkpoint_uri(run, config))

    def damaged(name: str, why: str) -> None:
        home.record(CheckpointDamaged(run=run, name=name, why=why))

    checkpoint = newest_checkpoint(store, damaged)
    begun = initial_weights([setups[p] for p in config.learning], config.seed)
    begun = initial_weights(list(setups.values()), config.seed) | begun
    arrays = {p: nets[p].acting_arrays(*begun[p]) for p in setups}
    if checkpoint is None:
        manifest = Manifest.beginning(run, config, place.seating.has_league)
    else:
        manifest = checkpoint.manifest
        arrays |= {p: acting_arrays(nets[p], checkpoint.arrays, p) for p in config.learning}
    generation = claim(place.bus, at_least)
    manifest.ancestry[generation] = manifest.number
    inbox = Inbox(
        place.bus,
        manifest.book,
        manifest.ledger,
        Branch(manifest.ancestry),
        manifest.position or EARLIEST,
        pending_fragments(checkpoint),
        wait_s,
        trains_abandoned=all(setups[p].algorithm.kind == "impala" for p in config.learning),
        orders=place.orders,
        trusted=place.trusted,
    )
    interval_s = config.learner.publish_interval_s
    post = LearnerPost(place.bus, run, inbox, generation, manifest.number, interval_s)
    leagues, pools = None, None
    if manifest.league is not None:
        leagues = Leagues(
            config,
            manifest.league,
            snapshot_store(home, run, config),
            generation,
            lambda: inbox.ledger.trained,
        )
        pools = leagues.begin(manifest.number, arrays)
    post.announce(arrays, pools)

    from rookery.learner.trainer import Trainer  # imports JAX

    trainer = Trainer(
        [setups[p] for p in config.learning], config.actors.rollout_steps, config.seed
    )
    if checkpoint is not None:
        trainer.restore(checkpoint.arrays)
    post.critics = trainer.critic_arrays
    if leagues is not None:
        leagues.reset = trainer.reset
    report = Report(run, manifest.windows, len(place.spec.seats), manifest.train_s)
    if wait_s and inbox.receive(post.number, wait_s=0.0):
        post.grant()  # the first fragments are played while the update compiles
        report.begin()
    trainer.compile()
    keeper = Keeper(place.bus, config, store, inbox, trainer, post, report, leagues, checkpoint)
    return Learner(keeper, learn(inbox, trainer, post, keeper.progress, leagues, stopped))
