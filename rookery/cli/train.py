"""Training in the foreground: new runs, those that stopped, recorded ones; here or at a server."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from rookery.cli.config import config_from
from rookery.cli.exits import ENDINGS, FAILED, INTERRUPTED, OK
from rookery.cli.options import bounds_from, labels_from
from rookery.cli.steer import steer
from rookery.cli.text import print_json, say, server_shown
from rookery.cli.waiting import waiting
from rookery.errors import InputError, RookeryError, Unreachable

if TYPE_CHECKING:
    from rookery.config.models import RunConfig
    from rookery.control.home import Home
    from rookery.launchers.ray.link import Links
    from rookery.launchers.standby import Standby
    from rookery.messages import Command


JUDGED_EPISODES = 20  # of a policy that a replay made


def train(arguments: argparse.Namespace, began: float) -> int:
    if arguments.seeds is not None:
        from rookery.cli.seeds import train_seeds

        return train_seeds(arguments, began)
    return (_train_far if arguments.server else _train_here)(arguments, began)


def _train_here(arguments: argparse.Namespace, began: float) -> int:
    from rookery.launchers.standby import Standby

    local = arguments.launcher in (None, "local")
    standby = Standby() if local else None  # before anything slow
    try:
        with contextlib.ExitStack() as stack:
            with waiting("looking at the environment and its players"):
                config = config_from(arguments)
                if standby is not None and (
                    config.launcher != "local" or config.learner.threads != 1
                ):
                    standby.close()

                from rookery.control.create import create_run
                from rookery.control.home import Home

                home = Home.default()
                links = connecting(home, config, stack)
                run = create_run(home, config, labels=labels_from(arguments))
            return _carry(home, run, arguments.json, began, standby, links=links)
    finally:
        if standby is not None:
            standby.close()


def connecting(home: Home, config: RunConfig, stack: contextlib.ExitStack) -> Links:
    """On the cluster before there is a run, if it is for one."""
    from rookery.control.carry import connected

    said = "getting onto the Ray cluster" if config.launcher == "ray" else ""
    with waiting(said) if said else contextlib.nullcontext():
        return stack.enter_context(connected(home, config))


def _train_far(arguments: argparse.Namespace, began: float) -> int:
    """Submit, and watch; Ctrl-C leaves the run going."""
    from rookery.cli.follow import FollowedRun
    from rookery.cli.progress import Progress
    from rookery.client import open_client

    with waiting("looking at the environment and its players"):
        config = config_from(arguments)
        run = open_client(arguments.server).submit(config, **labels_from(arguments))
    watch = FollowedRun(run)
    progress = Progress(run.id, sys.stderr if arguments.json else sys.stdout, config)
    shown = server_shown(arguments.server)
    try:
        with progress:
            watch.to_its_end(progress)
    except KeyboardInterrupt:
        print(f"rookery: {run.id} goes on: rookery stop {run.id} --server {shown}", file=sys.stderr)
        with contextlib.suppress(Unreachable):
            if arguments.json:
                print_json(watch.result(began))
        return INTERRUPTED
    result = watch.result(began)
    if arguments.json:
        print_json(result)
    else:
        progress.summary(result, f" --server {shown}")
    return ENDINGS.get(result["status"], FAILED)


def resume(arguments: argparse.Namespace, began: float) -> int:
    """Its owner goes on with it, if there is one; else it is carried here."""
    if arguments.server or arguments.dry_run:
        return steer(arguments, began)
    from rookery.control.carry import going_on
    from rookery.control.home import Home

    home = Home.default()
    run = home.find(arguments.run)
    if home.is_owned(run) and not _takes_over(home, run):
        return steer(arguments, began)
    if home.has_server() and home.state(run).status == "queued":  # which is about to take it up
        return steer(arguments, began)
    with waiting("looking at its checkpoints and its environment"):
        _check_checkpoints(home, run)
        _check_environment(home, run)
    with contextlib.ExitStack() as stack:
        links = connecting(home, home.config(home.state(run)), stack)
        ask = going_on(home, run, bounds_from(arguments))
        return _carry(home, run, arguments.json, began, ask=ask, links=links)


def _takes_over(home: Home, run: str) -> bool:
    """Whether it was carried by a terminal that is frozen, and that was ended. What a server
    carries is a new server's to take over: it has other runs as well."""
    state = home.state(run)
    owner = home.owner(run)
    if owner is None or not owner.seen.stopped:
        return False
    silent_s = home.config(state).restarts.silent_s
    ended = home.evict(run, silent_s) if state.owned_by == "terminal" else None
    if ended is None:
        pid = owner.progress.pid
        again = f"try again in {silent_s:g} s" if state.owned_by == "terminal" else "rookery serve"
        raise InputError(
            f"run {run} is carried by {owner}, which is frozen: let it go on with "
            f"kill -CONT {pid}, or take over: {again}"
        )
    print(f"rookery: the owner of {run}, {ended}: going on here", file=sys.stderr)
    return True


