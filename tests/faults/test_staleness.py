"""No trained fragment is older than the bound, however many actors and however slow a learner."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rookery.messages import TrainingMetrics
from tests.conftest import training_history

if TYPE_CHECKING:
    from tests.conftest import Cli


def lags(cli: Cli, actors: int, bound: int, steps: int, *options: object) -> list[TrainingMetrics]:
    """The metrics of a whole run under this bound."""
    done = cli(
        *("train", "CartPole-v1", "--actors", actors, "--envs-per-actor", 4, "--steps", steps),
        *("--set", "actors.rollout_steps=16", "--json", *options),
        *("--set", f"learner.max_policy_lag_versions={bound}"),
        timeout=100,
    ).json
    shown = cli("runs", "show", done["run"], "--json").json
    assert shown["balance"]["exact"]
    assert set(shown["balance"]["dropped"]) <= {"late"}  # a busy machine may stop one for a second
    found = list(training_history(cli.home, done["run"]))
    assert done["lag_max"] == found[-1].lag_max == max(metrics.lag_max for metrics in found)
    assert done["lag_max"] <= bound
    return found


@pytest.mark.parametrize(
    ("actors", "bound"),
    [
        pytest.param(1, 0, marks=pytest.mark.soak),
        (2, 1),
        pytest.param(8, 2, marks=pytest.mark.soak),
    ],
)
def test_the_lag_stays_within_its_bound(cli: Cli, actors: int, bound: int) -> None:
    lags(cli, actors, bound, 8000)


@pytest.mark.soak
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
def test_a_learner_slowed_tenfold_does_not_train_on_older_fragments(
    cli: Cli, algorithm: str
) -> None:
    fragments = () if algorithm == "ppo" else ("--set", "learner.fragments_per_batch=2")
    slow = ("--algorithm", algorithm, "--set", "algorithm.epochs=40", *fragments)
    found = lags(cli, 2, 1, 6000, *slow)
    assert found[-1].lag_max == 1  # the actors are ahead of it as far as they may be


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("algorithm", ["ppo", "impala"])
@pytest.mark.parametrize("actors", [1, 2, 8])
@pytest.mark.parametrize("bound", [0, 1, 2])
@pytest.mark.parametrize("epochs", [4, 40])
def test_the_lag_stays_within_every_bound(
    cli: Cli, algorithm: str, actors: int, bound: int, epochs: int
) -> None:
    options = ("--algorithm", algorithm, "--set", f"algorithm.epochs={epochs}")
    found = lags(cli, actors, bound, 40_000, *options)
    print(
        f"{algorithm} {actors} actors, K = {bound}, {epochs} epochs: "
        f"lag mean {found[-1].lag_mean:.2f}, max {found[-1].lag_max}"
    )
