"""A true server with 1,024 descriptors and a run that trains, beside 2,000 hostile connections."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FLOOD = ROOT / "benchmarks" / "flood.py"
TRAINING = "training keeps 0.9 of its rate"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_flood_of_all_kinds_costs_its_owner_little() -> None:
    """All that `benchmarks/flood.py` promises, beside a run that trains: the owner's p99, the rate
    of training, memory and lines of the log. It wants a quiet machine: where the run alone is not
    as fast after the flood as before it, nobody can say what the flood took."""
    command = [sys.executable, str(FLOOD), "--connections", "2000", "--seconds", "60"]
    done = subprocess.run(
        [*command, "--json", "--check"], capture_output=True, text=True, timeout=500, check=False
    )
    print(done.stdout)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert len(found["strangers"]["made"]) == 5, "kinds"
    assert sum(found["strangers"]["made"].values()) >= 2000
    assert found["flooded"]["requests"] > 0, "each was answered, or it would have ended"
    alone = [found[when]["steps_per_s"] for when in ("alone", "alone again")]
    if done.stderr.strip() == f"not kept: {TRAINING}" and min(alone) < 0.9 * max(alone):
        pytest.skip(f"the machine is not quiet: alone the run trains {alone} steps/s")
    assert done.returncode == 0, done.stderr  # which promises were not kept
