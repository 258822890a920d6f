"""Does it learn: the greedy mean of 100 fresh episodes of the final checkpoint, within a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import Cli

# environment -> (options, score to reach, budget of steps)
TASKS: dict[str, tuple[tuple[str, ...], float, int]] = {
    "CartPole-v1": ((), 475.0, 500_000),
    "Acrobot-v1": ((), -100.0, 1_000_000),
    "Pendulum-v1": ((), -200.0, 1_000_000),
    "FrozenLake-v1": (("--env.is_slippery=false",), 0.95, 300_000),
}
SOAK = [("ppo", name) for name in TASKS] + [("impala", "CartPole-v1"), ("impala", "Acrobot-v1")]


def check_learns(
    cli: Cli, algorithm: str, environment: str, seed: int, more: tuple[str, ...] = ()
) -> None:
    options, target, budget = TASKS[environment]
    command = ("train", environment, *options, *more, "--algorithm", algorithm)
    done = cli(*command, "--steps", budget, "--seed", seed, "--json", timeout=600).json
    played = cli("eval", done["run"], "--episodes", 100, "--json", timeout=120).json
    greedy, sampled = played["greedy"]["mean"], played["sampled"]["mean"]
    print(
        f"\n{algorithm:7} {environment:15} seed {seed}: greedy {greedy:8.2f}  "
        f"sampled {sampled:8.2f}  target {target:7.2f}  {done['env_steps']:>9,} steps  "
        f"{done['wall_s']:6.1f} s"
    )
    assert played["env_steps"] == done["env_steps"] >= budget
    assert greedy >= target


@pytest.mark.parametrize(
    "environment", ["CartPole-v1", pytest.param("FrozenLake-v1", marks=pytest.mark.soak)]
)
def test_one_seed_learns(cli: Cli, environment: str) -> None:
    check_learns(cli, "ppo", environment, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("algorithm", "environment"), SOAK)
def test_every_seed_learns(cli: Cli, algorithm: str, environment: str, seed: int) -> None:
    check_learns(cli, algorithm, environment, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_two_learners_learn_as_one_does(cli: Cli, algorithm: str, seed: int) -> None:
    check_learns(cli, algorithm, "CartPole-v1", seed, ("--set", "learner.count=2"))
