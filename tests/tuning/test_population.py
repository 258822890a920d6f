"""A population without workers: who goes on, who becomes a fork of whom, whoever dies meanwhile."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.config.live import changed
from rookery.config.models import RunConfig
from rookery.config.reading import build
from rookery.control.run_state import ACTIVE, RunState
from rookery.errors import ConfigError
from rookery.messages import StopRun
from rookery.spaces import spec_from_json
from rookery.tuning.population import (
    Member,
    Move,
    changes_of,
    next_generation,
    perturbed,
)
from rookery.tuning.population_conductor import PopulationConductor, check_population
from rookery.tuning.space import Values
from rookery.tuning.spec import SweepSpec
from rookery.tuning.text import read_mapping
from rookery.tuning.trials import Attempt, Stage, command_id
from tests.tuning.scripted import ScriptedSweep, cartpole, scripted_sweep

MEMBERS, GENERATIONS, STEPS = 5, 4, 1000
RATE = "algorithm.learning_rate"
SEARCH = {RATE: "log:1e-5..1e-1", "network.hidden": [[8], [16]]}
POPULATION: dict[str, Any] = {
    "scheduler": "pbt",
    "trials": MEMBERS,
    "generations": GENERATIONS,
    "search": SEARCH,
    "jobs": None,
}


def members(sweep: ScriptedSweep) -> list[Member]:
    assert isinstance(sweep.conductor, PopulationConductor)
    return sweep.conductor.members


def shape(sweep: ScriptedSweep) -> list[Any]:
    """What came of everybody, without the names of runs, which are drawn."""
    names = {s.run: (m.number, s.generation) for m in members(sweep) for s in reversed(m.stages)}
    return [
        [(s.values, s.value, names.get(s.parent.rpartition("@")[0])) for s in m.stages]
        for m in members(sweep)
    ]


def is_whole(sweep: ScriptedSweep) -> None:
    """Everybody went through every generation and was judged once in each; forks are where their
    donors were."""
    found = members(sweep)
    assert [len(member.stages) for member in found] == [GENERATIONS] * MEMBERS
    assert len(sweep.judgements) == MEMBERS * GENERATIONS
    created = [command_id(sweep.spec.id, m.number, 0) for m in found]
    created += [
        command_id(sweep.spec.id, m.number, s.generation)
        for m in found
        for s in m.stages
        if s.parent
    ]
    assert sorted(sweep.created) == sorted(created)
    for member in found:
        for stage in member.stages:
            if stage.parent:
                version = int(stage.parent.rpartition("@")[2])
                assert version == sweep.spec.bound(STEPS, stage.generation - 1)


def test_the_worst_go_on_as_forks_of_the_best_with_other_values(home: Path) -> None:
    with scripted_sweep(home, **POPULATION) as sweep:
        sweep.to_its_end()
        is_whole(sweep)
        found = members(sweep)
        for generation in range(GENERATIONS - 1):
            ranked = sorted(found, key=lambda m: -(m.stages[generation].value or 0.0))
            best, worst = ranked[0].stages[generation], ranked[-1].stages[generation + 1]
            assert worst.parent.startswith(f"{best.run}@")
            assert worst.values["network.hidden"] == best.values["network.hidden"]
            for member in ranked[:-1]:
                before, after = member.stages[generation : generation + 2]
                assert (after.run, after.values, after.parent) == (before.run, before.values, "")
        assert any(
            stage.values[RATE] != m.stages[0].values[RATE] for m in found for stage in m.stages
        )
        assert {state.group for state in sweep.home.states().values()} == {sweep.spec.id}


def test_whenever_its_process_dies_a_population_comes_to_the_same(tmp_path: Path) -> None:
    with scripted_sweep(tmp_path / "whole", **POPULATION) as sweep:
        sweep.to_its_end()
        expected = shape(sweep)
    with scripted_sweep(tmp_path / "cut", **POPULATION) as sweep:
        for _ in range(300):  # after every step, somebody else goes on
            if sweep.step():
                break
            sweep.again()
        is_whole(sweep)
        assert shape(sweep) == expected


@pytest.mark.parametrize("jobs", [1, 2])
def test_no_more_members_train_at_a_time_than_was_said(tmp_path: Path, jobs: int) -> None:
    with scripted_sweep(tmp_path / "all", **POPULATION) as sweep:
        sweep.to_its_end()
        expected = shape(sweep)
    with scripted_sweep(tmp_path / "few", **{**POPULATION, "jobs": jobs}) as sweep:
        while not sweep.step():
            states = sweep.home.states().values()
            asked = [state for state in states if state.status in ACTIVE or state.commands]
            assert len(asked) <= jobs
        is_whole(sweep)
        assert shape(sweep) == expected


class Died(Exception):
    """In the middle of a step."""


@pytest.mark.parametrize("at", (1, 4, 6, 11, 12, 13, 17))
def test_a_death_between_any_two_messages_loses_and_doubles_nothing(home: Path, at: int) -> None:
    with scripted_sweep(home, **POPULATION) as sweep:
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
        assert sent > at + 1
        is_whole(sweep)


def test_a_member_that_fails_goes_on_as_a_fork_and_a_whole_population_that_fails_ends(
    home: Path,
) -> None:
    def ends(state: RunState) -> str:
        is_first = state.created_by == command_id("sweep-cartpole-abcde", 1, 0)
        return "failed" if is_first else "finished"

    with scripted_sweep(home / "one", ends=ends, **POPULATION) as sweep:
        sweep.to_its_end()
        first, second, *_ = members(sweep)[1].stages
        assert first.value is None and second.parent and second.value is not None
        assert all(trial.status == "done" for trial in sweep.conductor.trials)
    with scripted_sweep(home / "all", ends=lambda state: "failed", **POPULATION) as sweep:
        sweep.to_its_end()
        assert [trial.status for trial in sweep.conductor.trials] == ["failed"] * MEMBERS
        assert len(sweep.created) == MEMBERS


def test_a_member_that_somebody_stops_holds_the_population_until_it_is_resumed(home: Path) -> None:
    def ends(state: RunState) -> str:
        held = state.created_by == command_id("sweep-cartpole-abcde", 2, 0) and not released
        return "" if held else "finished"

    released: list[bool] = []
    with scripted_sweep(home, ends=ends, **POPULATION) as sweep:
        sweep.step()
        run = next(m.attempt.run for m in members(sweep) if m.number == 2)
        sweep.home.send(StopRun(run=run, author="bob"))
        sweep.to_its_end()
        assert {len(member.stages) for member in members(sweep)} == {1}
        assert sweep.result.status == "stopped"
        released.append(True)
        sweep.again()
        sweep.to_its_end()
        is_whole(sweep)


def test_the_schedule_of_the_winner_is_a_config_that_can_be_trained(home: Path) -> None:
    with scripted_sweep(home, **POPULATION) as sweep:
        sweep.to_its_end()
        best = sweep.result.best
        stages = best.trial.stages
        assert [stage.generation for stage in stages] == list(range(GENERATIONS))
        assert best.config.parent.run == "" and best.config.stop.steps == STEPS
        assert build(best.config.model_dump(mode="json")) == best.config
        for stage in stages:
            ends = sweep.spec.bound(STEPS, stage.generation)
            assert rate_at(best.config, ends - 1) == pytest.approx(stage.values[RATE])
        row = sweep.result.table()[0]
        assert [each["generation"] for each in row["stages"]] == list(range(GENERATIONS))


def test_whoever_wins_its_config_has_the_seed_of_the_run_that_its_line_began_with(
    home: Path,
) -> None:
    with scripted_sweep(home, **POPULATION) as sweep:
        sweep.to_its_end()
        trials = sweep.conductor.trials
        assert any(trial.stages[0].member != trial.number for trial in trials)
        for trial in trials:
            best = sweep.result.best_of([trial])
            began = sweep.home.config(sweep.home.state(trial.stages[0].run))
            assert best is not None and best.config.seed == began.seed


def test_a_population_may_begin_with_a_version_of_another_run(home: Path) -> None:
    """Its forks are of its own members, wherever those are."""
    parent = {"run": "first", "version": 3}
    with scripted_sweep(home, base={"parent": parent}, **POPULATION) as sweep:
        sweep.home.create(sweep.configs.plain, spec_from_json(cartpole()), "ann", "first")
        sweep.to_its_end()
        states = sweep.home.states()
        for member in members(sweep):
            first, *later = member.stages
            began = states[first.run].config["config"]
            assert (began["parent"], first.parent) == (parent, "")
            for stage in (stage for stage in later if stage.parent):
                run, _, version = stage.parent.rpartition("@")
                assert run != "first"
                assert int(version) == sweep.spec.bound(STEPS, stage.generation - 1)
        assert any(stage.parent for member in members(sweep) for stage in member.stages)


def rate_at(config: RunConfig, steps: int) -> float:
    return changed(config, steps, {}).get(RATE, config.algorithm.learning_rate)


def test_what_changes_along_a_line_is_a_schedule() -> None:
    values: list[Values] = [{RATE: rate, "network.hidden": [8]} for rate in (1.0, 1.0, 2.0, 3.0)]
    stages = [Stage(0, g, "r", "", v, 0.0) for g, v in enumerate(values)]
    assert changes_of(spec(burn_in=0.2), stages, [RATE], STEPS) == [
        {"steps": 600, "set": {RATE: 2.0}},
        {"steps": 800, "set": {RATE: 3.0}},
    ]


def test_nobody_is_compared_before_the_burn_in_is_over() -> None:
    asked = spec(burn_in=0.4, generations=3)
    assert [asked.bound(STEPS, generation) for generation in range(3)] == [600, 800, 1000]
    assert spec(burn_in=0.0, generations=2).bound(STEPS, 0) == 500


def spec(trials: int = MEMBERS, **settings: Any) -> SweepSpec:
    made = {**POPULATION, "trials": trials, **settings}
    return SweepSpec(id="sweep-a-bcdef", author="ann", created_s=0.0, base={}, **made)


def made(number: int, value: float | None) -> Member:
    status = "done" if value is not None else "failed"
    run = f"run-{number}"
    stage = Stage(number, 0, run, "", {RATE: 1e-3, "network.hidden": [8]}, value)
    return Member(number, (stage,), status, Attempt(number, 0, status, run))


@given(st.lists(st.none() | st.floats(-10, 10), min_size=2, max_size=20), st.integers(0, 99))
def test_in_any_population_the_best_go_on_and_forks_are_of_the_best(
    values: list[float | None], seed: int
) -> None:
    population = [made(number, value) for number, value in enumerate(values)]
    moves = next_generation(spec(len(values)), population, [RATE], seed)
    if all(value is None for value in values):
        assert moves == []
        return
    share = max(1, len(values) // 4)
    ranked = sorted(population, key=lambda m: (-m.value, m.number))
    best = {member.number for member in ranked[:share]}
    assert sorted(move.number for move in moves) == list(range(len(values)))
    forks = [move for move in moves if move.donor is not None]
    assert moves[: len(forks)] == forks, "a donor that goes on is no longer where it was judged"
    for move in forks:
        assert move.donor is not None and move.donor.number in best
        assert move.number not in best and move.donor.value > population[move.number].value
    failed = {number for number, value in enumerate(values) if value is None}
    assert failed <= {move.number for move in forks}
    assert moves == next_generation(spec(len(values)), population, [RATE], seed)


def test_nobody_moves_while_one_still_trains() -> None:
    going = made(1, None)
    going = Member(1, going.stages, "going", going.attempt)
    assert next_generation(spec(2), [made(0, 1.0), going], [RATE], 0) == []
    assert next_generation(spec(3), [made(0, 1.0), made(1, 2.0)], [RATE], 0) == []
    assert next_generation(spec(2, generations=2), [made(0, 1.0), made(1, 2.0)], [RATE], 0) == [
        Move(0, 1, made(1, 2.0), perturbed_as(0)),
        Move(1, 1),
    ]


def perturbed_as(number: int) -> Values:
    rng = np.random.default_rng([0, 1, number])
    rng.integers(1)  # which donor
    return perturbed(read_mapping(SEARCH), made(1, 2.0).stages[0].values, [RATE], rng)


@given(st.floats(1e-5, 1e-1), st.integers(0, 2**32))
def test_a_value_moves_within_its_range_and_others_stay(rate: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = perturbed(read_mapping(SEARCH), {RATE: rate, "network.hidden": [8]}, [RATE], rng)
    assert found["network.hidden"] == [8]
    assert 1e-5 <= found[RATE] <= 1e-1 and math.isfinite(found[RATE])
    assert found[RATE] != rate or rate in (1e-5, 1e-1)


@pytest.mark.parametrize(
    ("settings", "config", "line"),
    [
        ({"seeds": 2}, {}, "leave out --seeds"),
        ({"trials": 1}, {}, "2 or more"),
        ({}, {"stop": {"until_return": 1.0}}, "set --steps alone"),
        ({"search": {"network.hidden": [[8], [16]]}}, {}, "search one of algorithm.learning_rate"),
        ({}, {"stop": {"steps": 2000}}, "shorter than a batch"),
    ],
)
def test_what_no_population_can_be_made_of_is_one_line(
    settings: dict[str, Any], config: dict[str, Any], line: str
) -> None:
    asked = spec(**{"trials": MEMBERS, **settings})
    steps = {"stop": {"steps": 10**6}}
    built = build({"environment": {"id": "CartPole-v1"}}, steps, config)
    with pytest.raises(ConfigError, match=line) as caught:
        check_population(asked, asked.space, built)
    assert "\n" not in str(caught.value)
