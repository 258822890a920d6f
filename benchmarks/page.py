"""The page in a real browser: how soon it is there, what it costs, and how large it is.

    python benchmarks/page.py open [--points 1_000_000] [--rounds 5]   # a long finished run
    python benchmarks/page.py list [--runs 1000] [--rounds 5]          # a home with many runs
    python benchmarks/page.py live [--minutes 30]                      # 8 charts of 4 paced runs
    python benchmarks/page.py hours [--hours 6]                        # the same, in fast motion
    python benchmarks/page.py size                                     # of what is downloaded

`open` times a fresh browser context from the navigation to the frame in which all charts that are
seen are drawn: once each after a start of the server, which has read nothing yet, and once more
while it has. `list` times the list of a home with many finished runs in the same way, to the frame
in which its rows and their count stand there, and then each change of what is asked for, from the
key or the click to the frame that shows its answer. A point is one number of one metric; the run
has one report each second with the metrics of a true run. `live` compares four runs in one tab and
reads, each minute, the CPU time of the tab's process and of the one that puts its pictures on the
screen (other load hardly changes these), its heap after a collection, and the memory that is its
own. `hours` sends to four runs without actors what their learners would say in so long a time, a
hundred times as fast.

Needs `chromium`, and what `make test` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import psutil
from control import PACED, Server
from home import build_runs
from playwright.sync_api import sync_playwright

from rookery.bus import Outgoing
from rookery.config.reading import build
from rookery.control.check import check_config
from rookery.control.home import Home
from rookery.control.run_state import STOPPED
from rookery.messages import METRICS_TRAINING, LedgerSummary, TrainingMetrics, encode_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "rookery" / "server" / "page" / "built"
OPEN_LIMIT_S = 1.5
CPU_LIMIT = 0.30  # of one core
MEMORY_LIMIT_MB = 200
SIZE_LIMIT_KB = 350
CHARTS = 8
RUNS = 4
FIRST_S = 1000  # beyond what the runs trained before they lost their actors
FASTER = 100  # times as fast as a learner reports
DIAGNOSTICS = (  # what ppo says of an update
    *("policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "explained_variance"),
    *("gradient_norm", "value_mean", "value_std", "learning_rate"),
    *("gradient_steps", "first_ratio_error"),
)
SETTLED_S = 3.0  # until a server that is ready has done what it puts off
AT_ONCE = 5000  # reports in one batch on the bus

# from the navigation to the first frame after which every chart in sight has its line
DRAWN = """
() => {
  const charts = [...document.querySelectorAll('.charts:not(.loading) [data-metric]')];
  const seen = charts.filter((chart) => chart.getBoundingClientRect().top < innerHeight);
  const isDrawn = (chart) => chart.querySelector('canvas') && !chart.querySelector('.none')
    && /[0-9]/.test(chart.querySelector('.reads').textContent);
  if (!seen.length || !seen.every(isDrawn)) return null;
  return { ms: performance.now(), charts: seen.length };
}
"""


@contextlib.contextmanager
def a_browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        sys.exit("there is no browser: install chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def ready(home: Path, settled_s: float = SETTLED_S) -> Server:
    """A server that answers, some seconds later: as one opens its link."""
    server = Server(home)
    while httpx2.get(f"{server.url}/readyz", timeout=60).status_code != 200:
        time.sleep(0.02)
    time.sleep(settled_s)
    return server


def new_tab(browser: Browser, server: Server, height: int) -> Page:
    """A context of its own: nothing is cached, and the token is there as after the link."""
    context = browser.new_context(viewport={"width": 1440, "height": height})
    context.add_init_script(f"sessionStorage.setItem('rookery.token', '{server.token}')")
    return context.new_page()


# --- a long run ----------------------------------------------------------------------------------


def open_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rookery-page-") as directory, a_browser() as browser:
        home = Path(directory)
        run, reports, metrics = make_long_run(home, arguments.points)
        at_ready: list[float] = []
        first: list[float] = []
        again: list[float] = []
        charts = 0
        for _ in range(arguments.rounds):
            for settled_s, opened in ((0.0, (at_ready,)), (SETTLED_S, (first, again))):
                server = ready(home, settled_s)
                try:
                    for times in opened:
                        found = open_once(browser, server, run)
                        times.append(found["ms"] / 1000)
                        charts = found["charts"]
                finally:
                    server.close()
    return {
        "points": reports * metrics,
        "reports": reports,
        "charts": charts,
        "while_the_server_starts_s": spread(at_ready),
        "first_after_the_start_s": spread(first),
        "again_s": spread(again),
        "limit_s": OPEN_LIMIT_S,
        "worst_to_limit": round(max(first + again) / OPEN_LIMIT_S, 2),
    }


def make_long_run(home_path: Path, points: int) -> tuple[str, int, int]:
    """A finished CartPole run with so many points on its bus; returns it, reports and metrics."""
    home = Home(home_path)
    config = build({"environment": {"id": "CartPole-v1"}})
    run = home.create(config, check_config(home, config), author="benchmark")
    metrics = len(report(run, 0).values) + 8  # of every run: as the page has them
    reports = math.ceil(points / metrics)
    with contextlib.closing(home.open_run_bus(run, config)) as bus:
        for start in range(0, reports, AT_ONCE):
            some = range(start, min(reports, start + AT_ONCE))
            bus.publish([Outgoing(METRICS_TRAINING, encode_json(report(run, i))) for i in some])
    assert home.state(run).desired == STOPPED
    home.close()
    return run, reports, metrics


def report(run: str, i: int, began_s: float = 1.7e9) -> TrainingMetrics:
    """One second of training, with a curve that rises and jitters."""
    jitter = (i * 2654435761 % 1000) / 1000
    rise = 500 * (1 - math.exp(-i / 20000)) * (0.8 + 0.2 * jitter)
    return TrainingMetrics(
        run=run,
        policy="main",
        generation=1,
        time_s=began_s + i,
        updates=10 * i,
        env_steps=40960 * i,
        train_s=float(i),
        steps_per_s=40960.0,
        recent_steps_per_s=40000 + 2000 * jitter,
        episodes=100 * i,
        mean_return_100=rise,
        min_return_100=0.5 * rise,
        max_return_100=min(500.0, 1.3 * rise),
        mean_length_100=rise,
        lag_mean=1 + jitter,
        lag_max=3,
        bus_lag=int(4 * jitter),
        ledger=LedgerSummary(trained=40960 * i, dropped={}, pending=4096, position=(i,), seen={}),
        values={name: jitter * math.cos(i / 5000 + k) for k, name in enumerate(DIAGNOSTICS)},
    )


def open_once(browser: Browser, server: Server, run: str) -> dict[str, Any]:
    tab = new_tab(browser, server, 900)
    tab.goto(f"{server.url}/#/runs/{run}")
    found = tab.wait_for_function(DRAWN, polling="raf", timeout=60_000).json_value()
    tab.context.close()
    assert isinstance(found, dict)
    return found


# --- a home with many runs ------------------------------------------------------------------------

LIST_LIMIT_S, FILTER_LIMIT_S = 1.0, 0.3
REPORTS = 60  # of each run, for its small curve
LISTED = """
() => {
  const rows = document.querySelectorAll('tr[data-run]').length;
  const total = document.querySelector('[data-what=total]')?.textContent;
  return rows && total ? { ms: performance.now(), rows, total } : null;
}
"""
# what `act` does to an element, until the list shows an answer to it
ANSWERED = """
async ([selector, value, total]) => {
  const element = document.querySelector(selector);
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const began = performance.now();
  if (value === null) element.click();
  else {
    element.value = value;
    const kind = element.tagName === 'SELECT' ? 'change' : 'input';
    element.dispatchEvent(new Event(kind, { bubbles: true }));
  }
  do {
    await frame();
    if (performance.now() - began > 30_000) throw new Error(`no answer to ${selector} ${value}`);
  } while (document.querySelector('[aria-busy=true]')
    || (total && document.querySelector('[data-what=total]').textContent !== total));
  await frame();
  return performance.now() - began;
}
"""
FILTER, SORT, GROUP = (
    "input[type=search]",
    "th.c-mean_return_100 button",
    "select[aria-label=Group]",
)


def list_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    count = arguments.runs
    changes = {
        "a word": (FILTER, "nightly", f"{count // 10:,} of {count:,} runs"),
        "a test of a config key": (FILTER, "seed=7", f"{count // 100:,} of {count:,} runs"),
        "no filter": (FILTER, "", f"{count:,} runs"),
        "sorted": (SORT, None, ""),
        "grouped": (GROUP, "tag", ""),
    }
    opened: list[float] = []
    changed: dict[str, list[float]] = {name: [] for name in changes}
    with tempfile.TemporaryDirectory(prefix="rookery-page-") as directory, a_browser() as browser:
        make_many_runs(Path(directory), count)
        server = ready(Path(directory))
        try:
            for _ in range(arguments.rounds):
                tab = new_tab(browser, server, 900)
                tab.goto(f"{server.url}/#/runs")
                found = tab.wait_for_function(LISTED, polling="raf", timeout=60_000).json_value()
                assert found["total"] == f"{count:,} runs", found
                opened.append(found["ms"] / 1000)
                for name, change in changes.items():
                    changed[name].append(tab.evaluate(ANSWERED, list(change)) / 1000)
                tab.context.close()
        finally:
            server.close()
    answers = [time_s for times in changed.values() for time_s in times]
    return {
        "runs": count,
        "open_s": spread(opened),
        "open_limit_s": LIST_LIMIT_S,
        "answers_s": {name: spread(times) for name, times in changed.items()},
        "answer_limit_s": FILTER_LIMIT_S,
        "worst_to_limit": round(max(max(opened) / LIST_LIMIT_S, max(answers) / FILTER_LIMIT_S), 2),
    }


def make_many_runs(home_path: Path, count: int) -> None:
    """Finished runs of a hundred seeds, a tenth of them with a tag, each with a curve."""

    def vary(number: int) -> dict[str, Any]:
        tags = ["nightly"] if number % 10 == 0 else []
        returns = 20.0 + number * 7919 % 480
        labels = {"name": f"try {number}", "tags": tags}
        return {"seed": number % 100, "mean_return_100": returns, **labels}

    home = Home(home_path)
    for run in build_runs(home, count, vary):
        with contextlib.closing(home.open_run_bus(run, home.config(home.state(run)))) as bus:
            end = home.state(run).mean_return_100 or 0.0
            reports = []
            for i in range(REPORTS):
                grown = {"mean_return_100": end * (i + 1) / REPORTS, "env_steps": 2000 * i}
                reports.append(msgspec.structs.replace(report(run, i), **grown))
            bus.publish([Outgoing(METRICS_TRAINING, encode_json(said)) for said in reports])
    home.close()


# --- a page that stays open ----------------------------------------------------------------------


def live_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rookery-page-") as directory, a_browser() as browser:
        server = ready(Path(directory))
        try:
            paced = ["--envs-per-actor", "4", "--env.step_s=0.008", "--set"]
            paced += ["actors.rollout_steps=32", "--steps", "100_000_000"]
            runs = [server.submit(PACED, *paced, "--seed", str(seed)) for seed in range(RUNS)]
            for run in runs:
                server.wait_for_steps(run, 2000)
            tab = new_tab(browser, server, 900)
            tab.goto(f"{server.url}/#/compare?runs={','.join(runs)}")
            tab.wait_for_function(DRAWN, timeout=60_000)
            return watch(browser, tab, arguments.minutes)
        finally:
            server.close()


def hours_benchmark(arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="rookery-page-") as directory, a_browser() as browser:
        home, server = Path(directory), ready(Path(directory))
        try:
            runs = [server.submit("CartPole-v1", "--steps", "100_000_000") for _ in range(RUNS)]
            for run in runs:
                server.post(f"/runs/{run}/scale-actors", {"count": 0})
            with telling(home, runs) as tell:
                tell(FIRST_S - 100, FIRST_S)
                tab = new_tab(browser, server, 900)
                tab.goto(f"{server.url}/#/compare?runs={','.join(runs)}")
                tab.wait_for_function(DRAWN, timeout=60_000)
                return grow(browser, tab, tell, int(3600 * arguments.hours))
        finally:
            server.close()


@contextlib.contextmanager
def telling(home_path: Path, runs: list[str]) -> Iterator[Callable[[int, int], None]]:
    """Reports from one second to another, onto the buses of runs that say nothing themselves."""
    home = Home(home_path)
    with contextlib.ExitStack() as stack:
        stack.callback(home.close)
        buses = [
            stack.enter_context(
                contextlib.closing(home.open_run_bus(run, home.config(home.state(run))))
            )
            for run in runs
        ]

        began_s = time.time()

        def tell(start: int, stop: int) -> None:
            for run, bus in zip(runs, buses, strict=True):
                said = (encode_json(report(run, i, began_s)) for i in range(start, stop))
                bus.publish([Outgoing(METRICS_TRAINING, payload) for payload in said])

        yield tell


def grow(
    browser: Browser, tab: Page, tell: Callable[[int, int], None], seconds: int
) -> dict[str, Any]:
    inside = tab.context.new_cdp_session(tab)
    renderer, screen = processes_of(browser, tab)
    samples: list[dict[str, float]] = []
    for sixth in range(6):
        begin, end = (FIRST_S + seconds * k // 6 for k in (sixth, sixth + 1))
        for second in range(begin, end, FASTER // 10):
            tell(second, min(end, second + FASTER // 10))
            tab.wait_for_timeout(100)
        tab.wait_for_timeout(2000)  # what was said last is drawn too
        samples.append(sample(renderer, screen, inside))
        print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
    told = tab.evaluate("document.querySelector('[data-metric=mean_return_100] .read').textContent")
    return {
        "hours": seconds / 3600,
        "runs": RUNS,
        "newest_return": told.strip(),
        "own_memory_mb": [one["own_mb"] for one in samples],
        "memory_limit_mb": MEMORY_LIMIT_MB,
        "heap_mb": [one["heap_mb"] for one in samples],
        "dom_nodes": [one["nodes"] for one in samples],
    }


def watch(browser: Browser, tab: Page, minutes: float) -> dict[str, Any]:
    inside = tab.context.new_cdp_session(tab)
    renderer, screen = processes_of(browser, tab)
    charts = tab.wait_for_function(DRAWN).json_value()["charts"]
    assert charts >= CHARTS, f"only {charts} charts are in sight"
    version = "Number(document.querySelector('.charts').dataset.version)"
    redraws = -tab.evaluate(version)
    samples: list[dict[str, float]] = []
    began = time.monotonic()
    for minute in range(math.ceil(minutes) + 1):
        late = began + 60 * min(minutes, minute) - time.monotonic()
        tab.wait_for_timeout(1000 * max(0.0, late))
        samples.append(sample(renderer, screen, inside))
        print(json.dumps(samples[-1]), file=sys.stderr, flush=True)
    pairs = list(itertools.pairwise(samples))
    ends = samples[0], samples[-1]
    return {
        "minutes": round((ends[1]["at_s"] - ends[0]["at_s"]) / 60, 1),
        "charts_in_sight": charts,
        "runs": RUNS,
        "redraws": redraws + tab.evaluate(version),
        "cpu_of_one_core": share(*ends, "cpu_s"),
        "cpu_of_one_core_worst_minute": max(share(*pair, "cpu_s") for pair in pairs),
        "cpu_limit": CPU_LIMIT,
        "screen_cpu_of_one_core": share(*ends, "screen_cpu_s"),
        "own_memory_mb": course(samples, "own_mb"),
        "memory_limit_mb": MEMORY_LIMIT_MB,
        "heap_mb": course(samples, "heap_mb"),
        "dom_nodes": course(samples, "nodes"),
    }


def processes_of(browser: Browser, tab: Page) -> tuple[psutil.Process, psutil.Process]:
    """That of the tab (a browser keeps spare ones: ours is the one that works), and that which
    puts its pictures on the screen."""
    ask = browser.new_browser_cdp_session()
    before = {p["id"]: p["cpuTime"] for p in processes(ask, "renderer")}
    tab.wait_for_timeout(4000)
    after = {p["id"]: p["cpuTime"] for p in processes(ask, "renderer")}
    busiest = max(after, key=lambda pid: after[pid] - before.get(pid, 0))
    return psutil.Process(busiest), psutil.Process(processes(ask, "GPU")[0]["id"])


def processes(ask: CDPSession, kind: str) -> list[dict[str, Any]]:
    told = ask.send("SystemInfo.getProcessInfo")["processInfo"]
    return [process for process in told if process["type"] == kind]


def sample(
    renderer: psutil.Process, screen: psutil.Process, inside: CDPSession
) -> dict[str, float]:
    inside.send("HeapProfiler.collectGarbage")
    inside.send("Performance.enable")
    metrics = {m["name"]: m["value"] for m in inside.send("Performance.getMetrics")["metrics"]}
    return {
        "at_s": round(time.monotonic(), 1),
        "cpu_s": round(cpu_s(renderer), 2),
        "screen_cpu_s": round(cpu_s(screen), 2),
        "own_mb": round(renderer.memory_full_info().uss / 1e6, 1),
        "heap_mb": round(metrics["JSHeapUsedSize"] / 1e6, 1),
        "nodes": metrics["Nodes"],
    }


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def share(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return round((after[name] - before[name]) / (after["at_s"] - before["at_s"]), 3)


def course(samples: list[dict[str, float]], name: str) -> dict[str, float]:
    values = [one[name] for one in samples]
    middle = values[len(values) // 2]
    return {"first": values[0], "middle": middle, "last": values[-1], "most": max(values)}


# --- what is downloaded --------------------------------------------------------------------------


def size_benchmark(_: argparse.Namespace) -> dict[str, Any]:
    files = {p.name.removesuffix(".gz"): p.stat().st_size for p in BUILT.rglob("*.gz")}
    total = sum(files.values()) / 1000
    return {
        "kb_compressed": round(total, 1),
        "files_kb": {name: round(size / 1000, 1) for name, size in files.items()},
        "limit_kb": SIZE_LIMIT_KB,
        "to_limit": round(total / SIZE_LIMIT_KB, 2),
    }


def spread(times: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(times), 2),
        "worst": round(max(times), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["open", "list", "live", "hours", "size"])
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--hours", type=float, default=6.0)
    arguments = parser.parse_args()
    benchmark = {
        "open": open_benchmark,
        "list": list_benchmark,
        "live": live_benchmark,
        "hours": hours_benchmark,
        "size": size_benchmark,
    }
    print(json.dumps(benchmark[arguments.what](arguments), indent=2))


if __name__ == "__main__":
    main()
