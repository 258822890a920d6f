"""`rookery sweep`: bad input is one line before anything runs; what there is can be looked at."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rookery.cli.main import _parse, run
from rookery.config.reading import build, load_yaml
from rookery.control.home import Home
from rookery.tuning.spec import SweepFiles
from tests.tuning.scripted import scripted_sweep

CARTPOLE = ("sweep", "CartPole-v1", "--steps", "1000")
GAMMA = ("--search", "algorithm.gamma=0.9..0.99")


class Typed:
    """The command line in this process: a new one for each line would cost a second."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str, expect: int = 0) -> str:
        code = run(argv, 0.0)
        said = self._capsys.readouterr()
        assert code == expect, said
        return said.out

    def refused(self, *argv: str) -> str:
        code = run(argv, 0.0)
        said = self._capsys.readouterr()
        assert (code, said.out) == (2, ""), said
        (line,) = said.err.splitlines()
        assert line.startswith("rookery: ")
        return line


@pytest.fixture
def typed(home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    monkeypatch.setenv("ROOKERY_HOME", str(home))
    return Typed(capsys)


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "nothing to search": (CARTPOLE, "--search algorithm.learning_rate=log:"),
    "no environment": (("sweep", *GAMMA), "name one, like CartPole-v1"),
    "unknown environment": (("sweep", "CartPol-v1", *GAMMA), "CartPole-v1"),
    "unknown key": ((*CARTPOLE, "--search", "algorithm.gama=0.9..0.99"), "algorithm.gamma"),
    "upside down": ((*CARTPOLE, "--search", "algorithm.gamma=0.99..0.9"), "upside down"),
    "outside its limits": ((*CARTPOLE, "--search", "algorithm.gamma=0.9..2"), "algorithm.gamma"),
    "wrong type": ((*CARTPOLE, "--search", "network.hidden=a|b"), "network.hidden"),
    "not whole": ((*CARTPOLE, "--search", "algorithm.epochs=1..4"), "write int:1..4"),
    "one value": ((*CARTPOLE, "--search", "algorithm.gamma=0.9"), "leaves nothing to search"),
    "no values": ((*CARTPOLE, "--search", "algorithm.gamma"), "KEY=VALUES"),
    "no trials": ((*CARTPOLE, *GAMMA, "--trials", "0"), "--trials"),
    "unknown sampler": ((*CARTPOLE, *GAMMA, "--sampler", "tpee"), "did you mean tpe"),
    "unknown scheduler": ((*CARTPOLE, *GAMMA, "--scheduler", "hyperband"), "asha"),
    "pruning without an end": (
        ("sweep", "CartPole-v1", *GAMMA, "--minutes", "1", "--scheduler", "median"),
        "--steps",
    ),
    "no room": ((*CARTPOLE, *GAMMA, "--actors", "60"), "no room for a single trial"),
    "no room on a cluster here": (
        (*CARTPOLE, *GAMMA, "--actors", "60", "--launcher", "ray"),
        "no room for a single trial",
    ),
    "as many as there is room for": (
        (*CARTPOLE, *GAMMA, "--actors", "auto"),
        "give --actors a number",
    ),
    "no room in the space": (
        (*CARTPOLE, "--search", "actors.count=int:1..60"),
        "no room for a single trial",
    ),
    "unknown option": ((*CARTPOLE, *GAMMA, "--trails", "3"), "--trials"),
    "no such sweep": (("sweep", "show", "nope"), "rookery sweep list"),
    "nothing to resume": (("sweep", "resume", "last"), "rookery sweep list"),
    "nothing to stop": (("sweep", "stop", "last"), "rookery sweep list"),
    "missing file": (("sweep", "--config", "missing.yaml"), "missing.yaml"),
}


@pytest.mark.parametrize(("argv", "says"), REFUSED.values(), ids=REFUSED)
def test_is_refused_in_one_line(typed: Typed, home: Path, argv: tuple[str, ...], says: str) -> None:
    assert says in typed.refused(*argv)
    assert Home(home).states() == {} and SweepFiles(Home(home)).all() == []


@pytest.mark.parametrize(
    ("sweep", "says"),
    [
        ("5", "not a mapping"),
        ("{}", "nothing to search"),
        ("{serch: {algorithm.gamma: 0.9..0.99}}", "did you mean search"),
        ("{search: {algorithm.gamma: 0.9..0.99}, trials: -1}", "sweep.trials"),
        ("{search: {algorithm.gama: 0.9..0.99}}", "algorithm.gamma"),
        ("{search: {algorithm.clip if algorithm.kind=ppo: 0.1..0.3}}", "not searched"),
        ("{search: [1, 2]}", "sweep.search"),
    ],
)
def test_a_file_is_refused_in_one_line(typed: Typed, tmp_path: Path, sweep: str, says: str) -> None:
    file = tmp_path / "sweep.yaml"
    file.write_text(f"environment: {{id: CartPole-v1}}\nsweep: {sweep}\n")
    assert says in typed.refused("sweep", "--config", str(file))


def test_options_go_over_the_file(tmp_path: Path) -> None:
    from rookery.cli.sweep import _asked

    file = tmp_path / "sweep.yaml"
    file.write_text(
        "environment: {id: CartPole-v1}\nstop: {steps: 500}\n"
        "sweep: {search: {algorithm.gamma: 0.9..0.99}, trials: 7, seeds: 3}\n"
    )
    argv = ["sweep", "--config", str(file), "--trials", "9", "--steps", "800", "--seed", "4"]
    base, settings = _asked(_parse(argv))
    assert (settings.trials, settings.seeds) == (9, 3)
    assert base["stop"] == {"steps": 800} and base["seed"] == 4 and "sweep" not in base


def test_what_there_is_is_shown(typed: Typed, home: Path, tmp_path: Path) -> None:
    assert "no sweeps yet" in typed("sweep", "list")
    with scripted_sweep(home, trials=5, seeds=2) as sweep:
        sweep.to_its_end()
        best = sweep.result.best
    listed = typed("sweep", "list")
    assert "sweep-cartpole-abcde" in listed and "5/5" in listed and "finished" in listed
    shown = typed("sweep", "show", "last", "--best", str(tmp_path / "best.yaml"))
    assert f"best: trial {best.trial.number} with" in shown and "rookery train --config" in shown
    assert build(load_yaml(tmp_path / "best.yaml")) == best.config
    assert "has finished" in typed.refused("sweep", "resume", "last")
    assert "has finished" in typed.refused("sweep", "stop", "last")


def test_without_optuna_the_extra_is_named(
    typed: Typed, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "rookery[tune]" in typed.refused(*CARTPOLE, *GAMMA)
    assert SweepFiles(Home(home)).all() == []
