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
from rookery.algorithms.networks import Network, initial_arrays
from rookery.bus import EARLIEST, Bus
from rookery.codec import Fragment
from rookery.config import RunConfig
from rookery.control.home import Home
from rookery.envs import SOLO_SEAT
from rookery.learner.batching import Branch, Inbox
from rookery.learner.checkpoint import Manifest, acting_arrays, newest_checkpoint, pending_fragments
from rookery.learner.keeper import Keeper
from rookery.learner.loop import Updated, learn
from rookery.learner.post import LearnerPost
from rookery.learner.report import Report
from rookery.learner.store import open_store
from rookery.messages import ActorId, CheckpointDamaged
from rookery.players.policy import PolicyPlayer, draw_jax
from rookery.spaces import EnvironmentSpec

POLICY = "main"


@dataclass(frozen=True)
class Place:
    """Where a worker finds its run."""

    home: Home
    run: str
    config: RunConfig
    spec: EnvironmentSpec
    bus: Bus

    @classmethod
    def open(cls, home: Home, run: str) -> Place:
        state = home.state(run)
        config = home.config(state)
        return cls(home, run, config, home.spec(state), home.open_run_bus(run, config))


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
    loop: Iterator[Fragment | None]


def wire_actor(
    place: Place,
    actor: ActorId,
    wait_s: float,
    busy: Callable[[str], None] = lambda doing: None,
    stopped: Callable[[], bool] = lambda: False,
) -> Actor:
    config, spec = place.config, place.spec
    network = Network(spec.seats[SOLO_SEAT], config.network)
    seed = seeds.number(config.seed, "environment", *actor)
    rollout: Rollout
    if spec.compiled:
        import jax.numpy as jnp

        from rookery.actor.compiled import CompiledRollout
        from rookery.envs.registry import make_compiled

        rollout = CompiledRollout(
            make_compiled(config.environment.id, config.environment.kwargs),
            PolicyPlayer(network, jnp, draw_jax),
            SOLO_SEAT,
            config.actors.rollout_steps,
            config.actors.envs_per_actor,
            seed,
        )
    else:
        from rookery.actor.stepped import SteppedRollout
        from rookery.envs.registry import make

        busy("making the environment")
        env = make(config.environment.id, config.actors.envs_per_actor, config.environment.kwargs)
        rollout = SteppedRollout(
            env,
            PolicyPlayer(network),
            SOLO_SEAT,
            config.actors.rollout_steps,
            seeds.generator(config.seed, "actor", *actor),
            seed,
            busy,
        )
    post = ActorPost(place.bus, place.run, POLICY, actor, SOLO_SEAT, "policy", wait_s, busy)
    return Actor(rollout, post, play(rollout, post, stopped))


@dataclass
class Learner:
    """A learner with its parts in place."""

    keeper: Keeper
    loop: Iterator[Updated | None]


def wire_learner(
    place: Place,
    generation: int,
    wait_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Learner:
    """The learner, going on from the newest good checkpoint if there is one.

    The first weights go out before anything is compiled: actors get ready meanwhile.
    """
    home, run, config = place.home, place.run, place.config
    network = Network(place.spec.seats[SOLO_SEAT], config.network)
    store = open_store(home.checkpoint_uri(run, config))

    def damaged(name: str, why: str) -> None:
        home.record(CheckpointDamaged(run=run, name=name, why=why))

    checkpoint = newest_checkpoint(store, damaged)
    if checkpoint is None:
        manifest = Manifest.beginning(run, POLICY, config)
        arrays = network.acting_arrays(*initial_arrays(network, config.seed))
    else:
        manifest = checkpoint.manifest
        arrays = acting_arrays(network, checkpoint.arrays)
    manifest.ancestry[generation] = manifest.number
    inbox = Inbox(
        place.bus,
        manifest.book,
        manifest.ledger,
        Branch(manifest.ancestry),
        manifest.position or EARLIEST,
        pending_fragments(checkpoint),
        wait_s,
        trains_abandoned=config.algorithm.kind == "impala",
    )
    post = LearnerPost(place.bus, run, POLICY, inbox, generation, manifest.number)
    post.announce(arrays)

    from rookery.learner.trainer import Trainer  # imports JAX

    trainer = Trainer(config, network)
    if checkpoint is not None:
        trainer.restore(checkpoint.arrays)
    report = Report(run, POLICY, manifest.episodes, manifest.episode_count, manifest.train_s)
    if wait_s and inbox.receive(post.number, wait_s=0.0):
        post.grant()  # the first fragments are played while the update compiles
        report.begin()
    trainer.compile()
    keeper = Keeper(place.bus, config, store, inbox, trainer, post, report, checkpoint)
    return Learner(keeper, learn(inbox, trainer, post, keeper.progress, stopped))
