"""Checking before a run exists: what its environment looks like, whether its players can play.

Most mistakes in a config are found here. A terminal looks for itself; a server has a process
of its own look (`rookery prepare`), so that the code of environments and players never runs in it:

    {"config": {...}}                                on standard input: a run to be
    {"config": {...}, "spec": {...}, "seats": {}}    other players for the seats of one that is
    {"config": {...}, "spec": {...}, "actors": 4}    more actors for one that is
    {"config": {...}, "spec": {...}, "learners": 2, "actors": 3}    more learners for one
    {"environment": {"id": ..., "kwargs": {}}}       only what one looks like, whoever plays
    {"spec": {...}} or {"error": "one line"}         on standard output
"""

from __future__ import annotations

import json
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from rookery.actor.build import check_players
from rookery.checkpoints.policies import RunFiles
from rookery.checkpoints.store import open_store
from rookery.config.models import RunConfig, is_far
from rookery.config.reading import validate
from rookery.control.allow import refused, seats_refused
from rookery.control.home import Home
from rookery.control.settings import Allow
from rookery.envs.changes import check_unchanged
from rookery.envs.registry import check_importable, describe
from rookery.errors import Forbidden, InputError, RookeryError
from rookery.output import keep_stdout
from rookery.players.seat_map import SeatFunction, Seating, reseated
from rookery.processes import memory_bytes
from rookery.spaces import EnvironmentSpec, spec_from_json, spec_to_json
from rookery.worker.policies import (
    check_crew,
    fragment_bytes,
    fragments_with,
    least_experience,
    most_fragments,
)
from rookery.worker.xla import prepare_xla

MAX_ORDER_BYTES = 8 << 20
MOST_MB, MOST_CPU_S = 2048, 30  # that looking at somebody else's config may take


def check_config(
    home: Home, config: RunConfig, seat_function: SeatFunction | None = None
) -> EnvironmentSpec:
    """Look at the environment and seat the players once, which finds most mistakes."""
    if config.bus.kind == "kafka" and home.cluster is None:
        raise InputError(
            "bus.kind=kafka: whoever starts Rookery has to say where the cluster is, with "
            "--bus kafka://HOST:PORT or ROOKERY_BUS"
        )
    if is_far(config.checkpoint.uri):
        open_store(config.checkpoint.uri).names()  # it is there, and lets us in
    if config.launcher != "inline":
        check_importable(config.environment.id)
    spec = describe(config.environment.id, config.environment.kwargs)
    seating = Seating.of(config, spec, seat_function)
    if config.learner.count > 1:
        check_crew(config, seating)
    if not _trains_elsewhere(home, config):
        _check_memory(config, seating)
    if home.cluster is None:
        _check_room(home, config, seating)
    check_players(config, seating, home.find_files)
    return spec


def _trains_elsewhere(home: Home, config: RunConfig) -> bool:
    """On a machine of a cluster, whose memory is not this one's."""
    on_ray = config.launcher == "ray" and bool(home.settings.ray.here().address)
    return on_ray or home.cluster is not None


def _check_memory(config: RunConfig, seating: Seating) -> None:
    actors, learner = config.actors, config.learner
    fragments = fragments_with(config, actors.max_count) if actors.auto else 0
    fragments = max(fragments, learner.fragments_per_batch)
    if fragments > most_fragments(config, seating):
        needed, has = fragments * fragment_bytes(config, seating), memory_bytes()
        also = " or actors.max_count" if fragments > learner.fragments_per_batch else ""
        raise InputError(
            f"{actors.envs_per_actor} environments x {actors.rollout_steps} steps x {fragments} "
            f"fragments are {needed / 1e9:,.1f} GB a batch, and this machine has {has / 1e9:,.1f} "
            f"GB: lower actors.envs_per_actor or actors.rollout_steps{also}"
        )


def _check_room(home: Home, config: RunConfig, seating: Seating) -> None:
    """What the bus has to hold fits where it is: a file, or memory."""
    needed = least_experience(config, seating)
    if config.bus.kind in ("sqlite", "ray"):  # whose host keeps a file beside the run
        there = next(p for p in (home.path, *home.path.absolute().parents) if p.exists())
        has, where = shutil.disk_usage(there).free, "its disk has"
    else:
        has, where = memory_bytes(), "this machine has"
    if needed > has:
        raise InputError(
            f"the bus has to hold {needed / 1e9:,.1f} GB of experience, and {where} "
            f"{has / 1e9:,.1f} GB: lower actors.envs_per_actor, actors.rollout_steps, "
            "actors.max_count or learner.max_policy_lag_versions"
        )


