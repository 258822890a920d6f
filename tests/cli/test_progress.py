"""The lines that tell how a run goes on, and that they are seen to move."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.cli import main
from rookery.cli import progress as module
from rookery.cli.progress import OLD_S, Progress, settings
from rookery.cli.text import as_typed
from rookery.config.reading import build
from rookery.control.run_state import RunState, apply
from rookery.messages import (
    CreateRun,
    Event,
    PolicyMetrics,
    WorkerExited,
    WorkerFailed,
    WorkerStarting,
)
from tests.conftest import wait_until
from tests.docs.terminal import ESCAPES
from tests.server.test_run_rows import training

CONFIG = build({"environment": {"id": "CartPole-v1"}})
ERROR = "environment mine:Env raised ValueError in step: the board fell over"
TRACE = """Traceback (most recent call last):
  File "/home/me/mine.py", line 13, in step
    raise ValueError("the board fell over")
ValueError: the board fell over
"""


def after(state: RunState | None, *events: Event | CreateRun) -> RunState:
    for event in events:
        state = apply(state, event)
    assert state is not None
    return state


def death(life: int, error: str = ERROR) -> tuple[Event, ...]:
    who = {"run": "r", "kind": "actor", "index": 0, "incarnation": life}
    failed = WorkerFailed(**who, error=error, detail=TRACE)  # type: ignore[arg-type]
    exited = WorkerExited(**who, code=1, expected=False)  # type: ignore[arg-type]
    return WorkerStarting(**who), failed, exited  # type: ignore[arg-type]


def told(progress: Progress, out: io.StringIO, state: RunState) -> list[str]:
    out.truncate(0)
    out.seek(0)
    progress(state, None, None)
    return out.getvalue().splitlines()


NEW = after(None, CreateRun(run="r", config={"config": {}, "spec": {}}))


def test_a_crash_is_told_at_once_with_the_users_line() -> None:
    out = io.StringIO()
    progress = Progress("r", out, CONFIG)
    once = after(NEW, *death(1))
    first, *trace = told(progress, out, once)
    assert first == f"actor-0 died, and is started again up to 5 times: {ERROR}"
    assert '    File "/home/me/mine.py", line 13, in step' in trace
    assert told(progress, out, once) == []
    twice = after(once, *death(2))
    assert told(progress, out, twice) == ["actor-0 died 2 times of the same"]
    other = told(progress, out, after(twice, *death(3, "ended by SIGKILL")))
    assert other[0].endswith("ended by SIGKILL")


def test_errors_of_an_earlier_life_of_the_run_are_old_news() -> None:
    out = io.StringIO()
    before = after(NEW, *death(1))
    assert told(Progress("r", out, CONFIG, before), out, before) == []


def test_steps_seconds_and_steps_a_second_are_of_one_clock() -> None:
    said = training(env_steps=6000, train_s=3.0, recent_steps_per_s=500.0, episodes=7)
    line = Progress("r", io.StringIO(), CONFIG).line(NEW, said)
    assert "3.0 s        6,000 steps      2,000 steps/s (now 500)" in line
    assert "return    21.5 (7 episodes)" in line


def test_what_it_learns_with_is_told_and_whether_that_was_measured_here() -> None:
    tuned = settings(CONFIG)
    assert "defaults measured on CartPole-v1" in tuned and "learning rate 0.002" in tuned
    own = settings(build({"environment": {"id": "mine:Env"}, "algorithm": {"gamma": 0.5}}))
    assert "general defaults" in own and "gamma 0.5" in own
    assert own.endswith("observations and returns normalised")


def test_a_return_says_whose_it_is() -> None:
    window = {"trained": 1, "mean_return_100": 0.5, "values": {}}
    policies = {name: PolicyMetrics(episodes=n, **window) for name, n in (("a", 300), ("b", 7))}
    line = Progress("r", io.StringIO(), CONFIG).line(NEW, training(policies=policies))
    assert "return of a 0.5 (100), b 0.5 (7)" in line
    recorded = build({"environment": {"id": "CartPole-v1"}, "replay": {"run": "old"}})
    assert "recorded return    21.5" in Progress("r", io.StringIO(), recorded).line(NEW, training())


STATE = RunState("r", {}, 0.0, status="running")


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True

    def clocks(self) -> set[str]:
        return set(re.findall(r"[\d.]+ s  starting: 0 actors", ESCAPES.sub("", self.getvalue())))


def test_its_clock_goes_on_while_a_process_is_busy_with_its_first_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Screen()
    with Progress("r", screen, CONFIG) as progress:
        progress(STATE, None)  # once: an inline launcher compiles from here on
        wait_until(lambda: len(screen.clocks()) > 2, "a clock that moves", 10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_where_it_is_piped_a_long_start_is_told(clock: list[float]) -> None:
    out = io.StringIO()
    progress = Progress("r", out, CONFIG)
    progress(STATE, None)
    assert out.getvalue() == "", "a short one is not worth a line"
    for _ in range(30):
        clock[0] += 1
        progress(STATE, None)
    assert 5 < len(out.getvalue().splitlines()) < 15


def test_a_learner_that_has_not_updated_yet_is_starting() -> None:
    progress = Progress("r", io.StringIO(), CONFIG)
    metrics: Any = SimpleNamespace(updates=0)
    assert "waiting for the first update" in progress.line(STATE, metrics)


def test_figures_that_are_old_say_so(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    progress = Progress("r", out, CONFIG)
    monkeypatch.setattr(progress, "line", lambda state, metrics: "figures")
    monkeypatch.setattr(progress, "_tell_device", lambda metrics: None)
    metrics: Any = SimpleNamespace(updates=1)
    progress(STATE, metrics)
    clock[0] += OLD_S + 3
    progress(STATE, SimpleNamespace(updates=1))  # type: ignore[arg-type] said again, as it was
    assert out.getvalue().splitlines() == ["figures", "figures  (5 s ago)"]


@pytest.mark.parametrize("league", [{}, {"league": {}}])
def test_hints_for_a_run_of_a_server_name_it(league: dict[str, Any]) -> None:
    out = io.StringIO()
    result: dict[str, Any] = {
        "run": "r",
        "env_steps": 9,
        "train_s": 1.0,
        "steps_per_s": 9.0,
        "reason": "so",
    }
    result["mean_return_100"] = None
    at = " --server http://127.0.0.1:7860"
    for status in ("failed", "limited", "stopped", "finished"):
        Progress("r", out, CONFIG).summary({**result, **league, "status": status}, at)
    hints = [line.split("try:")[-1].strip() for line in out.getvalue().splitlines()]
    typed = [hint for hint in hints if hint.startswith("rookery ")]
    assert len(typed) == 5 and all(hint.endswith(at) for hint in typed)
    for hint in typed:
        assert main._parse(hint.split()[1:]).server == at.split()[1]


def test_a_bound_that_is_refused_is_told_as_it_is_typed() -> None:
    said = "it would be rejected: run r-1 is limited, so: resume it with a new bound, like steps=20"
    told = "it would be rejected: run r-1 is limited, so: resume it with a new bound: "
    assert as_typed(said) == f"{told}rookery resume r-1 --steps 20"
    far = as_typed(said, "http://127.0.0.1:7860/#token=rk_secret")
    assert far == f"{told}rookery resume r-1 --steps 20 --server http://127.0.0.1:7860"
