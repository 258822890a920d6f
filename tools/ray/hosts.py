"""Several hosts on one machine: network namespaces joined by a bridge, a raylet on each.

    with Hosts(cpus={"head": 0, "owner": 1, "a": 2, "b": 2}) as hosts:
        hosts.start("owner", [...])              # a process on that host
        hosts.cut("a"); hosts.mend("a")          # its link
        hosts.kill_raylet("b"); hosts.kill("b")  # its raylet; all that runs on it

The first host is the cluster's head; one whose CPUs are None is no node of it, but may be a client
(`hosts.client_address`). Needs root and `ip`. All that was started ends with the block.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from tools.ray import LOOPBACK, private_environment

PORT, CLIENT_PORT = 6379, 10001
UP_S = 120.0
HEALTH = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "3",
}


def usable() -> str | None:
    """Why there can be no hosts here; None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    return None if shutil.which("ip") else "ip (Debian's iproute2) is not installed"


class Hosts:
    def __init__(
        self,
        cpus: Mapping[str, int | None],
        labels: Mapping[str, str] | None = None,
        health: Mapping[str, str] = HEALTH,
    ) -> None:
        self.names, self._cpus = list(cpus), dict(cpus)
        self._labels, self._health = dict(labels or {}), dict(health)
        self._tag = f"rk{secrets.token_hex(2)}"
        self._subnet = f"10.77.{secrets.randbelow(200) + 20}"
        self._directory = Path(tempfile.mkdtemp(prefix="rk-hosts-"))
        self.environment = {**os.environ, **private_environment(self._directory), **self._health}
        for name in LOOPBACK:  # these are reachable from elsewhere
            self.environment.pop(name, None)
        self._blocks: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def address(self) -> str:
        return f"{self.ip(self.names[0])}:{PORT}"

    @property
    def client_address(self) -> str:
        return f"ray://{self.ip(self.names[0])}:{CLIENT_PORT}"

    def ip(self, name: str) -> str:
        return f"{self._subnet}.{self.names.index(name) + 1}"

    def __enter__(self) -> Hosts:
        self._wire()
        try:
            head, *others = [name for name in self.names if self._cpus[name] is not None]
            self.start_ray(head)
            for name in others:
                self._begin(name)
            for name in others:
                self._wait_up(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            self.kill(name)
        for space in [*map(self._space, self.names), self._tag]:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        shutil.rmtree(self._directory, ignore_errors=True)

    # --- processes -------------------------------------------------------------------------------

    def command(self, name: str, arguments: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self._space(name), *arguments]

    def start(self, name: str, arguments: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen(self.command(name, arguments), **options)

    def start_ray(self, name: str) -> None:
        self._begin(name)
        self._wait_up(name)

    def pids(self, name: str) -> list[int]:
        found = subprocess.run(
            ["ip", "netns", "pids", self._space(name)], capture_output=True, text=True, check=False
        )
        return [int(line) for line in found.stdout.split()]

    def processes(self, name: str) -> list[psutil.Process]:
        found = []
        for pid in self.pids(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        return found

    def raylet(self, name: str) -> psutil.Process | None:
        return next((p for p in self.processes(name) if _name(p) == "raylet"), None)

    def kill_raylet(self, name: str) -> None:
        found = self.raylet(name)
        if found is not None:
            found.kill()

    def kill(self, name: str) -> None:
        """All that runs on it, at once."""
        for _ in range(50):
            pids = self.pids(name)
            if not pids:
                break
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if (block := self._blocks.pop(name, None)) is not None:
            block.wait(30)

    # --- the network -----------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        self._ip(self._space(name), "link", "set", "eth0", "down")

    def mend(self, name: str) -> None:
        self._ip(self._space(name), "link", "set", "eth0", "up")

    def _wire(self) -> None:
        _run("ip", "netns", "add", self._tag)
        self._ip(self._tag, "link", "add", "br0", "type", "bridge")
        self._ip(self._tag, "link", "set", "br0", "up")
        for number, name in enumerate(self.names):
            space = self._space(name)
            _run("ip", "netns", "add", space)
            ends = ("link", "add", "eth0", "netns", space, "type", "veth", "peer", "name")
            _run("ip", *ends, f"p{number}", "netns", self._tag)
            self._ip(self._tag, "link", "set", f"p{number}", "master", "br0", "up")
            self._ip(space, "addr", "add", f"{self.ip(name)}/24", "dev", "eth0")
            self._ip(space, "link", "set", "eth0", "up")
            self._ip(space, "link", "set", "lo", "up")

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _ip(self, space: str, *words: str) -> None:
        _run("ip", "netns", "exec", space, "ip", *words)

    # --- Ray -------------------------------------------------------------------------------------

    def _begin(self, name: str) -> None:
        is_head = name == self.names[0]
        words = ["start", "--block", "--disable-usage-stats", "--num-cpus", str(self._cpus[name])]
        words += ["--node-ip-address", self.ip(name), "--object-store-memory", str(256 << 20)]
        words += ["--temp-dir", tempfile.mkdtemp(prefix=f"{name}-", dir=self._directory)]
        if is_head:
            words += ["--head", "--port", str(PORT), "--include-dashboard", "false"]
        else:
            words += ["--address", self.address]
        if name in self._labels:
            words += ["--labels", self._labels[name]]
        if (before := self._blocks.pop(name, None)) is not None:  # of a raylet that was killed
            before.wait(30)
        (self._directory / f"{name}.log").unlink(missing_ok=True)
        ray = str(Path(sys.executable).parent / "ray")
        with open(self._directory / f"{name}.log", "ab") as log:
            self._blocks[name] = self.start(
                name, [ray, *words], stdout=log, stderr=log, env=self.environment
            )

    def _wait_up(self, name: str) -> None:
        deadline, block = time.monotonic() + UP_S, self._blocks[name]
        log = self._directory / f"{name}.log"
        while b"Ray runtime started" not in log.read_bytes():
            if block.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"no raylet on {name}: {log.read_text()[-2000:]}")
            time.sleep(0.1)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""
