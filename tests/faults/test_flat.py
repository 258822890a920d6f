"""A long run stays flat: neither memory nor the run's directory grows without bound."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

if TYPE_CHECKING:
    from tests.conftest import Cli, Started

MINUTES = float(os.environ.get("ROOKERY_SOAK_MINUTES", "10"))
WARM_UP_MINUTES = 2.0
EXPERIENCE_MB, OTHER_MB = 16, 64  # the bus's own bound; metrics, events, logs and the WAL
RUN = (
    *("train", "CartPole-v1", "--actors", 2, "--envs-per-actor", 32, "--seed", 4, "--json"),
    *("--set", f"bus.max_experience_mb={EXPERIENCE_MB}", "--set", "checkpoint.interval_s=2"),
)


def directory_bytes(path: Path) -> int:
    """What is in the directory now; files and folders may go while it is walked."""
    total = 0
    for folder, _, names in os.walk(path):  # passes over folders that are gone
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name)).st_size
            except FileNotFoundError:
                continue
    return total


def bound_bytes(directory: Path) -> int:
    checkpoints = directory_bytes(directory / "checkpoints")
    return checkpoints + ((EXPERIENCE_MB + OTHER_MB) << 20)


def resident(running: Started) -> dict[str, int]:
    """Resident bytes of the main process and each worker."""
    found = {"main": psutil.Process(running.pid).memory_info().rss}
    for name, worker in running.cli.home.state(running.run).workers.items():
        assert worker.pid is not None and worker.deaths == 0
        found[name] = psutil.Process(worker.pid).memory_info().rss
    return found


def trained_s(running: Started) -> float:
    from rookery.control.queries import newest_training

    bus = running.cli.home.read_run_bus(running.cli.home.state(running.run))
    metrics = newest_training(bus, running.run)
    if bus is not None:
        bus.close()
    return metrics.train_s if metrics else 0.0


def watch_directory(running: Started, until_s: float) -> int:
    """Let it train until then; returns the largest size seen, which never passes the bound."""
    directory = running.cli.home.run_dir(running.run)
    largest, due = 0, 0.0

    def look() -> bool:
        nonlocal largest, due
        now = trained_s(running)
        if now >= due:
            due = now + 0.5
            size = directory_bytes(directory)
            assert size < bound_bytes(directory)
            largest = max(largest, size)
        return now >= until_s

    running.wait_until(look, f"{until_s:g} s of training", until_s + 60)
    return largest


@pytest.mark.soak
def test_the_directory_stays_below_its_bound(cli: Cli) -> None:
    running = cli.start(*RUN, "--minutes", 1)
    largest = watch_directory(running, 8)
    # far more than the bound has passed through the bus by now: retention works
    assert running.env_steps > 0 and largest > 0
    assert running.interrupt().code == 130


@pytest.mark.soak
@pytest.mark.timeout(60 * MINUTES + 120)
def test_memory_and_directory_stay_flat(cli: Cli) -> None:
    running = cli.start(*RUN, "--minutes", MINUTES + 1)
    largest = watch_directory(running, 60 * min(WARM_UP_MINUTES, MINUTES / 2))
    before = resident(running)
    largest = max(largest, watch_directory(running, 60 * MINUTES))
    after = resident(running)
    growth = {name: after[name] / before[name] - 1 for name in before}
    print(
        f"\n{MINUTES:g} minutes, {running.env_steps:,} steps: directory at most "
        f"{largest / 2**20:.1f} MB; resident "
        + ", ".join(f"{n} {after[n] / 2**20:.0f} MB {growth[n]:+.1%}" for n in growth)
    )
    assert running.interrupt().code == 130
    assert all(share < 0.05 for share in growth.values()), growth
