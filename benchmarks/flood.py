"""A server while strangers do what they can to its port, and its owner works on.

    python benchmarks/flood.py [--connections 2000] [--seconds 60] [--json] [--check]

The server may open 1,024 descriptors. A run trains and its owner reads: alone, beside the flood,
and alone again. What is printed are the owner's times, the rate of training beside the flood as a
share of that before and after, how much the server has grown, the lines in its log by kind, and how
many cores the server, the run's workers and the strangers took. The strangers have a process of
their own with the lowest priority, and send little at a time: on a network they would not take the
server's cores, so where their share is not small the ratio says less than it seems to. With
`--check` the exit code is 1 where a promise was not kept.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

STRANGERS = Path(__file__).with_name("strangers.py")
DESCRIPTORS = 1024
WARM_S = 10.0  # for caches, and for training to get up to speed
PATIENCE_S = 60.0  # of the owner, with one answer
PACE_S = 0.1  # between two requests of the owner


class Server:
    """`rookery serve` with few descriptors, and a run that trains."""

    def __init__(self, home: Path) -> None:
        self._log = home / "server.err"
        limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]
        with self._log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*limited, sys.executable, "-m", "rookery", "serve", "--json", "--port", "0"],
                env={**os.environ, "ROOKERY_HOME": str(home)},
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.url, self.headers = said["url"], {"Authorization": f"Bearer {said['token']}"}

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    @property
    def megabytes(self) -> float:
        import psutil

        return float(psutil.Process(self.process.pid).memory_info().rss / 2**20)

    def cores(self) -> dict[str, float]:
        """Seconds of a processor that it and the workers of its runs have taken."""
        import psutil

        def seconds(*processes: psutil.Process) -> float:
            return sum(sum(process.cpu_times()[:2]) for process in processes)

        own = psutil.Process(self.process.pid)
        return {"server": seconds(own), "workers": seconds(*own.children(recursive=True))}

    def train(self) -> str:
        import httpx2

        never = {"steps": 10**9, "until_return": 10_000.0}
        config = {"environment": {"id": "CartPole-v1"}, "stop": never}
        while httpx2.get(f"{self.url}/readyz", timeout=PATIENCE_S).status_code != 200:
            time.sleep(0.2)
        found = httpx2.post(
            f"{self.url}/api/v1/runs",
            json={"config": config},
            headers=self.headers,
            timeout=PATIENCE_S,
        )
        if found.status_code >= 300:
            raise SystemExit(found.text)
        run = str(found.json()["run"])
        while not self.get(f"/runs/{run}")["env_steps"]:
            time.sleep(0.2)
        return run

    def get(self, path: str) -> Any:
        import httpx2

        address = f"{self.url}/api/v1{path}"
        return httpx2.get(address, headers=self.headers, timeout=PATIENCE_S).json()

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=120)


async def work(server: Server, run: str, seconds: float) -> dict[str, Any]:
    """Read as a page does, half of it on new connections; the times, and the rate of training."""
    import httpx2

    times: list[float] = []
    paths = ("/runs", f"/runs/{run}", f"/runs/{run}/why")
    async with httpx2.AsyncClient(headers=server.headers, timeout=PATIENCE_S) as kept:

        async def get(path: str, client: httpx2.AsyncClient = kept) -> Any:
            found = await client.get(f"{server.url}/api/v1{path}")
            found.raise_for_status()
            return found.json()

        began, steps = time.monotonic(), (await get(f"/runs/{run}"))["env_steps"]
        cores = server.cores()
        while time.monotonic() < began + seconds:
            asked = time.monotonic()
            path = paths[len(times) % len(paths)]
            if len(times) % 2:
                await get(path)
            else:
                async with httpx2.AsyncClient(headers=server.headers, timeout=PATIENCE_S) as fresh:
                    asked = time.monotonic()
                    await get(path, fresh)
            times.append(time.monotonic() - asked)
            await asyncio.sleep(PACE_S)
        took_s = time.monotonic() - began
        rate = ((await get(f"/runs/{run}"))["env_steps"] - steps) / took_s
        used = {k: round((v - cores[k]) / took_s, 2) for k, v in server.cores().items()}
    times.sort()
    at = {"p50_ms": 0.5, "p99_ms": 0.99, "worst_ms": 1.0}
    found = {
        k: round(1000 * times[min(int(q * len(times)), len(times) - 1)]) for k, q in at.items()
    }
    return {**found, "requests": len(times), "steps_per_s": round(rate), "cores": used}


def measure(connections: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rookery-flood-") as home:
        server = Server(Path(home))
        try:
            run = server.train()
            asyncio.run(work(server, run, WARM_S))
            first, before_mb = asyncio.run(work(server, run, seconds)), server.megabytes
            options = ["--connections", str(connections), "--seconds", str(seconds)]
            with subprocess.Popen(
                [sys.executable, str(STRANGERS), server.url, *options],
                stdout=subprocess.PIPE,
                start_new_session=True,  # Linux weighs sessions: else their priority means nothing
            ) as strangers:
                flooded = asyncio.run(work(server, run, seconds))
                said = json.loads(strangers.communicate(timeout=60)[0])
            grown_mb = server.megabytes - before_mb
            last = asyncio.run(work(server, run, seconds))
            alone = (first["steps_per_s"] + last["steps_per_s"]) / 2
            return {
                "load": [round(load, 1) for load in os.getloadavg()],
                "alone": first,
                "flooded": flooded,
                "alone again": last,
                "strangers": said,
                "training_kept": round(flooded["steps_per_s"] / max(alone, 1), 2),
                "grown_mb": round(grown_mb, 1),
                "log": kinds(server.log),
            }
        finally:
            server.close()


def kinds(log: list[str]) -> dict[str, int]:
    """How many lines of each kind a log has: what was refused, or the line itself."""
    return Counter(line.split("(")[1].split(")")[0] if "refused" in line else line for line in log)


def broken(found: dict[str, Any], seconds: float) -> list[str]:
    """Which promises were not kept."""
    promises = {
        "the owner's p99 is under 250 ms": found["flooded"]["p99_ms"] < 250,
        "training keeps 0.9 of its rate": found["training_kept"] >= 0.9,
        "the server grows by less than 100 MB": found["grown_mb"] < 100,
        "one line a kind and minute": max(found["log"].values(), default=0) <= 1 + seconds // 60,
    }
    return [promise for promise, is_kept in promises.items() if not is_kept]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    found = measure(arguments.connections, arguments.seconds)
    if arguments.json:
        print(json.dumps(found))
    else:
        for name, value in found.items():
            print(f"{name}: {value}")
    if arguments.check and (promises := broken(found, arguments.seconds)):
        raise SystemExit(f"not kept: {'; '.join(promises)}")


if __name__ == "__main__":
    main()
