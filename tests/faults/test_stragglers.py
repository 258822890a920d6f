"""Real actors that freeze, or become more: the others go on, and every step is accounted for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rookery.checkpoints.checkpoint import newest_checkpoint
from rookery.checkpoints.store import open_store
from rookery.learner.manifest import LearnerManifest
from tests.conftest import training_history

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

SMALL = ("CartPole-v1", "--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
ENDLESS = ("--steps", 100_000_000, "--json")


def trains_on(running: Started, steps: int) -> None:
    goal = running.env_steps + steps
    running.wait_until(lambda: running.env_steps >= goal, f"{steps} more steps", 60)


@pytest.mark.soak
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_a_frozen_actor_does_not_hold_up_the_other(cli: Cli, algorithm: str) -> None:
    # the frozen one is to be seen late, so it must not be replaced before that
    patient = ("--set", "restarts.silent_s=45")
    options = ("--actors", 2, "--algorithm", algorithm)
    running = cli.start("train", *SMALL, *ENDLESS, *options, *patient)
    trains_on(running, 5000)
    frozen = running.wait_until(lambda: running.worker("actor", 1), "an actor")
    frozen.suspend()
    try:
        running.wait_until(
            lambda: list(training_history(cli.home, running.run))[-1].late == ("1.1",),
            "the learner to go on without it",
        )
        running.named("actor-1", "actor-1 is frozen for")
        trains_on(running, 20_000)
    finally:
        frozen.resume()
    trains_on(running, 5000)
    assert running.interrupt().code == 130
    shown = running.show()
    assert shown["balance"]["exact"], shown["balance"]
    assert set(shown["balance"]["dropped"]) <= {"late", "abandoned"}


@pytest.mark.soak
@pytest.mark.parametrize(("algorithm", "shape"), [("ppo", (4, 1)), ("impala", (1, 4))])
def test_batches_follow_the_number_of_actors_and_a_resumed_run_goes_on_with_them(
    cli: Cli, algorithm: str, shape: tuple[int, int]
) -> None:
    running = cli.start("train", *SMALL, *ENDLESS, "--algorithm", algorithm)
    trains_on(running, 3000)

    def shaped(wanted: tuple[int, int]) -> bool:
        store = open_store(cli.home.files(running.run).checkpoints)
        found = newest_checkpoint(store, LearnerManifest, lambda name, why: None)
        book = found.manifest.book if found else None
        return book is not None and (book.fragments_per_batch, book.max_lag) == wanted

    cli("scale", running.run, "--actors", 4)
    running.wait_until(lambda: shaped(shape), "batches for four", 60)
    trains_on(running, 3000)
    assert running.interrupt().code == 130
    again = cli.start("resume", running.run, "--json", run=running.run)
    trains_on(again, 3000)
    assert shaped(shape)
    cli("scale", again.run, "--actors", 1)
    again.wait_until(lambda: shaped((1, 1 if algorithm == "ppo" else 2)), "batches for one", 60)
    trains_on(again, 3000)
    why = cli("why", again.run, "--json").json
    assert why["status"] == "running" and why["component"] is None, why
    assert again.interrupt().code == 130
    shown = again.show()
    assert shown["balance"]["exact"], shown["balance"]
