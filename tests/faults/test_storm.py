"""A storm: whatever can go wrong does, at random moments, one fault after the other.

Processes are killed, frozen, thawed and slowed down, messages damaged, the disk filled, the network
cut, the broker frozen and killed. Through all of it the run trains on, `why` tells the truth, every
step is accounted for, and nothing grows.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest

from rookery.bus import Outgoing
from rookery.bus.sqlite import RUN_FILE
from rookery.control.diagnosis import why
from rookery.control.signing import KEY_VARIABLE, key_path
from rookery.errors import RookeryError
from rookery.messages import EXPERIENCES, MODEL_UPDATES
from tests.conftest import fill
from tests.faults.test_kafka_network import Host, host
from tools.kafka.broker import Cluster

if TYPE_CHECKING:
    from rookery.control.models import Diagnosis
    from tests.conftest import Cli, Started

__all__ = ["host"]  # a fixture

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root"),
]

FAULTS = int(os.environ.get("ROOKERY_STORM_FAULTS", "13"))  # of each of the six storms
CALM_S = 3.0  # of training, at most, between one fault and the next
STALL_S = 60.0
NAMED_S = 20.0  # in which `why` names whoever is frozen
FROZEN_S = 20.0
ACTORS = 4
COMMON = (
    *("--actors", ACTORS, "--json", "--set", "checkpoint.interval_s=1"),
    *("--set", "restarts.backoff_s=0.05", "--set", "restarts.max_backoff_s=0.5"),
    *("--set", "restarts.max_restarts=20"),
)
CARTPOLE = ("CartPole-v1", "--envs-per-actor", 8, "--set", "actors.rollout_steps=32")
TASKS: dict[str, tuple[object, ...]] = {
    "ppo": (*CARTPOLE, "--algorithm", "ppo", "--steps", 10**9),
    "impala": (*CARTPOLE, "--algorithm", "impala", "--steps", 10**9),
    "league": (
        # not a compiled game: that an actor compiles for half a minute is no stall
        *("pettingzoo:tictactoe_v3", "--self-play", "--envs-per-actor", 8, "--steps", 10**9),
        *("--set", "actors.rollout_steps=16"),
    ),
}


DAMAGE = """
CREATE TABLE damaged (at INTEGER);
CREATE TRIGGER damage AFTER INSERT ON records_{topic} WHEN NEW.headers LIKE '%"{kind}"%' BEGIN
    UPDATE records_{topic} SET payload = randomblob(length(NEW.payload)) WHERE offset = NEW.offset;
    INSERT INTO damaged VALUES (NEW.offset);
