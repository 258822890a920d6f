"""Carrying a run: what Ctrl-C does, whatever it interrupts, and what is told of its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import rookery
from rookery.bus import Outgoing
from rookery.cli import main
from rookery.config.reading import build
from rookery.control.carry import carry, carry_all
from rookery.control.create import create_run
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.launchers.ray.link import Link, Links


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


class Counted(Exception):
    """What a fleet would share."""


@pytest.mark.parametrize(("launcher", "cpus"), [("ray", 24), ("local", os.cpu_count())])
def test_runs_on_a_cluster_share_its_cpus_and_not_those_of_their_owner(
    home: Home, monkeypatch: pytest.MonkeyPatch, launcher: str, cpus: int
) -> None:
    def fleet(home: Home, cpus: Callable[[], int], *_: object, **__: object) -> None:
        raise Counted(cpus())

    config = build({"environment": {"id": "CartPole-v1"}, "launcher": launcher})
    run = home.create(config, describe("CartPole-v1", {}), "ann")
    monkeypatch.setattr("rookery.control.carry.Fleet", fleet)
    monkeypatch.setattr(Link, "cpus", 24)
    with closing(Links()) as links, pytest.raises(Counted) as counted:
        carry_all(home, [run], lambda fleet: None, links)
    assert counted.value.args == (cpus,)


def test_no_run_is_made_for_a_cluster_that_nobody_answers_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wait(link: Link) -> None:
        raise InputError("nobody answers there")

    monkeypatch.setattr(Link, "wait", wait)
    monkeypatch.setenv("ROOKERY_HOME", str(home.path))
    with pytest.raises(InputError, match="nobody answers there"):
        rookery.train("CartPole-v1", launcher="ray", home=home.path, quiet=True)
    typed = ("train", "CartPole-v1", "--launcher", "ray", "--seeds", "2")
    assert main.run(typed, 0.0) == 2
    assert capsys.readouterr().err == "rookery: nobody answers there\n"
    assert home.states() == {}
