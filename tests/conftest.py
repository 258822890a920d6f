"""Fixtures for tests with real processes.

    def test_x(cli):                                    # a home of its own, and the command line
        done = cli("train", "CartPole-v1", "--json")    # runs to its end, checks the exit code
        done.json["status"]
        running = cli.start("train", "CartPole-v1")     # in the background
        running.wait_until(lambda: running.env_steps > 1000, "1000 trained steps")

Whatever a test does, no process that has its home in its environment may outlive it.
"""

from __future__ import annotations

import asyncio
import gc
import io
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import pytest
from hypothesis import settings

from rookery.errors import InputError
from rookery.worker.xla import prepare_xla
from tools.ray import HERE

if TYPE_CHECKING:
    from rookery.bus import Bus
    from rookery.control.home import Home
    from rookery.control.models import Diagnosis
    from rookery.messages import TrainingMetrics
    from tools.kafka.broker import Cluster

ROOT = Path(__file__).resolve().parents[1]
COMPILE_CACHE = ROOT / ".cache" / "test-xla"  # one for all sessions: a warm one saves minutes
NOT_OURS = ("ROOKERY_", "JAX_", "RAY_")  # variables that `rookery` in a test does not get
POLL_S, SLOWEST_POLL_S = 0.02, 0.15  # at first; where it takes long a look must not cost much
NAMED_S = 20.0  # within which `why` names what is wrong
ORPHAN_GRACE_S = 10.0
ON_RAY = (
    *("tests/bus/ray/", "tests/launchers/ray/", "tests/ray/", "tests/tuning/test_ray_tune.py"),
    *("tests/faults/test_ray_faults.py",),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run only the tests marked soak")


def pytest_configure(config: pytest.Config) -> None:
    """Property tests are seeded, so that a run can be repeated; a soak looks further each time."""
    os.environ["ROOKERY_COMPILE_CACHE"] = str(COMPILE_CACHE)
    os.environ.update(HERE)  # before anything imports Ray
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a shell's background: Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)  # is for what tests start
    prepare_xla(threads=os.cpu_count() or 1)  # tests that compile in this process share it too
    settings.register_profile("seeded", derandomize=True, deadline=None)
    if not config.getoption("--soak"):
        settings.load_profile("seeded")
        os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")  # compiling takes
        # a quarter less, and that is most of what JAX does here


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Plain pytest leaves the soak tests out; `--soak` runs nothing else."""
    wanted = config.getoption("--soak")
    chosen = [item for item in items if (item.get_closest_marker("soak") is not None) == wanted]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = _longest_first(chosen)


def _longest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Modules whose tests may take longest begin first, then those with most tests: what begins
    last keeps all other workers waiting. They go to workers as a whole, in this order."""
    counts = Counter(map(_scope, items))
    allowed: dict[str, float] = defaultdict(float)
    for item in items:
        marker = item.get_closest_marker("timeout")
        if marker is not None and marker.args:
            allowed[_scope(item)] = max(allowed[_scope(item)], marker.args[0])
    return sorted(items, key=lambda item: (-allowed[_scope(item)], -counts[_scope(item)]))


def _scope(item: pytest.Item) -> str:
    return scope_of(item.nodeid)


def scope_of(nodeid: str) -> str:
    """What one worker does as a whole: a module or a class; all that starts a Ray cluster, as two
    of them beside each other keep a small machine from starting either."""
    return "on Ray" if nodeid.startswith(ON_RAY) else nodeid.rsplit("::", 1)[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """How modules are dealt out to workers."""
    if config.getvalue("dist") != "loadscope":
        return None  # xdist's own
    from xdist.scheduler import LoadScopeScheduling

    class Dealing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

    return Dealing(config, log)


def pytest_report_header() -> str:
    """Which broker the tests of Kafka use."""
    from tools.kafka.broker import KAFKA_VERSION, find_java

    try:
        find_java()
    except InputError as error:
        return f"kafka: librdkafka's built-in broker only: {error}"
    return f"kafka: Apache Kafka {KAFKA_VERSION}, and librdkafka's built-in broker"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With ROOKERY_INSIST=1 (as in CI) a test that was skipped is a failure."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and os.environ.get("ROOKERY_INSIST") == "1":
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@contextmanager
def loop_in_a_thread(patience_s: float = 20.0) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop at work beside the test; what still waits in it at the end is cancelled."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:

        async def cancel_all() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), patience_s)

        asyncio.run_coroutine_threadsafe(cancel_all(), loop).result(patience_s)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(patience_s)
        loop.close()