def _check_checkpoints(home: Home, run: str) -> None:
    from rookery.checkpoints.checkpoint import newest_checkpoint
    from rookery.checkpoints.store import open_store
    from rookery.learner.manifest import LearnerManifest

    damaged: list[str] = []
    try:
        store = open_store(home.files(run).checkpoints)
        newest_checkpoint(store, LearnerManifest, lambda name, why: damaged.append(why))
    except RookeryError as error:
        raise InputError(f"run {run} cannot be resumed: {error}") from None
    for why in damaged:
        say(f"rookery: {why}; going on from the one before", sys.stderr)


def _check_environment(home: Home, run: str) -> None:
    from rookery.control.check import check_environment
    from rookery.control.context import allowed_files

    check_environment(allowed_files(home, home.state(run)))


def replay(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.control.replay import replay_run

    home = Home.default()
    run = home.find(arguments.run)
    parts = [part for part in arguments.from_offset.split(",") if part]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"--from-offset {arguments.from_offset!r}: one number for each partition")
    start = tuple(map(int, parts))
    made = replay_run(home, run, arguments.into, start, arguments.passes, arguments.seed)
    kinds = [home.config(home.state(name)).algorithm.kind for name in (made, run)]
    switched = f" (not {kinds[1]}, as {run} did)" if kinds[0] != kinds[1] else ""
    said = f"{made} trains with {kinds[0]}{switched}, which corrects for old weights"
    print(f"rookery: {said}", file=sys.stderr)
    return _carry(home, made, arguments.json, began, judge=True)


def _new_return(home: Home, run: str) -> float | None:
    """How well the policy plays that a replay made; None: it cannot be played here."""
    from rookery.evaluation.episodes import evaluate_run
    from rookery.worker.xla import prepare_xla

    prepare_xla(1)
    try:
        found: dict[str, dict[str, float]] = evaluate_run(home, run, JUDGED_EPISODES, 0)
    except RookeryError as error:
        say(f"rookery: the new policy cannot be played here: {error}", sys.stderr)
        return None
    return found["greedy"]["mean"]


def _carry(
    home: Home,
    run: str,
    as_json: bool,
    began: float,
    standby: Standby | None = None,
    ask: Command | None = None,
    judge: bool = False,
    links: Links | None = None,
) -> int:
    from rookery.cli.progress import Progress
    from rookery.control.carry import carry
    from rookery.control.queries import result_here

    before = home.state(run)
    progress = Progress(run, sys.stderr if as_json else sys.stdout, home.config(before), before)
    with progress:
        state = carry(home, run, progress, standby, ask=ask, own_process=True, links=links)
    if state is None:
        print(f"rookery: run {run} is owned by another process; asked it to go on", file=sys.stderr)
        return OK
    result = result_here(home, state, began)
    if judge and state.status in ENDINGS:
        result["new_return"] = _new_return(home, run)
    if as_json:
        print_json(result)
    else:
        progress.summary(result)
    return ENDINGS.get(state.status, FAILED)
