"""The lines that tell how a run goes on."""

from __future__ import annotations

import io

from rookery.cli.progress import Progress
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


def test_a_return_says_whose_it_is() -> None:
    window = {"trained": 1, "mean_return_100": 0.5, "values": {}}
    policies = {name: PolicyMetrics(episodes=n, **window) for name, n in (("a", 300), ("b", 7))}
    line = Progress("r", io.StringIO(), CONFIG).line(NEW, training(policies=policies))
    assert "return of a 0.5 (100), b 0.5 (7)" in line
    recorded = build({"environment": {"id": "CartPole-v1"}, "replay": {"run": "old"}})
    assert "recorded return    21.5" in Progress("r", io.StringIO(), recorded).line(NEW, training())