def wait_until(condition: Callable[[], Any], what: str, timeout: float = 120.0) -> Any:
    """Poll until the condition gives something true, which is returned; fail after `timeout`."""
    deadline, pause = time.monotonic() + timeout, POLL_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}")
        time.sleep(pause)
        pause = min(SLOWEST_POLL_S, pause * 1.1)
    return found


def training_history(home: Home, run: str) -> Iterator[TrainingMetrics]:
    """All training metrics that are kept, without stretches that a later life did over."""
    from rookery.bus import EARLIEST
    from rookery.messages import METRICS_TRAINING, TrainingMetrics, decode_or_none

    bus = home.read_run_bus(home.state(run))
    if bus is None:
        return
    kept: list[TrainingMetrics] = []
    subscription = bus.subscribe(METRICS_TRAINING, EARLIEST)
    while records := subscription.poll(0.0, limit=4096):
        for record in records:
            metrics = decode_or_none(record.payload, TrainingMetrics)
            if metrics is None:
                continue
            while kept and kept[-1].updates > metrics.updates:
                kept.pop()
            kept.append(metrics)
    bus.close()
    yield from kept


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """Stdout, which must be one JSON object and nothing else."""
        lines = self.stdout.splitlines()
        assert len(lines) == 1, f"stdout is not one line:\n{self.stdout}"
        found = json.loads(lines[0])
        assert isinstance(found, dict)
        return found

    @property
    def error(self) -> str:
        """Stderr of a command that was refused, which must be one line."""
        lines = self.stderr.splitlines()
        assert len(lines) == 1, f"stderr is not one line:\n{self.stderr}"
        assert "Traceback" not in self.stderr
        return lines[0]


