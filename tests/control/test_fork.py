"""A fork is its parent's checkpoint in a run of its own: nothing is lost, doubled or shared."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from rookery.algorithms.policies import ORDER
from rookery.checkpoints.store import open_store
from rookery.config.parent import parent_named, with_parent
from rookery.config.reading import build, self_play
from rookery.control.balance import balance
from rookery.control.context import open_context
from rookery.control.create import checked_here, create_run, send_new
from rookery.control.details import config_now
from rookery.control.home import Home
from rookery.errors import ConfigError, InputError, RookeryError, UnknownName
from rookery.launchers.inline import take_turns
from rookery.learner.manifest import LearnerManifest
from rookery.messages import new_id
from rookery.worker import WorkerId
from tests.launchers.test_resume_equals_uninterrupted import (
    STOPPED,
    assert_same,
    play_turns,
    training_state,
)

if TYPE_CHECKING:
    from pathlib import Path

    from rookery.checkpoints.checkpoint import Checkpoint

STEPS, TWICE = 640, 1280
ACTORS = {"envs_per_actor": 4, "rollout_steps": 16}
SMALL: dict[str, Any] = {
    "environment": {"id": "CartPole-v1"},
    "launcher": "inline",
    "seed": 7,
    "actors": ACTORS,
    "algorithm": {"schedule": "linear", "minibatch_size": 32},
    "checkpoint": {"every_updates": 4, "keep": 3},
    "stop": {"steps": STEPS},
}
LEAGUE = {
    **{"snapshot_every_steps": 200, "rating_every": 3},
    **{"games_per_draw": 8, "rating_slots": 4},
}


def newest(home: Home, run: str) -> Checkpoint[LearnerManifest]:
    from rookery.checkpoints.checkpoint import newest_checkpoint

    found = newest_checkpoint(open_store(home.files(run).checkpoints), LearnerManifest)
    assert found is not None
    return found


def trained(home: Home, config: Any) -> str:
    """A run that has come to its end."""
    run = create_run(home, config)
    assert play_turns(home, run, 1, 10**9, STOPPED)
    return run


def forked(home: Home, parent: str, **changes: Any) -> Any:
    """The config of a fork, as every door builds it."""
    state = home.state(home.find(parent_named(parent)["run"]))
    asked = {"parent": parent_named(parent), "stop": {"steps": TWICE}, **changes}
    return build(with_parent(asked, lambda name: config_now(state, home.config(state))))


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp("home")
    return path, trained(Home(path), build(SMALL))


@pytest.fixture
def home(parent: tuple[Path, str]) -> Home:
    return Home(parent[0])


@pytest.fixture
def run(parent: tuple[Path, str]) -> str:
    return parent[1]


def test_a_fork_begins_with_all_that_its_parent_had(home: Home, run: str) -> None:
    fork = create_run(home, forked(home, run))
    ours, theirs = newest(home, fork), newest(home, run)
    assert training_state(ours).keys() == training_state(theirs).keys()
    assert all(a.tobytes() == theirs.arrays[n].tobytes() for n, a in ours.arrays.items())
    assert ours.manifest.run == fork
    state = home.state(fork)
    trained_before = theirs.manifest.ledger.trained
    assert trained_before >= STEPS
    assert (state.env_steps, state.updates) == (trained_before, theirs.manifest.number)
    assert home.config(state).parent.version == theirs.manifest.number


def test_training_on_from_a_fork_equals_having_gone_on(tmp_path: Path) -> None:
    """It needs nothing of its parent any more. Resuming equals that, too
    (`tests/launchers/test_resume_equals_uninterrupted`)."""
    home = Home(tmp_path)
    steady = {**SMALL, "algorithm": {"schedule": "constant", "minibatch_size": 32}}
    parent = trained(home, build(steady))
    fork = create_run(home, forked(home, parent))
    shutil.rmtree(home.run_dir(parent))
    assert play_turns(home, fork, 1, 10**9, STOPPED)
    whole = trained(home, build(steady, {"stop": {"steps": TWICE}}))
    assert_same(newest(home, fork), newest(home, whole))


def test_every_step_of_a_fork_is_accounted_for(home: Home, run: str) -> None:
    fork = trained(home, forked(home, run, seed=3))
    manifest = newest(home, fork).manifest
    bus = home.read_run_bus(home.state(fork))
    found = balance(bus, manifest.ledger.summary(manifest.pending_steps or 0, manifest.position))
    assert found.exact
    assert found.trained == manifest.ledger.trained >= TWICE
    assert found.produced >= found.trained


@pytest.mark.soak
def test_a_fork_in_a_league_needs_nothing_of_its_parent(tmp_path: Path) -> None:
    home = Home(tmp_path)
    league = build(
        {**SMALL, "environment": {"id": "pgx:tic_tac_toe"}, "league": LEAGUE, **self_play()}
    )
    run = trained(home, league)
    fork = create_run(home, forked(home, run))
    shutil.rmtree(home.run_dir(run))
    assert play_turns(home, fork, 1, 10**9, STOPPED)
    before, after = home.files(fork).snapshots, newest(home, fork).manifest
    assert after.league is not None
    numbers = [each.number for each in after.league.league.snapshots]
    assert min(numbers) == 0 and max(numbers) > STEPS // 64
    assert {each.file for each in after.league.league.snapshots} <= set(open_store(before).names())


def test_a_fork_may_have_other_batches(home: Home, run: str) -> None:
    changes = {"actors": {"envs_per_actor": 8}, "algorithm": {"minibatch_size": 64}}
    fork = trained(home, forked(home, run, **changes))
    assert newest(home, fork).manifest.ledger.trained >= TWICE


@pytest.mark.timeout(60)
@pytest.mark.parametrize("fragments", [1, 2, 3])
def test_a_fork_may_have_batches_of_fewer_or_more_fragments(home: Home, fragments: int) -> None:
    """What its parent had played for batches that the fork has not is played anew."""
    run = trained(home, build(SMALL, {"learner": {"fragments_per_batch": 2}}))
    fork = create_run(home, forked(home, run, learner={"fragments_per_batch": fragments}))
    assert play_turns(home, fork, 1, 2_000, STOPPED)
    manifest = newest(home, fork).manifest
    bus = home.read_run_bus(home.state(fork))
    found = balance(bus, manifest.ledger.summary(manifest.pending_steps or 0, manifest.position))
    assert found.exact and found.trained >= TWICE


@pytest.mark.timeout(60)
def test_a_fork_of_a_run_that_was_scaled_has_the_batches_of_its_own_config(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its parent's config says is not what its parent trained with last."""
    run = trained(home, build(SMALL, {"learner": {"fragments_per_batch": 2}}))
    files = replace(home.files(run), config=build(SMALL))
    with monkeypatch.context() as patch:
        patch.setattr(home, "files_of", lambda state: files)
        config = build(SMALL, {"parent": {"run": run}, "stop": {"steps": TWICE}})
        fork = create_run(home, config)
    assert play_turns(home, fork, 1, 2_000, STOPPED)
    ours, theirs = newest(home, fork).arrays, newest(home, run).arrays
    assert 2 * ours[f"main/{ORDER}"].size == theirs[f"main/{ORDER}"].size


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"network": {"hidden": [64, 32]}}, "layer main/params/p"),
        ({"network": {"hidden": [64, 64, 64]}}, "layer main/params/p"),
        ({"environment": {"id": "Acrobot-v1"}}, "layer main/params/p"),
        ({"stop": {"steps": STEPS}}, "stop.steps=640 counts them"),
        ({"parent": {"run": "nobody"}}, "parent.run"),
        ({"parent": {"run": "last", "version": 3}}, "last@3"),
        ({"policies": {"other": {}}}, "no policy 'other' that learned"),
        ({"replay": {"run": "other"}}, "not both"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    tmp_path: Path, home: Home, run: str, changes: dict[str, Any], words: str
) -> None:
    before = set(home.states())
    asked = {"parent": {"run": run}, "stop": {"steps": TWICE}, **changes}
    if asked["parent"]["run"] == "last":
        asked["parent"]["run"] = run
        words = words.replace("last", run)
    state = home.state(run)
    with pytest.raises(RookeryError) as caught:
        create_run(
            home, build(with_parent(asked, lambda name: config_now(state, home.config(state))))
        )
    assert isinstance(caught.value, InputError | ConfigError | UnknownName)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert set(home.states()) == before


