"""The parts of the Ray launcher that need no cluster: what crosses, what is said of an end, how a
link behaves without a driver, and what a worker elsewhere is told."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.bus.memory import MemoryBus
from rookery.checkpoints.hosted import HostedStore, answer
from rookery.checkpoints.store import CheckpointStore, FileStore
from rookery.config.reading import build, placed
from rookery.errors import CheckpointGone, ConfigError, InputError, StoreError
from rookery.launchers.ray import words
from rookery.launchers.ray.connect import why_not
from rookery.launchers.ray.ends import LOST, explain
from rookery.launchers.ray.link import TRIES, Link, LinkDown
from rookery.launchers.ray.settings import RaySettings
from rookery.testing.store_suite import StoreSuite
from rookery.worker.progress import Mirror, read_progress

# --- what is said of an end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "said", "final"),
    [
        ("ModuleNotFoundError: No module named 'rookery'", 1, "node n has no rookery", True),
        ("No module named 'my_envs'", 1, "node n has no my_envs", False),
        ("The actor died because its node has died. Node Id: 1", LOST, "its node n is gone", False),
        ("ran: task was killed due to the node running low on memory", LOST, "memory", False),
        ("The actor is not schedulable: its node died", LOST, "no node could take it", False),
        ("The actor died unexpectedly before finishing this task. x", LOST, "process on", False),
    ],
)
def test_an_end_is_told_in_one_line(text: str, code: int, said: str, final: bool) -> None:
    ended = explain(RuntimeError(text), "n")
    assert (ended.code, ended.final) == (code, final)
    assert said in ended.reason and "\n" not in ended.reason


RAISED_THERE = """The actor died because of an error raised in its creation task, \x1b[36mray::
RayWorker.__init__()\x1b[39m (pid=19508, ip=10.0.0.3, actor_id=d300d1107fcd29, repr=<x object>)
RuntimeError: The actor with name RayWorker failed to import on the worker.
ModuleNotFoundError: No module named 'rookery'"""
NOT_PREPARED = """Failed to set up runtime environment.
Could not create the actor because its associated runtime env failed to be created.
[Node 10.0.0.3] Traceback (most recent call last):
  File "connection.py", line 239, in _new_conn
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:
ray.utils.SubprocessError: Run cmd[9] failed with the following details.
No module named 'something that pip said'
ERROR: No matching distribution found for my-envs"""


def test_the_node_of_one_that_never_began_is_the_one_that_ray_names() -> None:
    ended = explain(RuntimeError(RAISED_THERE), "")
    assert ended.reason.startswith("node 10.0.0.3 has no rookery: install it there") and ended.final


def test_a_runtime_env_that_cannot_be_set_up_is_told_by_what_was_raised_last() -> None:
    code, reason, final = explain(RuntimeError(NOT_PREPARED), "")
    assert (code, final) == (1, True)
    assert reason.startswith(
        "its runtime_env could not be set up on node 10.0.0.3: ray.utils.SubprocessError: Run cmd"
    )
    assert reason.endswith("No matching distribution found for my-envs") and "\n" not in reason
    short = explain(RuntimeError("Failed to set up runtime environment. pip broke"), "n")
    assert short.reason == "its runtime_env could not be set up on node n: pip broke"


# --- what crosses --------------------------------------------------------------------------------

names = st.text(min_size=1, max_size=20)
orders = st.builds(
    words.Order,
    name=names,
    kind=st.sampled_from(["actor", "learner"]),
    index=st.integers(0, 99),
    incarnation=st.integers(1, 99),
    briefing=st.binary(max_size=2000),
    cpus=st.floats(0, 64),
    resources=st.dictionaries(names, st.floats(0, 4), max_size=3),
    labels=st.dictionaries(names, names, max_size=3),
)


@given(st.builds(words.Match, run=names, orders=st.lists(orders, max_size=4)))
def test_what_an_owner_says_arrives_as_it_was(request_: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words.send(ours, request_)
        assert words.receive_request(theirs) == request_


@given(st.binary(max_size=64))
def test_a_line_that_breaks_off_is_an_end_not_a_hang(content: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall((len(content) + 1).to_bytes(4, "big") + content)
        ours.close()
        assert words.receive_word(theirs) is None


# --- the link ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_an_address_that_nobody_answers_is_refused_in_one_line() -> None:
    link = Link(RaySettings(address=f"127.0.0.1:{free_port()}"))
    began = time.monotonic()
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1") as caught:
        link.wait(60)
    assert time.monotonic() - began < 30
    assert "\n" not in str(caught.value) and "leave --ray-address out" in str(caught.value)
    with pytest.raises(LinkDown):
        link.ask(words.Look("x"))
    link.close()


FALLS = """#!{python}
import pathlib, socket, sys
from rookery.launchers.ray.words import Ready, send
tried = pathlib.Path({tried!r})
tried.write_text(tried.read_text() + "x")
if len(tried.read_text()) <= {falls}:
    raise Exception("the node timed out")
line = socket.socket(fileno=int(sys.argv[-1]))
send(line, Ready("127.0.0.1:1", 2.0, "2.60"))
line.recv(1)
"""


@pytest.mark.parametrize("falls", [TRIES - 1, TRIES])
def test_a_cluster_that_falls_while_it_comes_up_is_tried_again(
    falls: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, tried = tmp_path / "driver", tmp_path / "tried"
    tried.write_text("")
    script.write_text(FALLS.format(python=sys.executable, tried=str(tried), falls=falls))
    script.chmod(0o700)
    monkeypatch.setattr("rookery.launchers.ray.link.sys", SimpleNamespace(executable=str(script)))
    link = Link(RaySettings())
    if falls < TRIES:
        assert link.wait(60).cpus == 2.0
    else:
        with pytest.raises(InputError, match="the node timed out"):
            link.wait(60)
    link.close()
    assert link.lives == TRIES == len(tried.read_text())


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.launchers.ray.link.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"rookery\[ray\]"):
        Link(RaySettings()).wait(5)


def test_nothing_of_ray_is_imported_where_it_is_not_used() -> None:
    script = (
        "import sys, rookery.cli.main, rookery.control.carry, rookery.server.fleet_thread, "
        "rookery.launchers.ray.launcher, rookery.config.models; "
        "print([m for m in sys.modules if m == 'ray' or m.startswith('ray.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Version mismatch: The cluster was started with: Ray: 2.59.0 Python: 3.11.7 "
            "This process on node 10.0.0.9 was started with: Ray: 2.60.0 Python: 3.12.1",
            "Ray 2.59.0, Python 3.11.7, Ray 2.60.0, Python 3.12.1",
        ),
        ("This node has an IP address of x, but we cannot find a local Raylet", "is no node of"),
        ("Token authentication failed", "RAY_AUTH_TOKEN_PATH"),
        ("something\nelse", "cannot use the Ray cluster 10.0.0.1:6379: something else"),
    ],
)
def test_what_keeps_a_driver_off_a_cluster_is_one_line(text: str, said: str) -> None:
    found = why_not(RaySettings(address="10.0.0.1:6379"), RuntimeError(text))
    assert said in found and "\n" not in found


# --- configs -------------------------------------------------------------------------------------


def test_a_launcher_with_a_bus_of_its_own_uses_it() -> None:
    layer = {"environment": {"id": "CartPole-v1"}, "launcher": "ray"}
    assert build(layer).bus.kind == "ray"
    assert build(layer, {"bus": {"kind": "kafka"}}).bus.kind == "kafka"
    with pytest.raises(ConfigError, match=r"use bus\.kind=ray or kafka"):
        build(layer, {"bus": {"kind": "sqlite"}})
    with pytest.raises(ConfigError, match="set launcher to ray"):
        build({"environment": {"id": "CartPole-v1"}, "bus": {"kind": "ray"}})


def test_a_server_places_what_asks_for_no_other_launcher() -> None:
    whole = build({"environment": {"id": "CartPole-v1"}}).model_dump(mode="json")
    for asked in ({"environment": {"id": "CartPole-v1"}}, whole):
        found = build(placed(asked, "ray"))
        assert (found.launcher, found.bus.kind) == ("ray", "ray")
    inline = {"environment": {"id": "CartPole-v1"}, "launcher": "inline"}
    assert placed(inline, "ray") == inline
    assert placed(whole, "local") == whole
    kafka = {"environment": {"id": "CartPole-v1"}, "bus": {"kind": "kafka"}}
    assert build(placed(kafka, "ray")).bus.kind == "kafka"


def test_an_address_is_this_machines_affair(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = RaySettings(address="10.0.0.1:6379")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert settings.here().address == "10.0.0.1:6379"
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert settings.here().address == "auto"


# --- files of a worker elsewhere -----------------------------------------------------------------


class TestHostedStore(StoreSuite):
    """Without a cluster: the host's side is called in this process."""

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def make_store(self, place: str) -> CheckpointStore:
        stores = {"checkpoints": FileStore(self.directory / place)}
        return HostedStore(lambda content: answer(stores, content), "checkpoints")


def test_a_store_that_a_host_has_not_is_refused(tmp_path: Path) -> None:
    store = HostedStore(lambda content: answer({}, content), "secrets")
    with pytest.raises(StoreError, match="knows no 'names' of 'secrets'"):
        store.names()
    with pytest.raises(StoreError):
        HostedStore(lambda content: b"nonsense", "x").names()


def test_a_save_that_is_sent_again_is_one_save(tmp_path: Path) -> None:
    stores = {"checkpoints": FileStore(tmp_path)}

    def twice(content: bytes) -> bytes:
        answer(stores, content)
        return answer(stores, content)

    store = HostedStore(twice, "checkpoints")
    store.save("a", {"x": b"1"})
    assert store.load("a") == {"x": b"1"}
    with pytest.raises(CheckpointGone):
        store.load("b")


def test_a_mirror_shows_a_worker_of_another_machine(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path / "actor-0.1")
    mirror.show(7, "step", 3.0, 1.0)
    found, now = read_progress(tmp_path / "actor-0.1"), time.monotonic()
    assert found is not None and (found.count, found.doing) == (7, "step")
    assert now - found.since == pytest.approx(3.0, abs=1.0)
    assert now - found.beat == pytest.approx(1.0, abs=1.0)
    mirror.close()
    assert read_progress(tmp_path / "actor-0.1") is None


def test_memory_is_no_bus_for_other_nodes() -> None:
    assert MemoryBus().trouble is None
    with pytest.raises(ConfigError, match="launcher to inline"):
        build({"environment": {"id": "CartPole-v1"}, "launcher": "ray", "bus": {"kind": "memory"}})
