"""A home with a long history: what a list, a command and a server cost in it.

    python benchmarks/home.py [--runs 10000] [--checkpoints 260000] [--json]

Builds a home of finished runs by appending their messages, signed with the home's key, measures;
then appends the checkpoints of thirty days (one every ten seconds) and measures again. The second
figures should be those of the first. "first list" is what the first reader pays, once, to fold all
of it and save the states.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rookery.bus import Outgoing
from rookery.config.reading import build
from rookery.control.home import Home, content
from rookery.control.signing import SIGNATURE
from rookery.envs.registry import describe
from rookery.messages import (
    COMMANDS,
    EVENTS,
    STATES,
    CheckpointSaved,
    Command,
    CommandAccepted,
    CreateRun,
    Event,
    RunEnded,
    RunOwned,
    StartRun,
    WorkerExited,
    WorkerStarted,
    WorkerStarting,
    encode_json,
)

READY_S = 120.0
PORTION = 200  # runs in one publish
TRAINED: dict[str, Any] = {"env_steps": 100_000, "updates": 12, "mean_return_100": 475.0}


def build_runs(
    home: Home, count: int, vary: Callable[[int], dict[str, Any]] | None = None
) -> list[str]:
    """Finished runs; `vary`: the seed, the labels and the return of each, by its number."""
    key = home.signing_key()
    config = content(build({"environment": {"id": "CartPole-v1"}}), describe("CartPole-v1"))
    runs = [f"cartpole-{number:05}{secrets.token_hex(2)}" for number in range(count)]

    def signed(command: Command) -> Outgoing:
        payload = encode_json(command)
        headers = {SIGNATURE: key.sign(COMMANDS, command.run, payload)}
        return Outgoing(COMMANDS, payload, command.run, headers)

    for first in range(0, count, PORTION):
        messages = []
        for number, run in enumerate(runs[first : first + PORTION], first):
            own = {} if vary is None else vary(number)
            seeded = {**config, "config": {**config["config"], "seed": own.pop("seed", 0)}}
            trained = TRAINED | {"mean_return_100": own.pop("mean_return_100", 475.0)}
            create, start = CreateRun(run=run, config=seeded, **own), StartRun(run=run)
            messages += [signed(create), signed(start)]
            messages += [said(event) for event in _life(run, trained, create.id, start.id)]
        home.control.publish(messages)
    return runs


def _life(run: str, trained: dict[str, Any], *commands: str) -> Iterator[Event]:
    yield from (CommandAccepted(run=run, command=command) for command in commands)
    yield RunOwned(run=run, pid=1)
    for kind in ("learner", "actor"):
        who: dict[str, Any] = {"run": run, "kind": kind, "index": 0, "incarnation": 1}
        yield WorkerStarting(**who)
        yield WorkerStarted(**who, pid=1)
    yield CheckpointSaved(run=run, name="1.12", env_steps=100_000)
    yield RunEnded(run=run, status="finished", reason="100,000 steps done", **trained)
    for kind in ("learner", "actor"):
        yield WorkerExited(run=run, kind=kind, index=0, incarnation=1, code=0, expected=True)


def build_checkpoints(home: Home, runs: list[str], count: int) -> None:
    for first in range(0, count, 5000):
        numbers = range(first, min(count, first + 5000))
        home.control.publish(
            [
                said(CheckpointSaved(run=runs[n % len(runs)], name=f"2.{n}", env_steps=n))
                for n in numbers
            ]
        )


def said(event: Event) -> Outgoing:
    return Outgoing(EVENTS, encode_json(event), event.run)


def measure(home: Home, run: str, times: int) -> dict[str, Any]:
    """Seconds of wall clock: the best of several, for the machine has other work."""
    found: dict[str, Any] = {}
    listing, setting = ("runs", "list", "--json"), ("set", run, "algorithm.learning_rate=0.001")
    found["first list s"] = round(_verb(home, *listing)[0], 2)
    for name, verb in {"list": listing, "set": setting, "help": ("--help",)}.items():
        wall_s, cpu_s = map(min, zip(*(_verb(home, *verb) for _ in range(times)), strict=True))
        found |= {f"{name} s": round(wall_s, 2), f"{name} CPU s": round(cpu_s, 2)}
    found["serve ready s"] = round(min(_serve(home) for _ in range(times)), 2)
    for topic in (COMMANDS, EVENTS, STATES):
        found[f"{topic} kept"] = home.control.subscribe(topic, "earliest").lag()
    found["control.sqlite MB"] = (home.path / "control.sqlite").stat().st_size >> 20
    return found


def _verb(home: Home, *arguments: str) -> tuple[float, float]:
    began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    argv = [sys.executable, "-m", "rookery", *arguments]
    subprocess.run(argv, env=_environment(home), check=True, capture_output=True, timeout=READY_S)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return time.perf_counter() - began, cpu_s


def _serve(home: Home) -> float:
    """Until it knows all runs: the address is printed before, and its list waits for them."""
    argv = [sys.executable, "-m", "rookery", "serve", "--port", "0", "--json"]
    began = time.perf_counter()
    server = subprocess.Popen(
        argv, env=_environment(home), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert server.stdout is not None
        place = json.loads(server.stdout.readline())
        _until_ready(place["url"])
        return time.perf_counter() - began
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(READY_S)


def _until_ready(url: str) -> None:
    import httpx2

    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx2.TransportError):
            if httpx2.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.02)
    raise TimeoutError(f"{url} is not ready after {READY_S:g} s")


def _environment(home: Home) -> dict[str, str]:
    return {**os.environ, **home.environment}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--checkpoints", type=int, default=260_000)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        home = Home(Path(directory))
        runs = build_runs(home, arguments.runs)
        found = {"runs": measure(home, runs[len(runs) // 2], arguments.times)}
        build_checkpoints(home, runs[-30:], arguments.checkpoints)
        found["and checkpoints"] = measure(home, runs[len(runs) // 2], arguments.times)
        home.close()
    if arguments.json:
        print(json.dumps(found))
        return
    print(f"{'':24}{arguments.runs:>12,} runs   + {arguments.checkpoints:,} checkpoints")
    for name in found["runs"]:
        print(f"{name:24}{found['runs'][name]:>12,}   {found['and checkpoints'][name]:>12,}")


if __name__ == "__main__":
    main()
