"""Several learners of one run, one of them killed: all begin anew together, and nothing is lost or
counted twice."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.faults.test_faults import ENDLESS, OFTEN, SMALL, check_accounts, reach, tells_of

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

CREW = ("--set", "learner.count=2", "--actors", 1)


def lives(running: Started) -> dict[str, int]:
    """The incarnation of every learner that runs."""
    workers = running.cli.home.state(running.run).workers
    return {n: w.incarnation for n, w in workers.items() if w.kind == "learner" and w.running}


def kill_one(running: Started, index: int) -> None:
    """kill -9 one learner, and wait until all of them are replaced and train."""
    victim = running.wait_until(lambda: running.worker("learner", index), "a living learner")
    before, steps = lives(running), running.env_steps
    victim.kill()

    def replaced() -> bool:
        now = lives(running)
        return now.keys() == before.keys() and all(now[name] > before[name] for name in before)

    running.wait_until(replaced, "all learners to be replaced", 60)
    running.wait_until(lambda: running.env_steps > steps, "training to go on", 60)


def test_when_one_learner_is_killed_all_go_on_from_a_checkpoint(cli: Cli) -> None:
    running = cli.start("train", *SMALL, *OFTEN, *CREW, *ENDLESS, "--json")
    reach(running, 2_000, 0.1)
    kill_one(running, 1)
    running.wait_until(lambda: tells_of(running, "learner-1", "ended by SIGKILL"), "why", 30)
    deaths = {n: w.deaths for n, w in cli.home.state(running.run).workers.items()}
    assert deaths == {"learner-0": 0, "learner-1": 1, "actor-0": 0}
    said = (cli.home.run_dir(running.run) / "logs" / "learner-0.1.log").read_text()
    assert "learner-1 is gone: learners of one run end together" in said
    cli("stop", running.run)
    running.finish(timeout=60, expect=None)
    shown = check_accounts(cli, running.run, bound=1)
    assert shown["status"] == "stopped"


@pytest.mark.soak
def test_a_crew_is_made_smaller_while_it_trains(cli: Cli) -> None:
    running = cli.start("train", *SMALL, *OFTEN, *CREW, *ENDLESS, "--json")
    reach(running, 2_000, 0.1)
    cli("scale", running.run, "--learner", 1)
    running.wait_until(lambda: lives(running).keys() == {"learner-0"}, "one learner", 60)
    steps = running.env_steps
    running.wait_until(lambda: running.env_steps > steps, "it to train", 60)
    cli("stop", running.run)
    running.finish(timeout=60, expect=None)
    shown = check_accounts(cli, running.run, bound=1)
    assert shown["status"] == "stopped" and shown["env_steps"] > steps


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_ten_random_kills_of_two_learners(cli: Cli, algorithm: str) -> None:
    rng = random.Random(algorithm)
    options = ("--algorithm", algorithm, *ENDLESS, "--json")
    running = cli.start("train", *SMALL, *OFTEN, *CREW, *options)
    for number in range(10):
        reach(running, running.env_steps + 1_000, rng.uniform(0, 1.0))
        kill_one(running, rng.randrange(2))
        assert sum(w.deaths for w in cli.home.state(running.run).workers.values()) == number + 1
        running.named(None, "nothing is stuck")
    cli("stop", running.run)
    running.finish(timeout=60, expect=None)
    check_accounts(cli, running.run, bound={"ppo": 1, "impala": 2}[algorithm])
