"""Prometheus's own tool reads /metrics of a true server while a run trains against itself."""

from __future__ import annotations

import httpx2
import pytest

from rookery.config.reading import self_play
from tests.conftest import Cli
from tests.foreign_clients.assistants import output
from tests.foreign_clients.packages import promtool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

START_S = 1800.0  # until a busy machine has rated a snapshot
CONFIG = {
    "environment": {"id": "pgx:tic_tac_toe"},
    "league": {"snapshot_every_steps": 20_000},
    "stop": {"steps": 1_000_000_000},
    **self_play(),
}


def test_promtool_has_nothing_to_say(cli: Cli) -> None:
    tool = promtool()
    server = cli.serve()
    made = server.api("POST", "/runs", {"config": CONFIG})
    run = made["run"]

    def rated() -> str:
        found = httpx2.get(f"{server.url}/metrics", headers=server.headers, timeout=300).text
        return found if f'rookery_run_rating{{run="{run}"}}' in found else ""

    found: str = server.wait_until(rated, "a rating among the metrics", START_S)

    done = output([*tool, "check", "metrics"], cli, found)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert f'figure="policy_loss",policy="main",run="{run}"' in found
    assert f'rookery_run_rating_sigma{{run="{run}"}}' in found

    broken = found.replace("# HELP rookery_runs Runs by status.\n", "")
    assert output([*tool, "check", "metrics"], cli, broken).returncode != 0
