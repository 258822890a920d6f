"""Whole runs on a Ray cluster of this machine, by the command line and by a server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from rookery.launchers.ray.link import Link
from rookery.launchers.ray.settings import RaySettings
from rookery.processes import session_of
from tests.conftest import wait_until
from tools.ray import LOOPBACK, private_environment

if TYPE_CHECKING:
    from tests.conftest import Cli, Served

pytestmark = pytest.mark.timeout(400)

WORD = 'print("here is a print of the environment")'
FOUND = """import os, importlib.util
        tide = importlib.util.find_spec("tide")
        print(os.environ.get("DEPTH"), "in", os.getcwd(), tide.origin if tide else "no tide")"""
SMALL = ("--envs-per-actor", 16, "--set", "actors.rollout_steps=32")
BROKEN = """
import gymnasium

class Broken(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        print("here is a print of the environment")
        return self.observation_space.sample(), {}

    def step(self, action):
        Broken.steps += 1
        if Broken.steps > 40:
            raise RuntimeError("the sea is rough")
        return self.observation_space.sample(), 0.0, False, False, {}
"""


@pytest.mark.soak
def test_an_environment_that_raises_is_told_with_its_line_and_its_prints(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "rough_sea.py").write_text(BROKEN)
    done = cli(
        *("train", "rough_sea:Broken", "--launcher", "ray", "--steps", 5_000, *SMALL),
        *("--set", "restarts.max_restarts=0"),
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        expect=1,
        timeout=180,
    )
    assert "the sea is rough" in done.stdout + done.stderr
    run = cli.home.find("last")
    log = (cli.home.run_dir(run) / "logs" / "actor-0.1.log").read_text()
    assert "here is a print of the environment" in log
    assert "rough_sea.py" in str(cli("why", "last").stdout)


@pytest.mark.soak
def test_a_projects_directory_and_modules_go_to_workers(cli: Cli, tmp_path: Path) -> None:
    sea, tide = tmp_path / "sea", tmp_path / "tide"
    sea.mkdir()
    tide.mkdir()
    (tide / "__init__.py").write_text("")
    (sea / "calm_sea.py").write_text(BROKEN.replace("> 40", "> 10**9").replace(WORD, FOUND))
    settings = {"runtime_env": {"working_dir": str(sea), "py_modules": [str(tide)]}}
    settings["runtime_env"]["env_vars"] = {"DEPTH": "7 fathoms"}
    cli.home.path.mkdir(parents=True)
    (cli.home.path / "rookery.yaml").write_text(json.dumps({"ray": settings}))
    cli(
        *("train", "calm_sea:Broken", "--launcher", "ray", "--steps", 2_000, *SMALL),
        cwd=tmp_path,
        env={"PYTHONPATH": os.pathsep.join([str(sea), os.environ.get("PYTHONPATH", "")])},
        timeout=240,
    )
    log = (cli.home.run_dir(cli.home.find("last")) / "logs" / "actor-0.1.log").read_text()
    assert "7 fathoms in" in log and "working_dir_files" in log and "py_modules_files" in log


def listening(served: Served) -> set[str]:
    """Addresses that a server and all that it started listen on."""
    family = psutil.Process(served.pid).children(recursive=True)
    pids = {process.pid for process in family}
    found = [c for c in psutil.net_connections("tcp") if c.pid in pids and c.status == "LISTEN"]
    return {connection.laddr.ip.removeprefix("::ffff:") for connection in found}


def _failed(server: Served, run: str) -> str:
    shown = server.api("GET", f"/runs/{run}")
    return str(shown["reason"]) if shown["status"] == "failed" else ""


@pytest.mark.timeout(300)
def test_a_server_places_scales_pauses_changes_and_stops_runs_on_ray(cli: Cli) -> None:
    served = cli.serve("--launcher", "ray", timeout=120)
    config = {
        "environment": {"id": "CartPole-v1"},
        "actors": {"envs_per_actor": 16, "rollout_steps": 32},
        "stop": {"steps": 100_000_000},
    }
    odd = {**config, "placement": {"actor": {"gpus": 1.5}}}  # which only Ray knows to be wrong
    wrong = served.api("POST", "/runs", {"config": odd})["run"]
    failed = wait_until(lambda: _failed(served, wrong), "it failed", 120)
    assert "placement.actor" in failed and "whole numbers" in failed
    made = served.api("POST", "/runs", {"config": config})
    served.run = run = made["run"]

    def detail() -> dict[str, Any]:
        found: dict[str, Any] = served.api("GET", f"/runs/{run}")
        return found

    def actors() -> int:
        return sum(w["alive"] and w["kind"] == "actor" for w in detail()["workers"])

    def scaled(count: int) -> None:
        served.api("POST", f"/runs/{run}/scale-actors", {"count": count})
        wait_until(lambda: actors() == count, f"{count} actors", 90)

    found = served.api("GET", "/nodes")
    (node,) = found["nodes"]
    assert (found["launcher"], found["trouble"], node["alive"]) == ("ray", "", True)
    assert node["cpus"] == os.cpu_count() and node["address"]
    wait_until(lambda: detail()["env_steps"] > 2_000, "training", 120)
    assert cli.home.config(cli.home.state(run)).launcher == "ray"
    assert listening(served) == {"127.0.0.1"}
    for count in (4, 0, 2):
        scaled(count)
    served.api("POST", f"/runs/{run}/pause", {})
    wait_until(lambda: detail()["status"] == "paused", "a pause", 60)
    served.api("POST", f"/runs/{run}/resume", {})
    values = {"algorithm.learning_rate": 1e-4}
    served.api("POST", f"/runs/{run}/set-hyperparameters", {"values": values})
    before = detail()["env_steps"]
    wait_until(lambda: detail()["env_steps"] > before + 1_000, "going on", 90)
    served.api("POST", f"/runs/{run}/stop", {})
    wait_until(lambda: detail()["status"] == "stopped", "its end", 90)
    assert detail()["balance"]["exact"], detail()["balance"]
    served.process.terminate()
    served.finish(60)
    assert not list(Path("/tmp").glob(f"rookery-ray-{served.pid}-*"))


@pytest.mark.soak
def test_an_assistant_scales_a_run_on_ray_and_the_page_shows_where_it_is(cli: Cli) -> None:
    from tests.web.browsing import a_browser, a_tab, enter, expect

    served = cli.serve("--launcher", "ray", "--cpus", 12, timeout=120)
    asyncio.run(asyncio.wait_for(_scaled_by_an_assistant(served), 300))
    with a_browser() as browser, a_tab(browser) as page:
        enter(page, served)
        cluster = page.locator('[data-what="cluster"]')
        cluster.locator("summary").click()
        expect(cluster.locator("li")).to_have_count(1)
        expect(cluster.locator("li")).to_contain_text(f"{served.run} learner and 2 actors")
        page.goto(f"{served.url}/#/runs/{served.run}")
        expect(page.locator('[data-worker^="actor"][data-alive="true"]')).to_have_count(2)
    served.api("POST", f"/runs/{served.run}/stop", {})
    served.wait_until(lambda: served.show()["status"] == "stopped", "its end", 90)
    assert served.show()["balance"]["exact"]


async def _scaled_by_an_assistant(served: Served) -> None:
    """A run is created, scaled to 1, 8, 0 and 2 actors, paused, changed; it trains at the end."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    http = httpx2.AsyncClient(headers=served.headers, timeout=60)
    async with http, Client(streamable_http_client(f"{served.url}/mcp", http_client=http)) as tools:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            said = await tools.call_tool(tool, arguments)
            assert not said.is_error, said.content
            return dict(said.structured_content or {})

        async def until(condition: Any, what: str) -> None:
            for _ in range(300):
                found = await call("get_run", run=run)
                if condition(found):
                    return
                await asyncio.sleep(0.2)
            raise AssertionError(f"waited for {what}: {found}")

        def actors(found: dict[str, Any]) -> int:
            return sum(w["alive"] and w["kind"] == "actor" for w in found["workers"])

        config = {
            "environment": {"id": "CartPole-v1"},
            "actors": {"envs_per_actor": 16, "rollout_steps": 32},
            "stop": {"steps": 100_000_000},
        }
        made = await call("create_run", config=config)
        served.run = run = made["run"]
        await until(lambda found: found["env_steps"] > 2_000, "training")
        for count in (8, 0, 2):
            await call("scale_actors", run=run, count=count)
            await until(lambda found, count=count: actors(found) == count, f"{count} actors")
        await call("pause_run", run=run)
        await until(lambda found: found["status"] == "paused", "a pause")
        await call("resume_run", run=run)
        await call("set_hyperparameters", run=run, values={"algorithm.learning_rate": 1e-4})
        before = (await call("get_run", run=run))["env_steps"]
        await until(lambda found: found["env_steps"] > before + 1_000, "going on")


@pytest.mark.soak
def test_self_play_trains_on_ray(cli: Cli) -> None:
    done = cli(
        *("train", "pgx:connect_four", "--self-play", "--launcher", "ray", "--actors", 2),
        *("--steps", 60_000, "--json"),
        timeout=300,
    ).json
    assert done["status"] == "finished"
    assert cli("runs", "show", "last", "--json").json["balance"]["exact"]


@pytest.mark.soak
def test_kafka_is_the_bus_of_a_run_on_ray(kafka_cli: Cli) -> None:
    done = kafka_cli(
        *("train", "CartPole-v1", "--launcher", "ray", "--steps", 50_000, *SMALL, "--json"),
        timeout=240,
    ).json
    assert done["status"] == "finished"
    shown = kafka_cli("runs", "show", "last", "--json").json
    assert shown["balance"]["exact"]


@pytest.mark.soak
def test_a_run_is_a_ray_job(cli: Cli, tmp_path: Path) -> None:
    """Ray's own way to start something on a cluster, by its job server."""
    environment = {**cli.environment, **private_environment(tmp_path), **LOOPBACK}
    ray, port, jobs = str(Path(sys.executable).parent / "ray"), free_port(), free_port()
    directory = tempfile.mkdtemp(prefix="rk-")
    head = [ray, "start", "--head", "--block", "--port", str(port), "--num-cpus", "4"]
    head += ["--include-dashboard", "true", "--dashboard-port", str(jobs)]
    with open(tmp_path / "head.log", "wb") as log:
        started = subprocess.Popen(
            [*head, "--temp-dir", directory], env=environment, stdout=log, stderr=log
        )
    try:
        said = tmp_path / "head.log"
        wait_until(lambda: b"Ray runtime started" in said.read_bytes(), "a head", 120)
        home = json.dumps({"env_vars": {"ROOKERY_HOME": str(cli.home.path)}})
        words = [ray, "job", "submit", "--address", f"http://127.0.0.1:{jobs}"]
        words += ["--runtime-env-json", home, "--", sys.executable, "-m", "rookery"]
        words += ["train", "CartPole-v1", "--launcher", "ray", "--steps", "20000"]

        def submitted() -> subprocess.CompletedProcess[str] | None:
            done = subprocess.run(
                words, env=environment, capture_output=True, text=True, timeout=200, check=False
            )
            return None if "No available agent" in done.stderr else done  # Ray is not up yet

        done = wait_until(submitted, "a job server", 240)
        assert done.returncode == 0 and "finished: " in done.stdout, done
        assert cli("runs", "show", "last", "--json").json["balance"]["exact"]
    finally:
        for process in psutil.Process(started.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        started.kill()
        started.wait(30)
        shutil.rmtree(directory, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


JOIN = """
import sys, ray
try:
    ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
except Exception as error:
    print(type(error).__name__, " ".join(str(error).split()))
else:
    print("in")
"""


@pytest.mark.soak
def test_nobody_gets_onto_a_cluster_that_we_started_without_its_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = "0" * 64
    monkeypatch.setenv("RAY_AUTH_TOKEN", known)  # that of a cluster of others, say
    link = Link(RaySettings())
    try:
        address = link.wait(180).address
        assert link._directory is not None
        ours = (link._directory / "token").read_text()
        plain = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | LOOPBACK
        said = []
        for token in (ours, known, None):
            mode = {"RAY_AUTH_MODE": "disabled"}
            if token is not None:
                mode = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
            join = [sys.executable, "-c", JOIN, address]
            done = subprocess.run(
                join, env={**plain, **mode}, capture_output=True, text=True, timeout=120, check=True
            )
            said.append((done.stdout.split()[0], "InvalidAuthToken" in done.stderr))
        assert said == [("in", False), ("ConnectionError", True), ("ConnectionError", True)]
    finally:
        link.close()


@pytest.mark.soak
def test_an_owner_that_is_killed_leaves_no_process_and_its_run_goes_on(cli: Cli) -> None:
    running = cli.start(
        *("train", "CartPole-v1", "--launcher", "ray", "--steps", 100_000_000, *SMALL),
        *("--set", "checkpoint.interval_s=1", "--json"),
    )
    running.wait_until(lambda: running.env_steps > 20_000, "training")
    (driver,) = (p for p in psutil.Process(running.pid).children() if "ray-driver" in p.cmdline())
    running.kill()
    wait_until(lambda: not session_of(driver.pid), "the end of the cluster", 10)
    assert running.why().component == "owner"
    again = cli.start("resume", running.run, "--json", run=running.run)
    again.wait_until(lambda: again.env_steps > 40_000, "going on")
    again.interrupt()
    assert again.show()["balance"]["exact"]
