"""Carrying a run: what Ctrl-C does, whatever it interrupts, and what is told of its end."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from rookery.bus import Outgoing
from rookery.config.reading import build
from rookery.control.carry import carry
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.control.run_state import RunState


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_ctrl_c_in_the_middle_of_a_write_to_the_log_stops_the_run(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler runs inside whatever it interrupts, so it must not want the log itself."""
    config = build(
        {"environment": {"id": "CartPole-v1"}, "launcher": "inline", "stop": {"minutes": 0.5}}
    )
    run = create_run(home, config)
    publish = home.control.publish
    pressed, writing, again = False, False, False

    def interrupted(messages: Sequence[Outgoing]) -> list[int]:
        nonlocal pressed, writing, again
        again, writing = again or writing, True
        if not pressed:
            pressed = True
            signal.raise_signal(signal.SIGINT)
        offsets = publish(messages)
        writing = False
        return offsets

    def begin(state: object, metrics: object, trouble: str | None) -> None:
        if home.control.publish == publish:  # the run goes on: the next write is interrupted
            monkeypatch.setattr(home.control, "publish", interrupted)

    state = carry(home, run, begin)
    assert not again, "the handler wrote to the log while the log was being written"
    assert state is not None and state.status == "stopped" and state.reason == "asked to stop"


def test_how_it_ended_is_handed_on_as_well(home: Home) -> None:
    config = build(
        {
            "environment": {"id": "rookery.testing.envs:FailingEnv", "kwargs": {"at": 4}},
            "launcher": "inline",
            "restarts": {"max_restarts": 0},
        }
    )
    seen: list[RunState] = []
    state = carry(home, create_run(home, config), lambda now, metrics, trouble: seen.append(now))
    assert state is not None and state.status == "failed"
    assert seen[-1] == state