def test_an_older_checkpoint_can_be_forked(home: Home, run: str) -> None:
    kept = [int(name[-10:]) for name in open_store(home.files(run).checkpoints).names()]
    fork = create_run(home, forked(home, f"{run}@{kept[0]}"))
    assert newest(home, fork).manifest.number == kept[0]
    assert home.config(home.state(fork)).parent.version == kept[0]


@pytest.mark.parametrize("text", ["run@", "run@x", "run@-1"])
def test_a_version_is_a_number(text: str) -> None:
    with pytest.raises(InputError, match="RUN@VERSION"):
        parent_named(text)


class Killed(Exception):
    """Stands for kill -9, after which nothing more is done."""


def test_a_fork_that_was_killed_before_its_command_is_made_by_that_command_again(
    home: Home, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what its parent has then."""
    who: dict[str, Any] = {"id": new_id(), "start": False, "wait_s": 0.0}
    kept = [int(name[-10:]) for name in open_store(home.files(run).checkpoints).names()]
    for version in (kept[-1], kept[-1], kept[0]):

        def die(*commands: Any) -> None:
            raise Killed

        config, before = forked(home, f"{run}@{version}"), set(home.states())
        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(home, "send", die)
            send_new(home, config, checked_here(home), **who)
        assert set(home.states()) == before
    fork = send_new(home, config, checked_here(home), **who).run
    assert open_store(home.files(fork).checkpoints).names() == [newest(home, fork).name]
    assert newest(home, fork).manifest.number == kept[0]


def test_a_fork_does_not_touch_the_checkpoints_of_another_run(
    home: Home, run: str, tmp_path: Path
) -> None:
    """Which somebody keeps where the fork is to keep its own."""
    there, before = tmp_path / "store", set(home.states())
    shutil.copytree(home.files(run).checkpoints.removeprefix("file:"), there)
    names = sorted(path.name for path in there.iterdir())
    with pytest.raises(InputError, match=f"there are those of run {run}: give each"):
        create_run(home, forked(home, run, checkpoint={"uri": f"file:{there}"}))
    assert sorted(path.name for path in there.iterdir()) == names
    assert set(home.states()) == before


def test_a_run_does_not_go_on_from_the_checkpoints_of_another(
    home: Home, run: str, tmp_path: Path
) -> None:
    """Though both name the same store."""
    shared = {"checkpoint": {"uri": f"file:{tmp_path}"}, "stop": {"steps": 64}}
    first = trained(home, build(SMALL, shared))
    names = open_store(f"file:{tmp_path}").names()
    other = create_run(home, build(SMALL, shared, {"seed": 8}))
    (code,) = take_turns(open_context(home, other), WorkerId("inline", 0, 1), lambda: False)
    worker = home.state(other).workers["inline-0"]
    assert code == 1 and worker.failed_for_good
    assert f"there are those of run {first}: give each" in (worker.last_error or "")
    assert open_store(f"file:{tmp_path}").names() == names
