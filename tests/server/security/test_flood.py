"""A true server with 1,024 descriptors and a run that trains, beside 2,000 hostile connections."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FLOOD = ROOT / "benchmarks" / "flood.py"


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_flood_of_all_kinds_costs_little_memory_and_few_lines() -> None:
    """Beside a run that trains; how fast the owner is answered and the run trains is printed, and
    judged by `benchmarks/flood.py --check` on a quiet machine."""
    command = [sys.executable, str(FLOOD), "--connections", "2000", "--seconds", "60", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=True)
    print(done.stdout)
    found = json.loads(done.stdout)
    assert len(found["strangers"]["made"]) == 5, "kinds"
    assert sum(found["strangers"]["made"].values()) >= 2000
    assert found["flooded"]["requests"] > 0, "each was answered, or it would have ended"
    assert found["grown_mb"] < 100
    assert max(found["log"].values()) <= 2, "one a kind and minute, over a minute"
