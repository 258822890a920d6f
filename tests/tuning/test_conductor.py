"""A sweep without workers: what is asked for, once each, whoever dies in between."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from rookery.config.reading import build
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.errors import ConfigError, InputError
from rookery.messages import CommandAccepted, StartRun, StopRun
from rookery.tuning.spec import SweepFiles, read_settings
from rookery.tuning.sweep import Sweep, begin, find
from rookery.tuning.trials import command_id
from tests.control.test_fork import trained
from tests.tuning.scripted import ScriptedSweep, scripted_sweep

TRIALS, SEEDS = 5, 2


def is_whole(sweep: ScriptedSweep) -> None:
    """No trial is lost or doubled, and each run was judged once."""
    wanted = [command_id(sweep.spec.id, n, s) for n in range(TRIALS) for s in range(SEEDS)]
    assert sorted(sweep.created) == sorted(wanted)
    assert len(sweep.judgements) == len(set(sweep.judgements)) == TRIALS * SEEDS


def test_a_sweep_tries_every_trial_with_every_seed_and_judges_each_run_once(home: Path) -> None:
    with scripted_sweep(home, trials=TRIALS, seeds=SEEDS) as sweep:
        sweep.to_its_end()
        is_whole(sweep)
        trials = sweep.conductor.trials
        assert [trial.status for trial in trials] == ["done"] * TRIALS
        for trial in trials:
            rate = trial.values["algorithm.learning_rate"]
            expected = -abs(rate - 1e-3) * 1e3 + 0.001 * 0.5  # the mean over seeds 0 and 1
            assert trial.value == pytest.approx(expected)
        for state in home_states(sweep):
            assert state.group == sweep.spec.id


def home_states(sweep: ScriptedSweep) -> list[RunState]:
    return list(sweep.home.states().values())


def test_whenever_its_process_dies_the_sweep_comes_to_the_same(tmp_path: Path) -> None:
    with scripted_sweep(tmp_path / "whole", trials=TRIALS, seeds=SEEDS, jobs=1) as sweep:
        sweep.to_its_end()
        expected = [(trial.values, trial.value) for trial in sweep.conductor.trials]
    with scripted_sweep(tmp_path / "cut", trials=TRIALS, seeds=SEEDS, jobs=1) as sweep:
        for _ in range(200):  # after every step, somebody else goes on
            if sweep.step():
                break
            sweep.again()
        is_whole(sweep)
        assert [(trial.values, trial.value) for trial in sweep.conductor.trials] == expected


class Died(Exception):
    """In the middle of a step."""


@pytest.mark.parametrize("at", (1, 2, 9, 16, 23))
def test_a_death_between_any_two_messages_loses_and_doubles_nothing(home: Path, at: int) -> None:
    with scripted_sweep(home, trials=TRIALS, seeds=SEEDS) as sweep:
        send, sent = sweep.home.send, 0

        def dies(*commands: Any) -> None:
            nonlocal sent
            sent += 1
            if sent == at:
                raise Died  # before it is in the log
            send(*commands)
            if sent == at + 1:
                raise Died  # after it is

        sweep.home.send = dies  # type: ignore[method-assign]
        for _ in range(400):
            with contextlib.suppress(Died):
                if sweep.step():
                    break
                continue
            sweep.again()
        is_whole(sweep)


def test_no_more_runs_go_on_at_a_time_than_were_asked_for(home: Path) -> None:
    with scripted_sweep(home, trials=TRIALS, jobs=3, ends=lambda state: "") as sweep:
        for _ in range(5):
            sweep.step()
        assert len(sweep.created) == 3


def test_a_run_that_fails_is_its_trials_end_and_nobody_elses(home: Path) -> None:
    def ends(state: RunState) -> str:
        return "failed" if state.created_by == command_id("sweep-cartpole-abcde", 1, 0) else "ok"

    with scripted_sweep(
        home, trials=4, seeds=2, jobs=1, ends=lambda s: ends(s).replace("ok", "finished")
    ) as sweep:
        sweep.to_its_end()
        trials = sweep.conductor.trials
        assert [trial.status for trial in trials] == ["done", "failed", "done", "done"]
        assert trials[1].value is None and trials[1].why == "failed"
        assert trials[1].attempts[1].run == ""  # its other seed was not begun


def test_a_stopped_run_waits_until_the_sweep_is_resumed(home: Path) -> None:
    def ends(state: RunState) -> str:
        held = state.created_by == command_id("sweep-cartpole-abcde", 0, 0) and not released
        return "" if held else "finished"

    released: list[bool] = []
    with scripted_sweep(home, trials=3, ends=ends) as sweep:
        sweep.step()
        run = next(a.run for t in sweep.conductor.trials for a in t.attempts if t.number == 0)
        sweep.home.send(StopRun(run=run, author="bob"))
        sweep.to_its_end()
        assert [t.status for t in sweep.conductor.trials] == ["stopped", "done", "done"]
        assert sweep.result.status == "stopped"
        released.append(True)
        sweep.again()
        sweep.to_its_end()
        assert [t.status for t in sweep.conductor.trials] == ["done"] * 3
        assert sweep.result.status == "finished" and len(sweep.created) == 3


def test_stopping_stops_what_goes_on_and_another_goes_on_with_it(home: Path) -> None:
    with scripted_sweep(home, trials=3, ends=lambda s: "finished" if released else "") as sweep:
        released: list[bool] = []
        for _ in range(3):
            sweep.step()
        for _ in range(100):
            if sweep.conductor.stop():
                break
            sweep.owner.step()
        states = home_states(sweep)
        assert [state.status for state in states] == ["stopped", "stopped"]
        released.append(True)
        sweep.again()
        sweep.to_its_end()
        assert [t.status for t in sweep.conductor.trials] == ["done"] * 3


def test_a_deleted_run_is_a_failed_trial_that_is_not_begun_again(home: Path) -> None:
    from rookery.messages import DeleteRun

    with scripted_sweep(home, trials=2, jobs=1, ends=lambda state: "") as sweep:
        sweep.step()
        (run,) = sweep.home.states()
        sweep.home.send(StopRun(run=run, author="bob"), DeleteRun(run=run, author="bob"))
        sweep.owner._ends = lambda state: "finished"
        sweep.to_its_end()
        first, second = sweep.conductor.trials
        assert (first.status, first.why) == ("failed", "its run was deleted")
        assert second.status == "done"


def test_corners_of_the_space_that_are_no_config_are_left_out(home: Path) -> None:
    search = {
        "algorithm.schedule": ["constant", "linear"],
        "algorithm.minibatch_size": [32, 2048],
        "actors.rollout_steps": [8, 64],
    }
    with scripted_sweep(home, search, lambda config: 0.0, trials=6) as sweep:
        sweep.to_its_end()
        values = [trial.values for trial in sweep.conductor.trials]
        assert len(values) == 6
        too_large = {"algorithm.minibatch_size": 2048, "actors.rollout_steps": 8}
        assert not any(too_large.items() <= found.items() for found in values)


def test_a_space_without_a_valid_config_says_so(home: Path) -> None:
    search = {"algorithm.gamma": "0.9..0.99"}
    with scripted_sweep(home, search) as sweep:

        def never(*_: Any) -> Any:
            raise ConfigError("gamma is out of fashion")

        sweep.configs.build = never  # type: ignore[method-assign]
        with pytest.raises(ConfigError, match=r"100 proposals .* out of fashion"):
            sweep.step()


def test_what_no_run_can_be_made_of_is_left_out(home: Path) -> None:
    search = {"network.hidden": [[8], [8192]], "algorithm.gamma": "0.9..0.99"}
    with scripted_sweep(home, search, lambda config: 0.0, trials=6) as sweep:
        sweep.can_be_made = lambda config: config["network"]["hidden"] == [8]
        sweep.to_its_end()
        assert [t.values["network.hidden"] for t in sweep.conductor.trials] == [[8]] * 6
        assert len(sweep.created) == 6
    with scripted_sweep(home / "b", search, trials=2) as sweep:
        sweep.can_be_made = lambda config: False
        with pytest.raises(ConfigError, match="no run can be made: this machine is too small"):
            sweep.step()


def test_stopping_a_sweep_that_nobody_carries_stops_its_runs_for_good(home: Path) -> None:
    with scripted_sweep(home, trials=3, ends=lambda state: "") as sweep:
        for _ in range(3):
            sweep.step()
        sweep.result.stop()
        assert [state.desired for state in home_states(sweep)] == ["stopped"] * 2
        assert not any(state.commands for state in home_states(sweep))
        assert sweep.result.status == "stopped"
        sweep.owner._ends = lambda state: "finished"
        sweep.again()
        sweep.to_its_end()
        assert sweep.result.status == "finished"


def test_what_was_found_is_told_and_can_be_trained(home: Path, tmp_path: Path) -> None:
    search = {
        "algorithm.learning_rate": "log:1e-5..1e-1",
        "network.hidden": [[32], [64, 64]],
        "algorithm.gamma": "0.9..0.99",
    }
    with scripted_sweep(home, search, trials=12) as sweep:
        sweep.to_its_end()
        found = find(sweep.home, "last")
        table = found.table()
        values = [row["value"] for row in table]
        assert values == sorted(values, reverse=True) and len(values) == 12
        assert found.best.value == values[0]
        assert found.best.trial.values == table[0]["values"]
        rates = found.best.config.algorithm.learning_rate
        assert rates == table[0]["values"]["algorithm.learning_rate"]
        trained = build(yaml.safe_load(found.best_yaml()))
        assert trained == found.best.config and trained.seed == 0
        shares = found.importance()
        assert max(shares, key=shares.__getitem__) == "algorithm.learning_rate"
        assert sum(shares.values()) == pytest.approx(1.0)
        found.plot(tmp_path / "sweep.png")
        assert (tmp_path / "sweep.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        shown = found.show()
        assert shown["best"]["trial"] == found.best.trial.number
        assert shown["status"] == "finished" and shown["search"]["network.hidden"]


def test_a_sweep_without_a_result_says_so(home: Path) -> None:
    with scripted_sweep(home, trials=2) as sweep:
        assert sweep.result.status == "interrupted" and sweep.result.table() == []
        with pytest.raises(InputError, match="no trial that is done"):
            _ = sweep.result.best
        with pytest.raises(InputError, match="no trial to draw"):
            sweep.result.plot(home / "no.png")


def test_one_process_carries_a_sweep_at_a_time(home: Path) -> None:
    with scripted_sweep(home, trials=2) as sweep:
        files = SweepFiles(sweep.home)
        with files.carrying(sweep.spec.id):
            assert sweep.result.status == "running"
            with pytest.raises(InputError, match="goes on in another process"):
                Sweep(sweep.home, sweep.spec).carry()
        assert sweep.result.status == "interrupted"


def test_a_sweep_is_found_by_what_people_type(home: Path) -> None:
    with scripted_sweep(home, trials=2) as sweep:
        for name in ("last", "sweep-cart", "sweep-cartpole-abcde", "cartpole-abcde"):
            assert find(sweep.home, name).id == sweep.spec.id
        with pytest.raises(InputError, match="did you mean sweep-cartpole-abcde"):
            find(sweep.home, "sweep-catpole-abcde")
        for name in ("../x", "nope"):
            with pytest.raises(InputError, match="unknown sweep"):
                find(sweep.home, name)


def test_a_file_that_is_damaged_or_newer_is_one_line(home: Path) -> None:
    with scripted_sweep(home, trials=2) as sweep:
        file = home / "sweeps" / f"{sweep.spec.id}.json"
        whole = file.read_text()
        newer = whole.replace('"version": 1', '"version": 99')
        assert newer != whole
        for text in ("{", newer, whole.replace('"trials"', '"trails"'), "[]"):
            file.write_text(text)
            with pytest.raises(InputError, match="cannot read the sweep") as caught:
                find(sweep.home, "last")
            assert "\n" not in str(caught.value)
        files, other = SweepFiles(sweep.home), sweep.spec.model_copy(update={"id": "sweep-other"})
        files.write(other)
        assert files.all() == [other] and find(sweep.home, "last").id == other.id
        assert [str(error) for error in files.damaged] == [str(caught.value)]
        with pytest.raises(InputError, match="cannot read the sweep"):
            find(sweep.home, sweep.spec.id)


def test_all_trials_begin_with_the_checkpoint_that_was_meant_when_the_sweep_began(
    home: Path,
) -> None:
    place = Home(home)
    config = {"environment": {"id": "CartPole-v1"}, "launcher": "inline"}
    parent = trained(place, build(config, {"stop": {"steps": 500}}))
    settings = read_settings({"search": {"algorithm.gamma": "0.9..0.99"}, "trials": 2})
    asked = {**config, "stop": {"steps": 10_000}, "parent": {"run": "last"}}
    found = begin(place, asked, settings).spec.base["parent"]
    assert found == {"run": parent, "version": place.state(parent).updates}
    start = StartRun(run=parent, author="ann")
    place.send(start)
    place.record(CommandAccepted(run=parent, command=start.id))
    with pytest.raises(InputError, match=f"run {parent} still trains"):
        begin(place, asked, settings)
    with pytest.raises(InputError, match="nobody"):
        begin(place, {**asked, "parent": {"run": "nobody"}}, settings)
