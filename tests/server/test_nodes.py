"""Which nodes runs live on, over REST: one machine, a cluster, and one that is in trouble."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from rookery.config.reading import build
from rookery.control.home import Home
from rookery.control.models import Nodes, NodeWorker
from rookery.control.settings import Settings
from rookery.control.tokens import TokenStore
from rookery.launchers.ray.link import LinkDown
from rookery.launchers.ray.words import Node
from rookery.server.app import build_app
from rookery.server.nodes import UNANSWERED, AskNodes, NodeLook
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec
from rookery.testing.owner import control_plane_of
from tests.conftest import wait_until
from tests.server.clusters import LOST, OWNER, SECOND, THIRD, WAITS, FakeCluster, spread

SOLO = EnvironmentSpec(
    "CartPole-v1",
    {"player_0": SeatSpec((Leaf("", "box", (4,), "float32"),), Categorical(2))},
)
LONG_S = 30.0


class Stage:
    """A server in this process, on a cluster that is made up or on none."""

    def __init__(self, home: Home, client: TestClient, tokens: TokenStore) -> None:
        self.home, self._client = home, client
        self._token = tokens.create("read", None, "reader").token

    def get(self, path: str) -> Any:
        headers = {"Authorization": f"Bearer {self._token}"}
        answer = self._client.get(f"/api/v1/{path}", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()


@contextlib.contextmanager
def staged(path: Path, ask_nodes: AskNodes | None, owned: bool = True) -> Iterator[Stage]:
    settings = Settings()
    with control_plane_of(path, settings, owned=owned, ask_nodes=ask_nodes) as plane:
        tokens = TokenStore(path / "tokens.json")
        app = build_app(plane, tokens, settings, make_mcp=None)
        place = f"http://127.0.0.1:{settings.server.port}"
        with TestClient(app, base_url=place) as client:
            yield Stage(plane.home, client, tokens)


def begin(stage: Stage, run: str) -> None:
    stage.home.create(build({"environment": {"id": SOLO.id}}), SOLO, "ann", run)
    spread(stage.home, run, os.getpid())
    wait_until(lambda: _lists(stage, run), f"the server has read of {run}")


def _lists(stage: Stage, run: str) -> bool:
    return any(each["run"] == run for each in stage.get("runs")["runs"])


def workers(node: dict[str, Any]) -> list[str]:
    return [f"{each['run']} {each['kind']} {each['index']}" for each in node["workers"]]


def test_nodes_say_who_is_at_work_on_them(home: Path) -> None:
    with staged(home, FakeCluster()) as stage:
        begin(stage, "wide")
        with contextlib.closing(stage.home.take_lease("wide")):  # type: ignore[arg-type]
            found = wait_until(lambda: _busy(stage, 5), "five workers at work")
            shown = stage.get("runs/wide")["workers"]
        left = wait_until(lambda: _busy(stage, 0), "nobody carries it")
    nodes = {node["address"]: node for node in found["nodes"]}
    assert (found["launcher"], found["trouble"]) == ("ray", "")
    assert [node["alive"] for node in found["nodes"]] == [True, True, True, False]
    assert workers(nodes[OWNER]) == ["wide actor 3"], "who has no node is on the owner's machine"
    assert workers(nodes[SECOND]) == ["wide learner 0", "wide actor 0"]
    assert workers(nodes[THIRD]) == ["wide actor 1", "wide actor 2"]
    assert workers(nodes[LOST]) == []
    assert nodes[SECOND]["cpus"] == 4 and nodes[SECOND]["name"] == "box-b"
    waiting = shown[-1]
    assert (waiting["index"], waiting["alive"], waiting["waits_for"]) == (4, False, WAITS)
    assert [node["workers"] for node in left["nodes"]] == [[], [], [], []]


def _busy(stage: Stage, count: int) -> Any:
    found = stage.get("nodes")
    return found if sum(len(node["workers"]) for node in found["nodes"]) == count else None


def test_nobody_waits_for_a_node_where_nobody_places_workers(home: Path) -> None:
    with staged(home, FakeCluster()) as stage:
        begin(stage, "left")
        wait_until(lambda: len(stage.get("runs/left")["workers"]) == 6, "its workers")
        assert [worker["waits_for"] for worker in stage.get("runs/left")["workers"]] == [""] * 6


def test_a_local_server_has_its_one_machine(home: Path) -> None:
    with staged(home, None) as stage:
        begin(stage, "here")
        with contextlib.closing(stage.home.take_lease("here")):  # type: ignore[arg-type]
            found = wait_until(lambda: _busy(stage, 1), "the one worker of this machine")
    (machine,) = found["nodes"]
    assert (found["launcher"], found["trouble"]) == ("local", "")
    assert machine["alive"] and machine["cpus"] == os.cpu_count()
    assert workers(machine) == ["here actor 3"]


def test_who_carries_no_runs_says_that_it_does_not_know(home: Path) -> None:
    home.mkdir(parents=True)
    (home / "rookery.yaml").write_text("launcher: ray\n")
    with staged(home, FakeCluster(), owned=False) as stage:
        found = stage.get("nodes")
    assert (found["launcher"], found["nodes"]) == ("ray", [])
    assert "the server that carries the runs" in found["trouble"]


def test_a_cluster_that_is_away_is_trouble_and_comes_back(home: Path) -> None:
    cluster = FakeCluster()
    cluster.error = LinkDown("the Ray cluster 10.0.0.1:6379: its driver ended")
    with staged(home, cluster) as stage:
        away = stage.get("nodes")
        cluster.error = None
        back = wait_until(lambda: stage.get("nodes")["nodes"], "the cluster is back")
    assert (
        away["nodes"] == [] and away["trouble"] == "the Ray cluster 10.0.0.1:6379: its driver ended"
    )
    assert len(back) == 4


def test_a_cluster_that_hangs_holds_up_nobody_for_long() -> None:
    hangs, asked = threading.Event(), []

    def ask() -> list[Node]:
        asked.append(threading.current_thread().name)
        assert hangs.wait(LONG_S)
        return [Node("box", OWNER, 2.0, True)]

    look, began = NodeLook(ask, patience_s=0.05), time.monotonic()
    told = [look.look(()) for _ in range(5)]
    took_s = time.monotonic() - began
    hangs.set()
    found = wait_until(lambda: look.look(()).nodes, "its answer", LONG_S)
    assert {each.trouble for each in told} == {UNANSWERED}
    assert took_s < LONG_S / 2
    assert asked == ["nodes"], "one question at a time, in a thread of its own"
    assert [node.name for node in found] == ["box"]


def test_many_who_ask_at_once_ask_the_cluster_once() -> None:
    cluster = FakeCluster()
    look = NodeLook(cluster)
    found = [look.look([(SECOND, NodeWorker(run=str(i), kind="actor", index=0))]) for i in range(5)]
    assert cluster.asked == 1
    assert [_runs(each) for each in found] == ["0", "1", "2", "3", "4"], "who is there is no older"


def _runs(found: Nodes) -> str:
    return "".join(worker.run for node in found.nodes for worker in node.workers)


def test_a_bug_is_not_taken_for_trouble() -> None:
    cluster = FakeCluster()
    cluster.error = KeyError("NodeID")
    with pytest.raises(KeyError):
        NodeLook(cluster).look(())
