"""Sweeps over REST: what the shell shows of one, read from the log that the server follows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from rookery.control.run_state import RunState
from rookery.control.settings import Settings
from rookery.control.tokens import TokenStore
from rookery.server.app import build_app
from rookery.server.control_plane import ControlPlane
from rookery.testing.owner import control_plane_of
from rookery.tuning.spec import SweepFiles
from tests.conftest import wait_until
from tests.tuning.scripted import ScriptedSweep, scripted_sweep

SWEEP = "sweep-cartpole-abcde"
RATE, CLIP = "algorithm.learning_rate", "algorithm.clip"
SEARCH = {
    "algorithm.kind": "ppo|impala",
    RATE: "log:1e-5..1e-1",
    f"{CLIP} if algorithm.kind=ppo": "0.1..0.3",
    "network.hidden": [[32], [64, 64]],
}
TRIALS, SEEDS = 6, 2
ASKED: dict[str, Any] = {"search": SEARCH, "sampler": "random", "trials": TRIALS, "seeds": SEEDS}
LONG_S = 30.0


class Stage:
    """A server in this process, of a home where a sweep is."""

    def __init__(self, plane: ControlPlane, client: TestClient, tokens: TokenStore) -> None:
        self.plane, self._client = plane, client
        self._token = tokens.create("read", None, "reader").token

    def ask(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        return self._client.get(f"/api/v1/{path}", headers=headers)

    def get(self, path: str) -> Any:
        answer: httpx2.Response = self.ask(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def served(path: Path) -> Iterator[Stage]:
    settings = Settings()
    with control_plane_of(path, settings, owned=False) as plane:
        tokens = TokenStore(path / "tokens.json")
        app = build_app(plane, tokens, settings, make_mcp=None)
        place = f"http://127.0.0.1:{settings.server.port}"
        with TestClient(app, base_url=place) as client:
            yield Stage(plane, client, tokens)


def fails_above(rate: float, state: RunState) -> str:
    found: Mapping[str, Any] = state.config["config"]
    return "failed" if found["algorithm"]["learning_rate"] > rate else "finished"


@pytest.fixture
def ended(home: Path) -> Iterator[ScriptedSweep]:
    """A sweep that has come to its end, with a trial that failed and keys that not all have."""
    with scripted_sweep(home, ends=lambda state: fails_above(0.02, state), **ASKED) as sweep:
        sweep.to_its_end()
        yield sweep


def test_a_sweep_is_what_the_shell_shows_of_it(ended: ScriptedSweep) -> None:
    shown = ended.result.show()
    with served(ended.home.path) as stage:
        found = stage.get(f"sweeps/{SWEEP}")
        by_prefix, newest = stage.get("sweeps/sweep-cart"), stage.get("sweeps/last")
    del shown["best"]["file"]  # a path of the server's machine
    shown["best"]["runs"] = list(shown["best"]["runs"])
    for row in shown["table"]:
        row["stages"] = []
    assert {name: found[name] for name in shown} == shown
    statuses = [row["status"] for row in found["table"]]
    assert (found["over"], found["begun"]) == (TRIALS, TRIALS)
    assert statuses.count("failed") >= 1 and statuses[0] == "done"
    assert any(CLIP not in row["values"] for row in found["table"])
    assert found["importance"], "Optuna is there, and four trials are done"
    assert by_prefix == newest == found


def test_the_keys_of_a_search_come_taken_apart(ended: ScriptedSweep) -> None:
    with served(ended.home.path) as stage:
        keys = {key.pop("key"): key for key in stage.get("sweeps/last")["keys"]}
    plain = {"options": [], "low": None, "high": None, "log": False, "condition": ""}
    assert keys == {
        "algorithm.kind": {**plain, "options": ["ppo", "impala"]},
        RATE: {**plain, "low": 1e-5, "high": 0.1, "log": True},
        CLIP: {**plain, "low": 0.1, "high": 0.3, "condition": "algorithm.kind=ppo"},
        "network.hidden": {**plain, "options": [[32], [64, 64]]},
    }


def test_sweeps_are_listed_with_how_far_they_are(ended: ScriptedSweep) -> None:
    files = SweepFiles(ended.home)
    later = {"id": "sweep-later", "created_s": ended.spec.created_s + 60}
    files.write(ended.spec.model_copy(update=later))
    with served(ended.home.path) as stage:
        found, newest = stage.get("sweeps"), stage.get("sweeps?limit=1")
        with files.carrying("sweep-later"):
            carried = stage.get("sweeps?limit=1")["sweeps"][0]["status"]
        best = stage.get(f"sweeps/{SWEEP}")["best"]["value"]
    new, old = found["sweeps"]
    assert old == {
        "sweep": SWEEP,
        "environment": "CartPole-v1",
        "status": "finished",
        "trials": TRIALS,
        "over": TRIALS,
        "best": best,
        "created_s": ended.spec.created_s,
    }
    assert (new["sweep"], new["status"], new["over"], new["best"]) == (
        *("sweep-later", "interrupted", 0, None),
    )
    assert newest == {"sweeps": [new], "total": 2}
    assert carried == "running"


def test_a_table_is_no_longer_than_asked_for(ended: ScriptedSweep) -> None:
    with served(ended.home.path) as stage:
        whole, found = stage.get("sweeps/last"), stage.get("sweeps/last?limit=2")
    assert (found["table"], found["begun"]) == (whole["table"][:2], TRIALS)
    assert found["best"] == whole["best"]


def test_an_unknown_sweep_is_a_404_with_the_nearest_name(ended: ScriptedSweep) -> None:
    with served(ended.home.path) as stage:
        answer = stage.ask("sweeps/sweep-cartpole-abcdf")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert f"did you mean {SWEEP}?" in answer.json()["detail"]


def test_where_there_are_no_sweeps_the_list_is_empty(home: Path) -> None:
    with served(home) as stage:
        assert stage.get("sweeps") == {"sweeps": [], "total": 0}
        assert stage.ask("sweeps/last").status_code == 404


def test_trials_appear_while_the_sweep_goes_on(home: Path) -> None:
    with scripted_sweep(home, trials=3, jobs=1) as sweep, served(home) as stage:
        assert stage.get("sweeps/last")["table"] == []
        seen = []
        for _ in range(200):
            is_over = sweep.step()
            expected = sweep.result.show()["table"]
            found = wait_until(lambda: _same(stage, expected), "the server has read it", LONG_S)  # noqa: B023 at once
            seen.append(sum(row["value"] is not None for row in found))
            if is_over:
                break
        assert sorted(set(seen)) == [0, 1, 2, 3], "each result came when it was there"
        assert wait_until(lambda: stage.get("sweeps/last")["status"] == "finished", "its end")


def _same(stage: Stage, expected: list[dict[str, Any]]) -> Any:
    found = stage.get("sweeps/last")["table"]
    return found if found == [{**row, "stages": []} for row in expected] else None


def test_a_member_of_a_population_has_its_line(home: Path) -> None:
    asked = {"scheduler": "pbt", "trials": 4, "generations": 3}
    with scripted_sweep(home, **asked) as sweep:
        sweep.to_its_end()
        shown = sweep.result.show()
        with served(home) as stage:
            found = stage.get("sweeps/last")
            (row,) = stage.get("sweeps")["sweeps"]
    assert found["table"] == shown["table"]
    assert any(stage["parent"] for row in found["table"] for stage in row["stages"])
    assert (row["over"], row["best"]) == (4, shown["best"]["value"])


@pytest.mark.parametrize("path", ("sweeps", "sweeps/last"))
def test_others_are_answered_while_a_sweep_is_read(
    ended: ScriptedSweep, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    with served(ended.home.path) as stage, ThreadPoolExecutor(1) as pool:
        asked, answered = threading.Event(), threading.Event()
        states = type(stage.plane)._all

        def slow(plane: ControlPlane) -> Any:
            asked.set()
            assert answered.wait(LONG_S), "nobody else was answered"
            return states(plane)

        monkeypatch.setattr(ControlPlane, "_all", slow)
        waiting = pool.submit(stage.get, path)
        assert asked.wait(LONG_S)
        assert stage.get("me")["scope"] == "read"
        answered.set()
        assert waiting.result(LONG_S)
