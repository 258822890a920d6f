"""Getting onto a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookery.control.settings import Settings
from rookery.errors import ConfigError, InputError
from rookery.launchers.ray.connect import TRIES, check, taken_in, why_not
from rookery.launchers.ray.settings import RaySettings
from rookery.processes import look_at, session_of
from tests.conftest import wait_until

LOST = (  # in the words of Ray 2.60
    'File "proxier.py", line 772, in Datapath RuntimeError: Starting Ray client server failed. See',
    'File "proxier.py", line 396, in start_specific_server psutil.ZombieProcess: PID still exists',
)


class Cluster:
    """Turns clients away so many times."""

    def __init__(self, times: int, why: str = LOST[0]) -> None:
        self._times, self._why = times, why
        self.tried = 0

    def join(self) -> str:
        self.tried += 1
        if self.tried <= self._times:
            raise ConnectionAbortedError(f"Initialization failure from server: {self._why}.")
        return "in"


@pytest.mark.parametrize("why", LOST)
def test_a_client_that_the_cluster_lost_tries_again(why: str) -> None:
    cluster = Cluster(TRIES - 1, why)
    assert taken_in(cluster.join) == "in"
    assert cluster.tried == TRIES


def test_it_gives_up_after_some_tries_and_says_what_helps() -> None:
    cluster = Cluster(TRIES)
    with pytest.raises(ConnectionAbortedError) as caught:
        taken_in(cluster.join)
    assert cluster.tried == TRIES
    said = why_not(RaySettings(address="ray://head:10001"), caught.value)
    assert "ray://head:10001 could not start a process for this client" in said
    assert "GRPC_ENABLE_FORK_SUPPORT=0" in said


def test_what_another_try_cannot_mend_is_told_at_once() -> None:
    cluster = Cluster(1, "another token is wanted")
    with pytest.raises(ConnectionAbortedError):
        taken_in(cluster.join)
    assert cluster.tried == 1


@pytest.mark.parametrize(
    ("runtime_env", "said"),
    [
        ("{env_vars: {OMP_NUM_THREADS: 1}}", "OMP_NUM_THREADS is 1 and no text: write it"),
        ("{env_vars: {DEBUG: true}}", "DEBUG is True and no text"),
        ("{env_vars: [A=1]}", "give each variable a line"),
    ],
)
def test_a_variable_that_is_no_text_is_refused_as_the_settings_are_read(
    runtime_env: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "rookery.yaml").write_text(f"ray: {{runtime_env: {runtime_env}}}")
    with pytest.raises(ConfigError) as caught:
        Settings.load(tmp_path)
    line = str(caught.value)
    assert said in line and "ray.runtime_env" in line and "\n" not in line


@pytest.mark.parametrize("runtime_env", [{"pip": 3}, {"conda": 3}, {"working_dir": "/no/where"}])
def test_what_ray_does_not_take_is_refused_before_there_is_a_worker(
    runtime_env: dict[str, Any],
) -> None:
    with pytest.raises(InputError, match=r"ray\.runtime_env in rookery\.yaml cannot be used: ."):
        check(runtime_env)


def test_files_of_this_machine_go_with_the_job_and_the_rest_with_each_worker() -> None:
    given = {"py_modules": ["s3://a/b.zip", "/c"], "excludes": ["x"], "pip": ["y"]}
    settings = RaySettings(runtime_env=given)
    assert settings.uploaded == {"py_modules": ["s3://a/b.zip", "/c"], "excludes": ["x"]}
    assert settings.of_workers == {"pip": ["y"]}
    far = {"working_dir": "s3://a/b.zip", "excludes": ["x"], "env_vars": {"A": "1"}}
    settings = RaySettings(runtime_env=far)
    assert (settings.uploaded, settings.of_workers) == ({}, far)


DRIVER = """
import subprocess, sys
from rookery.launchers.ray.connect import leave_nobody
leave_nobody()
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
groups = (None, 0)  # Ray's workers have groups of their own
for process_group in groups:
    subprocess.Popen([sys.executable, "-c", deaf], process_group=process_group)
print("up", flush=True)
input()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_whatever_ends_a_driver_all_that_it_started_ends_with_it(killed: bool) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with driver:
        assert driver.stdout is not None and driver.stdin is not None
        assert driver.stdout.readline() == b"up\n"
        family = [pid for pid in session_of(driver.pid) if pid != driver.pid]
        assert len(family) == 3, "two children, and who waits for the end"
        assert os.getpid() not in family
        if killed:
            driver.kill()
        else:
            driver.stdin.close()
    wait_until(lambda: not any(look_at(pid) for pid in family), "the end of its children", 20)
