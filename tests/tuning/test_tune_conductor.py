"""A sweep with Ray Tune, without either: what is told to Tune, and what is done with what it says.

Tune itself, on a true cluster, is in `test_ray_tune.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.control.run_state import RunState
from rookery.errors import InputError, MissingExtra, RookeryError
from rookery.launchers.ray.settings import RaySettings
from rookery.launchers.ray.words import Pruned, Tell, Told, TrialReport
from rookery.tuning import tune_conductor
from rookery.tuning.conductor import Conductor
from rookery.tuning.trials import command_id
from rookery.tuning.tune_conductor import TuneConductor, check_tune
from tests.tuning.scripted import ScriptedSweep, scripted_sweep

TRIALS, SEEDS = 4, 2


class ScriptedTune:
    """Wants a trial whenever it has room, and notes what it is told."""

    cpus = 2

    def __init__(self, room: int = 2) -> None:
        self.life, self._room = 1, room
        self.is_there = True
        self.error = ""
        self.to_prune: list[Pruned] = []
        self.told: list[TrialReport] = []
        self.offered: list[int] = []
        self._ended: set[int] = set()

    def dies(self) -> None:
        """Another one begins, which knows nothing."""
        self.life += 1
        self.told, self.offered = [], []

    def tell(self, word: Tell) -> Told | None:
        if not self.is_there:
            return None
        self.offered += [offer.number for offer in word.offers]
        self.told += word.reports
        self._ended |= {pruned.number for pruned in self.to_prune}
        over = {report.number for report in self.told if report.over} | self._ended
        assert {report.number for report in self.told} <= set(self.offered)
        pruned, self.to_prune = self.to_prune, []
        wants = len(set(self.offered) - over) < self._room
        return Told(wants, pruned, len(over) == word.order.trials, self.error)

    @property
    def ends(self) -> dict[int, TrialReport]:
        return {report.number: report for report in self.told if report.over}


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_conductor, "TELL_S", 0.0)


def on_ray(sweep: ScriptedSweep, tune: ScriptedTune) -> ScriptedSweep:
    def make(*arguments: object) -> Conductor:
        home, spec, configs, check = arguments
        return TuneConductor(home, spec, configs, tune, check)  # type: ignore[arg-type]

    sweep.make = make
    sweep.again()
    return sweep


def test_tune_is_offered_every_trial_once_and_told_what_came_of_it(home: Path) -> None:
    tune = ScriptedTune()
    with scripted_sweep(home, trials=TRIALS, seeds=SEEDS) as sweep:
        on_ray(sweep, tune).to_its_end()
        assert len(sweep.created) == len(sweep.judgements) == TRIALS * SEEDS
        assert tune.offered == list(range(TRIALS))
        sweep.conductor.close()
        values = {trial.number: trial.value for trial in sweep.conductor.trials}
        assert {number: report.value for number, report in tune.ends.items()} == values


def test_no_trial_begins_that_tune_has_not_asked_for(home: Path) -> None:
    tune = ScriptedTune(room=1)
    with scripted_sweep(home, trials=TRIALS, jobs=2, ends=lambda state: "") as sweep:
        on_ray(sweep, tune)
        for _ in range(10):
            sweep.step()
        assert tune.offered == [0] and len(sweep.created) == 1


@pytest.mark.parametrize("every", (1, 3))
def test_whenever_tune_dies_another_is_told_everything_and_no_trial_is_doubled(
    home: Path, every: int
) -> None:
    tune = ScriptedTune()
    with scripted_sweep(home, trials=TRIALS, seeds=SEEDS) as sweep:
        on_ray(sweep, tune)
        for step in range(500):
            tune.is_there = step % 2 == 0
            if sweep.step():
                break
            if step % every == 0:
                tune.dies()
        wanted = [command_id(sweep.spec.id, n, s) for n in range(TRIALS) for s in range(SEEDS)]
        assert sorted(sweep.created) == sorted(wanted)
        assert len(sweep.judgements) == TRIALS * SEEDS
        tune.dies()
        tune.is_there = True
        sweep.again()
        assert isinstance(sweep.conductor, TuneConductor)
        sweep.conductor._talk()
        assert tune.offered == list(range(TRIALS)) and len(tune.ends) == TRIALS


def test_what_tune_ends_is_stopped_and_says_so(home: Path) -> None:
    tune = ScriptedTune()

    def ends(state: RunState) -> str:
        held = state.created_by == command_id("sweep-cartpole-abcde", 0, 0)
        return "" if held else "finished"

    with scripted_sweep(home, trials=3, ends=ends) as sweep:
        on_ray(sweep, tune)
        for _ in range(5):
            sweep.step()
        tune.to_prune.append(Pruned(0, 300, 4.0))
        sweep.to_its_end()
        assert [t.status for t in sweep.conductor.trials] == ["pruned", "done", "done"]
        commands = sweep.conductor.log.log("commands", None, -1, 1000)
        reasons = [str(message.payload) for message in commands if message.kind == "stop_run"]
        assert any("pruned by Ray Tune at 300 steps: a return of 4.0" in text for text in reasons)


def test_a_trial_that_fails_or_is_stopped_gives_its_place_away(home: Path) -> None:
    tune = ScriptedTune(room=1)
    with scripted_sweep(home, trials=3, ends=lambda state: "failed") as sweep:
        on_ray(sweep, tune).to_its_end()
        assert [t.status for t in sweep.conductor.trials] == ["failed"] * 3
        assert tune.ends[0].error == "failed"


def test_an_end_of_tune_is_one_line_that_says_how_to_go_on(home: Path) -> None:
    tune = ScriptedTune()
    tune.error = "no such resource"
    with scripted_sweep(home, trials=2) as sweep:
        on_ray(sweep, tune)
        with pytest.raises(RookeryError, match=r"no such resource; rookery sweep resume sweep-"):
            sweep.to_its_end()


def test_a_client_of_a_cluster_is_told_where_a_sweep_begins() -> None:
    with pytest.raises(InputError, match="begin the sweep on a node, or as a Ray job"):
        check_tune(RaySettings(address="ray://head:10001"))


def test_without_tune_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_conductor, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="ray-tune"):
        check_tune(RaySettings())