END
"""


class Usage(NamedTuple):
    """What a run holds: of each kind of process the largest, and the files of its directory."""

    resident: dict[str, int]
    threads: dict[str, int]
    descriptors: dict[str, int]
    files: int


class Storm:
    """One run, and what is done to it."""

    def __init__(self, cli: Cli, task: str, seed: int, disk: Path, cluster: Cluster | None) -> None:
        self.cli, self.rng, self.disk, self.cluster = cli, random.Random(seed), disk, cluster
        self.running: Started = cli.start("train", *TASKS[task], *COMMON, "--seed", seed)
        self.run = self.running.run
        self.host: Host | None = None
        self.frozen: dict[str, float] = {}  # worker -> when it was stopped, while it stays so
        self.touched: dict[str, float] = {}  # worker -> when it was last stopped or slowed down
        self.done: Counter[str] = Counter()
        self.longest = 0.0
        self.damaged = False
        self.at = ""  # the fault of now
        self.said: list[str] = []

    # --- what can go wrong -----------------------------------------------------------------------

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        either: dict[str, Callable[[], None]] = {
            "kill an actor": lambda: self.kill("actor"),
            "kill the learner": lambda: self.kill("learner"),
            "kill the main process": self.kill_main,
            "freeze an actor": lambda: self.freeze_for_good("actor"),
            "freeze the learner": lambda: self.freeze_for_good("learner"),
            "freeze and thaw an actor": lambda: self.freeze_and_thaw("actor"),
            "freeze and thaw the learner": lambda: self.freeze_and_thaw("learner"),
            "freeze and thaw the main process": self.freeze_and_thaw_main,
            "slow an actor down": self.slow_down,
            "send garbage": self.send_garbage,
        }
        if self.cluster is None:
            return {
                **either,
                "damage a message": lambda: self.damage(EXPERIENCES, "fragment"),
                "damage weights": lambda: self.damage(MODEL_UPDATES, "weights"),
                "damage credits": lambda: self.damage(MODEL_UPDATES, "credits"),
                "fill the disk": self.fill_disk,
            }
        return {
            **either,
            "kill the broker": self.kill_broker,
            "freeze and thaw the broker": self.freeze_broker,
            "cut the network": self.cut_network,
        }

    def worker(self, kind: str) -> tuple[str, psutil.Process] | None:
        index = self.rng.randrange(ACTORS) if kind == "actor" else 0
        found = self.running.worker(kind, index)
        name = f"{kind}-{index}"
        return None if found is None or name in self.frozen else (name, found)

    def kill(self, kind: str) -> None:
        if found := self.worker(kind):
            found[1].kill()

    def kill_main(self) -> None:
        self.running.kill()

    def freeze(self, kind: str) -> tuple[str, psutil.Process] | None:
        found = self.worker(kind)
        if found:
            name, process = found
            process.suspend()
            self.frozen[name] = self.touched[name] = time.monotonic()
        return found

    def freeze_for_good(self, kind: str) -> None:
        if found := self.freeze(kind):
            self.named(found[0])

    def freeze_and_thaw(self, kind: str) -> None:
        """It may have been ended by then, and its pid given to another: psutil looks first."""
        if not (found := self.freeze(kind)):
            return
        name, process = found
        self.named(name)
        self.watch(FROZEN_S)
        with suppress(psutil.NoSuchProcess):
            process.resume()
        self.frozen.pop(name, None)

    def freeze_and_thaw_main(self) -> None:
        self.touched["owner"] = time.monotonic()
        self.running.process.send_signal(signal.SIGSTOP)
        self.frozen["owner"] = time.monotonic()
        self.named("owner")
        self.watch(FROZEN_S)
        self.frozen.pop("owner")
        self.touched["owner"] = time.monotonic()
        self.running.process.send_signal(signal.SIGCONT)

    def slow_down(self) -> None:
        """To a tenth of its speed, for eight seconds."""
        if not (found := self.worker("actor")):
            return
        name, process = found
        self.touched[name] = time.monotonic()

        def brake() -> None:
            with suppress(psutil.NoSuchProcess):
                for _ in range(40):
                    process.suspend()
                    time.sleep(0.18)
                    process.resume()
                    time.sleep(0.02)

        thread = threading.Thread(target=brake)
        thread.start()
        self.watch(8.0)
        thread.join(20)
        self.touched[name] = time.monotonic()

    def send_garbage(self) -> None:
        """Under the name of an actor that plays, and of nobody."""
        workers = self.cli.home.state(self.run).workers
        known = [f"{w.index}.{w.incarnation}" for w in workers.values() if w.kind == "actor"]
        home = self.cli.home
        bus = home.open_run_bus(self.run, home.config(home.state(self.run)))
        with closing(bus):
            for key in (self.rng.choice(known), "nobody"):
                message = Outgoing(EXPERIENCES, self.rng.randbytes(200), key, {"kind": "fragment"})
                bus.publish([message])

    def damage(self, kept_in: str, kind: str) -> None:
        """The next messages of a kind, before anybody can read them."""
        path = self.cli.home.run_dir(self.run) / RUN_FILE
        deadline = time.monotonic() + STALL_S
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
            named = "SELECT id FROM topics WHERE name = ?"
            (topic,) = db.execute(named, (kept_in,)).fetchone()
            db.executescript(DAMAGE.format(topic=topic, kind=kind))
            try:
                while not db.execute("SELECT count(*) FROM damaged").fetchone()[0]:
                    assert time.monotonic() < deadline, "nobody sent anything"
                    time.sleep(0.01)
            finally:
                db.executescript("DROP TRIGGER damage; DROP TABLE damaged")
        self.damaged |= kept_in == EXPERIENCES

    def fill_disk(self) -> None:
        ballast = fill(self.disk)
        moment = time.monotonic() + 3.0
        while time.monotonic() < moment and self.running.process.poll() is None:
            time.sleep(0.1)
        ballast.unlink()

    def kill_broker(self) -> None:
        assert self.cluster is not None
        self.cluster.kill(0)
        self.watch(self.rng.uniform(0.5, 8.0))
        self.cluster.start(0)

    def freeze_broker(self) -> None:
        assert self.cluster is not None
        broker = psutil.Process(self.cluster.pid(0))
        broker.suspend()
        self.rest(self.rng.uniform(5.0, FROZEN_S))
        broker.resume()

    def cut_network(self) -> None:
        assert self.host is not None
        self.host.cable("down")
        self.watch(self.rng.uniform(2.0, 10.0))
        self.host.cable("up")

    # --- what must hold all the while ------------------------------------------------------------

    def rest(self, seconds: float) -> None:
        moment = time.monotonic() + seconds
        while time.monotonic() < moment:
            time.sleep(0.1)

    def watch(self, seconds: float) -> None:
        """Let time pass, and ask `why` meanwhile."""
        moment = time.monotonic() + seconds
        while time.monotonic() < moment:
            self.ask()
            time.sleep(0.25)

    def named(self, name: str) -> None:
        """`why` says who was frozen, in time; or whoever was frozen before and is not back yet."""
        began = time.monotonic()
        while name == "owner" or self._still(name):
            found = self.ask()
            if found is not None and found.component in self.frozen and "frozen" in found.summary:
                return
            assert time.monotonic() - began < NAMED_S, f"{name} is not named; {self.said[-3:]}"
            time.sleep(0.1)
        assert time.monotonic() - began < 5.0, f"{name} was replaced and not named"  # it was ending

    def ask(self) -> Diagnosis | None:
        """`why` names whoever is frozen in time, and calls nobody frozen who is not."""
        home = self.cli.home
        try:
            found = why(home, home.state(self.run))
        except RookeryError:
            return None  # a disk that is full, a broker that is away
        now = time.monotonic()
        if not self.said or self.said[-1] != found.summary:
            self.said.append(found.summary)
        for name, since in list(self.frozen.items()):
            state = home.state(self.run).workers.get(name)
            if name != "owner" and state is not None and not self._still(name):
                del self.frozen[name]  # it was replaced
            elif now - since > NAMED_S:
                assert name in found.summary or found.component in self.frozen, (name, found)
        if "frozen" in found.summary and found.component is not None:
            touched = self.touched.get(found.component, 0.0)
            assert now - touched < NAMED_S + STALL_S, f"nobody froze it: {found}"
        return found

    def _still(self, name: str) -> bool:
        """Whether the worker of that name is the stopped process."""
        kind, _, index = name.rpartition("-")
        process = self.running.worker(kind, int(index))
        try:
            return process is not None and process.status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def carried(self) -> bool:
        """Somebody carries the run: whoever operates it resumes what has ended."""
        code = self.running.process.poll()
        if code is None:
            return True
        home = self.cli.home
        killed = code == -signal.SIGKILL and self.at == "kill the main process"
        assert killed or self.at == "fill the disk", (self.at, code, self.running.log[-2000:])
        with suppress(RookeryError):
            self.running = self.cli.start("resume", self.run, "--json", run=self.run)
            return home.state(self.run) is not None
        return False

    def trains(self, stall_s: float = STALL_S) -> None:
        """Wait until it has trained more; nothing may take longer."""
        began, last = time.monotonic(), -1
        while True:
            waited = time.monotonic() - began
            assert waited < stall_s, f"stalled for {stall_s} s; why: {self.said[-3:]}; {self.done}"
            self.carried()
            self.ask()
            with suppress(RookeryError):
                steps = self.running.env_steps
                if 0 <= last < steps:
                    break
                last = steps if steps else last
            time.sleep(0.05)
        if self.done:
            self.longest = max(self.longest, waited)

    def usage(self) -> Usage:
        processes = {"main": [psutil.Process(self.running.pid)], "actor": [], "learner": []}
        for index in range(ACTORS):
            processes["actor"] += [p for p in [self.running.worker("actor", index)] if p]
        processes["learner"] += [p for p in [self.running.worker("learner")] if p]
        directory = self.cli.home.run_dir(self.run)

        def largest(figure: Callable[[psutil.Process], int]) -> dict[str, int]:
            found = {}
            for kind, members in processes.items():
                with suppress(psutil.NoSuchProcess):
                    found[kind] = max((figure(p) for p in members), default=0)
            return found

        return Usage(
            largest(lambda p: int(p.memory_info().rss)),
            largest(lambda p: int(p.num_threads())),
            largest(lambda p: int(p.num_fds())),
            sum(len(names) for _, _, names in os.walk(directory)),
        )

    def rage(self) -> None:
        self.trains(3 * STALL_S)  # it starts
        before: Usage | None = None
        names = list(self.faults)
        for number in range(FAULTS):
            if number == FAULTS // 4:
                before = self.settled()
            name = names[number] if number < len(names) else self.rng.choice(names)
            print(f"{number + 1}: {name}", flush=True)
            self.at = name
            self.faults[name]()
            self.done[name] += 1
            self.trains()
            self.watch(self.rng.uniform(0.0, CALM_S))
        after = self.settled()
        assert before is not None
        check_flat(before, after)
        print(f"{self.run}: {dict(self.done)}; longest stall {self.longest:.1f} s; {after}")

    def settled(self) -> Usage:
        """With everyone at work."""
        deadline = time.monotonic() + STALL_S
        while not all(self.running.worker("actor", i) for i in range(ACTORS)) or self.frozen:
            assert time.monotonic() < deadline, f"not everyone came back: {self.frozen}"
            self.carried()
            self.ask()
            time.sleep(0.2)
        self.trains()
        self.watch(5.0)
        return self.usage()


def check_flat(before: Usage, after: Usage) -> None:
    for kind, size in before.resident.items():
        assert after.resident[kind] < 1.3 * size + (64 << 20), (before, after)
        assert after.threads[kind] <= before.threads[kind] + 4, (before, after)
        assert after.descriptors[kind] <= before.descriptors[kind] + 10, (before, after)
    assert after.files < before.files + 2 * FAULTS + 50, (before, after)


def check_accounts(cli: Cli, run: str) -> None:
    shown = cli("runs", "show", run, "--json").json
    print(shown["balance"])
    assert shown["balance"]["exact"], shown["balance"]
    assert shown["duplicates"] == 0, shown


@pytest.mark.parametrize("task", TASKS)
def test_a_storm_on_sqlite(cli: Cli, roomy_disk: Path, task: str) -> None:
    cli.home.path = roomy_disk / "home"
    cli.environment["ROOKERY_HOME"] = str(cli.home.path)
    cli.home.path.mkdir()
    storm = Storm(cli, task, 5, roomy_disk, None)
    storm.rage()
    storm.running.interrupt()
    check_accounts(cli, storm.run)
    assert not storm.damaged or cli("runs", "show", storm.run, "--json").json["damaged"]


@pytest.mark.parametrize("task", TASKS)
def test_a_storm_on_kafka(
    host: Host,
    home: Path,
    tmp_path: Path,
    kafka_cli_on: Callable[..., Any],
    task: str,
) -> None:
    with Cluster(directory=tmp_path / "kafka", also_on=host.address) as cluster:
        cli = kafka_cli_on(home, cluster)
        storm = Storm(cli, task, 7, tmp_path, cluster)
        storm.host = host
        with guest(cli, host, cluster, storm.run, tmp_path / "away"):
            storm.rage()
            storm.running.interrupt()
        check_accounts(cli, storm.run)


@contextmanager
def guest(cli: Any, host: Host, cluster: Cluster, run: str, where: Path) -> Iterator[None]:
    """An actor that joins from another host, whose network is cut now and then."""
    where.mkdir()
    environment = {
        **cli.environment,
        "ROOKERY_HOME": str(where),
        "ROOKERY_BUS": f"kafka://{cluster.also_servers}",
        KEY_VARIABLE: str(key_path(cli.home.path)),
    }
    argv = host.command(sys.executable, "-m", "rookery", "actor", run)
    with open(where / "log", "wb") as log:
        process = subprocess.Popen(argv, env=environment, stdout=log, stderr=log, cwd=where)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)