class Started:
    """A `train` or `resume` in the background, and the run that it carries."""

    def __init__(self, cli: Cli, process: subprocess.Popen[bytes], output: Path) -> None:
        self.cli, self.process, self._output = cli, process, output
        self._began = time.time()
        self._bus: Bus | None = None
        self.run = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> Path:
        """What it has printed so far."""
        return self._output.with_suffix(".out")

    @property
    def env_steps(self) -> int:
        """Trained steps of the run, once this command has said anything about it."""
        from rookery.control.queries import newest_training

        if self._bus is None:
            self._bus = self.cli.home.read_run_bus(self.cli.home.state(self.run))
        if self._bus is None:
            return 0
        metrics = newest_training(self._bus, self.run)
        return metrics.env_steps if metrics and metrics.time_s > self._began else 0

    def show(self) -> dict[str, Any]:
        """What `runs show --json` prints, read in this process."""
        from rookery.control.details import show

        return show(self.cli.home, self.run)

    def why(self) -> Diagnosis:
        """What `rookery why` says, read in this process."""
        from rookery.control.diagnosis import why

        return why(self.cli.home, self.cli.home.state(self.run))

    def named(self, component: str | None, words: str, timeout: float = NAMED_S) -> str:
        """Wait until `why` names this component, with these words; returns all that it says."""

        found: Diagnosis | None = None

        def is_named() -> bool:
            nonlocal found
            found = self.why()
            return found.component == component and words in found.summary

        try:
            self.wait_until(is_named, f"why to name {component}: {words}", timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says {found}") from None
        assert found is not None
        return found.summary

    def worker(self, kind: str, index: int = 0) -> psutil.Process | None:
        """The newest incarnation of a worker, if it is known to live."""
        workers = self.cli.home.state(self.run).workers
        state = workers.get(f"{kind}-{index}")
        if state is None or not state.running or state.pid is None:
            return None
        try:
            return psutil.Process(state.pid)
        except psutil.NoSuchProcess:
            return None

    def wait_until(self, condition: Callable[[], Any], what: str, timeout: float = 120.0) -> Any:
        """As `wait_until`; fails at once when the process ends before."""

        def look() -> Any:
            found = condition()
            if not found and self.process.poll() is not None:
                done = self.finish(0)
                raise AssertionError(f"ended with {done} before {what}")
            return found

        return wait_until(look, what, timeout)

    def finish(self, timeout: float = 120.0, expect: int | None = None) -> Finished:
        """Wait for the end of the process."""
        self.process.wait(timeout)
        done = Finished(
            self.process.returncode,
            self._output.with_suffix(".out").read_text(),
            self._output.with_suffix(".err").read_text(),
        )
        assert expect is None or done.code == expect, done
        return done

    def interrupt(self, timeout: float = 120.0) -> Finished:
        """Ctrl-C, and wait for the end."""
        self.process.send_signal(signal.SIGINT)
        return self.finish(timeout)

    def close(self) -> None:
        if self._bus is not None:
            self._bus.close()

    def kill(self) -> None:
        """kill -9 of the main process; its workers must end by themselves."""
        self.process.kill()
        self.process.wait(30)
        wait_until(lambda: not self.cli.processes(), "the end of its workers", ORPHAN_GRACE_S)


class Served(Started):
    """A `rookery serve` in the background."""

    def __init__(self, cli: Cli, process: subprocess.Popen[bytes], output: Path) -> None:
        super().__init__(cli, process, output)
        self.url = self.token = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def log(self) -> str:
        """What it has said on stderr."""
        return self._output.with_suffix(".err").read_text()

    def is_ready(self) -> bool:
        import httpx2

        if not self.url:
            said = self.output.read_text()
            if not said.endswith("\n"):
                return False
            found = json.loads(said)
            self.url, self.token = found["url"], found["token"]
        try:
            return httpx2.get(f"{self.url}/readyz", timeout=5).status_code == 200
        except httpx2.TransportError:
            return False

    def api(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request, as its owner; returns the answer's JSON, whatever its status."""
        import httpx2

        found = httpx2.request(
            method,
            f"{self.url}/api/v1{path}",
            json=body,
            headers={**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}},
            timeout=60,
        )
        assert found.status_code < 500, found.text
        return found.json()


def _refusal(done: Finished) -> str:
    assert (done.code, done.stdout) == (2, ""), done
    assert done.error.startswith("rookery: ")
    return done.error


class Cli:
    """`rookery` with a home of its own, on a cluster if one is named."""

    def __init__(self, home: Path, bus: str = "") -> None:
        from rookery.bus.kafka.settings import KafkaSettings
        from rookery.control.home import Home

        self.home = Home(home, KafkaSettings.of(bus) if bus else None)
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith(NOT_OURS)},
            "ROOKERY_HOME": str(home),
            "ROOKERY_COMPILE_CACHE": str(COMPILE_CACHE),
            "PYTHONUNBUFFERED": "1",
            **({"ROOKERY_BUS": bus} if bus else {}),
        }
        self._count = 0
        self._started: list[Started] = []

    def __call__(
        self,
        *arguments: object,
        timeout: float = 120.0,
        expect: int | None = 0,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> Finished:
        done = subprocess.run(
            self._argv(arguments),
            env={**self.environment, **(env or {})},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        finished = Finished(done.returncode, done.stdout, done.stderr)
        assert expect is None or finished.code == expect, finished
        return finished

    def refused(self, *arguments: object, **options: Any) -> str:
        """The one line on stderr of a command that exits with 2 and says nothing on stdout."""
        return _refusal(self(*arguments, **{"expect": 2, **options}))

    def refused_here(self, *arguments: object) -> str:
        """The same in this process: a new one for each line would cost a second."""
        from rookery.cli.main import run

        stdout, stderr = io.StringIO(), io.StringIO()
        before, often = dict(os.environ), gc.get_threshold()
        try:
            os.environ.clear()
            os.environ.update(self.environment)
            with redirect_stdout(stdout), redirect_stderr(stderr):
                code = run([str(each) for each in arguments], time.monotonic())
        finally:
            os.environ.clear()
            os.environ.update(before)
            gc.set_threshold(*often)
        return _refusal(Finished(code, stdout.getvalue(), stderr.getvalue()))

    def start(self, *arguments: object, run: str | None = None, timeout: float = 120.0) -> Started:
        """Begin a command that carries a run; returns when the run is known to the log."""
        before = {} if run is not None else self.home.states().keys()
        self._count += 1
        output = self.home.path.parent / f"command-{self._count}"
        with (
            open(output.with_suffix(".out"), "wb") as stdout,
            open(output.with_suffix(".err"), "wb") as stderr,
        ):
            process = subprocess.Popen(
                self._argv(arguments),
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
            )
        started = Started(self, process, output)
        self._started.append(started)
        if run is not None:
            started.run = run
        else:
            fresh = started.wait_until(
                lambda: self.home.states().keys() - before, "a new run", timeout
            )
            started.run = min(fresh)  # a sweep may begin several at once
        return started

    def serve(self, *options: object, timeout: float = 60.0, descriptors: int = 0) -> Served:
        """`rookery serve` on a free port, once it is ready; with so many descriptors, if said."""
        limited = ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh") if descriptors else ()
        self._count += 1
        output = self.home.path.parent / f"server-{self._count}"
        with (
            open(output.with_suffix(".out"), "wb") as stdout,
            open(output.with_suffix(".err"), "wb") as stderr,
        ):
            process = subprocess.Popen(
                [*limited, *self._argv(("serve", "--json", "--port", "0", *options))],
                env=self.environment,
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
            )
        served = Served(self, process, output)
        self._started.append(served)
        served.wait_until(served.is_ready, "the server to be ready", timeout)
        return served

    def processes(self) -> list[psutil.Process]:
        """Every process that lives in this home, whoever started it."""
        found = []
        mine = str(self.home.path)
        for process in psutil.process_iter():
            try:
                if process.pid != os.getpid() and process.environ().get("ROOKERY_HOME") == mine:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def close(self) -> None:
        """End what the test left running on purpose, then look for what outlived it."""
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait(30)
            started.close()
        self.home.close()
        try:
            wait_until(lambda: not self.processes(), "orphans to end", ORPHAN_GRACE_S)
        except AssertionError:
            left = self.processes()
            described = [f"{p.pid}: {' '.join(p.cmdline())}" for p in left]
            for process in left:
                process.kill()
            raise AssertionError(f"processes outlived their test: {described}") from None

    @staticmethod
    def _argv(arguments: tuple[object, ...]) -> list[str]:
        return [sys.executable, "-m", "rookery", *(str(argument) for argument in arguments)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A directory for runs that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def cli(home: Path) -> Iterator[Cli]:
    runner = Cli(home)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def shared_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """One home for all tests of a module that only read its runs."""
    runner = Cli(tmp_path_factory.mktemp("shared") / "home")
    yield runner
    runner.close()


@pytest.fixture
def eventually() -> Callable[..., Any]:
    """`wait_until`, for tests that cannot import it."""
    return wait_until


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real broker for all tests of a session that only need one to be there."""
    from tools.kafka.broker import Cluster

    try:
        made = Cluster(directory=tmp_path_factory.mktemp("kafka"))
    except InputError as error:  # no Java, or no jars: named and counted; CI insists
        pytest.skip(f"no real broker: {error}")
    with made as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray_here() -> Iterator[Any]:
    """The `ray` module, on a cluster of this machine: one for a process and all of its tests, as
    Ray does not get onto a second one."""
    from tools.ray import local_ray

    with local_ray(cpus=4):
        import ray

        yield ray


@pytest.fixture
def kafka_cli_on() -> Iterator[Callable[[Path, Cluster], Cli]]:
    """`rookery` on a broker of the test's own."""
    made: list[Cli] = []

    def make(home: Path, cluster: Cluster) -> Cli:
        made.append(Cli(home, f"kafka://{cluster.servers}"))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


@pytest.fixture
def kafka_cli(home: Path, kafka: Cluster) -> Iterator[Cli]:
    """`rookery` on the session's broker, with topics of its own."""
    runner = Cli(home, f"kafka://{kafka.servers}/{secrets.token_hex(4)}.")
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def shared_kafka_cli(tmp_path_factory: pytest.TempPathFactory, kafka: Cluster) -> Iterator[Cli]:
    """As `shared_cli`, on the session's broker with topics of the module's own."""
    bus = f"kafka://{kafka.servers}/{secrets.token_hex(4)}."
    runner = Cli(tmp_path_factory.mktemp("shared") / "home", bus)
    yield runner
    runner.close()


@contextmanager
def disk_of(megabytes: int, place: Path) -> Iterator[Path]:
    """A file system of its own."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a tmpfs")
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let root mount a tmpfs")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(64, tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def roomy_disk(tmp_path: Path) -> Iterator[Path]:
    with disk_of(512, tmp_path / "disk") as disk:
        yield disk


def fill(disk: Path, name: str = "ballast") -> Path:
    """Leave no byte free."""
    ballast = disk / name
    with open(ballast, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
    return ballast


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)