def check_actors(home: Home, config: RunConfig, spec: EnvironmentSpec, actors: int) -> None:
    """Raise where batches that follow the number of actors would not fit in memory."""
    if _trains_elsewhere(home, config):
        return
    most = most_fragments(config, Seating.of(config, spec))
    if fragments_with(config, actors) > most:
        raise InputError(
            f"a batch has a fragment of each actor, and this machine's memory holds a batch of "
            f"{most:,} at most: {actors:,} actors are too many, ask for {most:,}"
        )


def check_environment(files: RunFiles) -> None:
    """Raise where a run's environment is not what it was when the run began."""
    if not files.config.replay.run:
        learner, named = files.config.learner, files.config.environment
        inline = files.config.launcher == "inline"  # a JAX-native environment imports JAX
        prepare_xla(learner.threads, learner.device if inline else None)
        check_unchanged(files.spec, describe(named.id, named.kwargs))


def check_seats(
    home: Home, config: RunConfig, spec: EnvironmentSpec, seats: Mapping[str, Any]
) -> None:
    """Make everyone that a new seat map names once, so that whoever can't play is refused here."""
    prepare_xla(1)  # scripts of a compiled run are made with JAX
    check_players(config, reseated(config, Seating.of(config, spec), seats), home.find_files)


def check_learners(config: RunConfig, spec: EnvironmentSpec, learners: int, actors: int) -> None:
    """Raise what keeps so many from sharing the batches that a run has with so many actors."""
    changes = {"count": learners, "fragments_per_batch": fragments_with(config, actors)}
    learner = config.learner.model_copy(update=changes)
    check_crew(config.model_copy(update={"learner": learner}), Seating.of(config, spec))


def check_order(
    home: Home, order: Mapping[str, Any], seat_function: SeatFunction | None = None
) -> dict[str, Any]:
    """The spec that an order asks for; raises what is wrong with it."""
    if "environment" in order:
        named = order["environment"]
        return spec_to_json(describe(named["id"], named["kwargs"]))
    config = validate(order["config"])
    if "learners" in order:
        check_learners(config, spec_from_json(order["spec"]), order["learners"], order["actors"])
    elif "actors" in order:
        check_actors(home, config, spec_from_json(order["spec"]), order["actors"])
    elif "seats" in order:
        check_seats(home, config, spec_from_json(order["spec"]), order["seats"])
    else:
        return spec_to_json(check_config(home, config, seat_function))
    spec: dict[str, Any] = order["spec"]
    return spec


def answer(home: Home, order: Mapping[str, Any]) -> dict[str, Any]:
    """What a server is told of its order; whatever goes wrong is one line."""
    prepare_xla(1)  # looking at a JAX-native environment imports JAX
    try:
        _check_allowed(order, home.settings.allow)
        return {"spec": check_order(home, order)}
    except Exception as error:  # noqa: BLE001 others' code, in a process of its own
        return {"error": " ".join(_told(error).split())}


def _told(error: Exception) -> str:
    if isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError):
        return f"looking at it takes more than {MOST_MB} MB of memory: ask for less"
    return str(error) if isinstance(error, RookeryError) else f"{type(error).__name__}: {error}"


def _check_allowed(order: Mapping[str, Any], allow: Allow) -> None:
    """The server has judged it; whoever imports what is named judges again."""
    if "learners" in order or "actors" in order:
        return  # of a run that its workers have judged
    if "seats" in order:
        why = seats_refused(order["seats"], allow, here=True)
    else:
        config = order.get("config") or {"environment": order["environment"]}
        why = refused(validate(config), allow, here=True)
    if why is not None:
        raise Forbidden(why)


def _limit() -> None:
    """Others' code may be slow or large: it ends itself, and says so, before anybody else suffers.

    By time of a processor, which is the same on a busy machine.
    """

    def too_long(*_: object) -> None:
        raise InputError(f"looking at it takes more than {MOST_CPU_S} s of a processor")

    signal.signal(signal.SIGXCPU, too_long)
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_S, MOST_CPU_S + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MB << 20, MOST_MB << 20))


def serve_one(end_with_parent: Callable[[], None]) -> int:
    """`rookery prepare`: one order from standard input, its answer to standard output.

    What environments print goes to standard error. The server that waits for the answer keeps
    standard input open: when that ends, so does this process.
    """
    answers = keep_stdout()
    line = sys.stdin.buffer.readline(MAX_ORDER_BYTES)
    if not line.endswith(b"\n"):
        return 0  # nobody waits any more
    end_with_parent()
    _limit()
    answers.write(json.dumps(answer(Home.default(), json.loads(line))) + "\n")
    answers.close()
    return 0
