"""Actions are made from the commands' own types; an effect says in one line what a command does."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest
from pydantic import ValidationError

from rookery.config.reading import build
from rookery.control.actions import ACTION, ACTIONS, effect, own_fields, parameters
from rookery.control.run_state import RunState, WorkerState
from rookery.control.seats import seats_after
from rookery.messages import Command, CreateRun, SetSeatMap, StartRun, new_id

CONFIG = build({"environment": {"id": "CartPole-v1"}})
GAME = build({"environment": {"id": "pgx:tic_tac_toe"}})


def state_of(config: Any = CONFIG, **changes: Any) -> RunState:
    content = {"config": config.model_dump(mode="json"), "spec": {}}
    return RunState("cartpole-abcde", content, 0.0, **changes)


def running(config: Any = CONFIG, **changes: Any) -> RunState:
    workers = {
        "learner-0": WorkerState("learner", 0, 1, pid=10, running=True),
        "actor-0": WorkerState("actor", 0, 1, pid=11, running=True),
    }
    settings = {"desired": "running", "status": "running", "workers": workers}
    return state_of(config, **(settings | changes))


def line(state: RunState, action: str, config: Any = CONFIG, **values: Any) -> str:
    files = (12, 3_400_000) if action == "delete" else None
    return effect(state, config, ACTION[action].make(state.id, values), files)


def test_scaling_beyond_what_batches_leave_room_for_says_how_many_play() -> None:
    learner = CONFIG.learner.model_copy(update={"follows_actors": False})
    pinned = CONFIG.model_copy(update={"learner": learner})
    found = line(running(pinned), "scale-actors", pinned, count=8)
    assert found == (
        "actors 1 -> 8: 7 processes start; at most 2 of them play at a time: "
        "learner.fragments_per_batch=1, learner.max_policy_lag_versions=1"
    )
    assert "at most" not in line(running(pinned), "scale-actors", pinned, count=2)
    assert "at most" not in line(running(), "scale-actors", count=8)


def test_what_its_process_left_goes_on_and_does_not_run_already() -> None:
    state, resume = running(), ACTION["resume"]
    assert effect(state, CONFIG, resume.make(state.id, {})) == "it runs already: nothing changes"
    left = effect(state, CONFIG, resume.make(state.id, {}), is_owned=False)
    assert left.startswith(("starts 1 learner", "goes on from checkpoint"))


# --- the list ------------------------------------------------------------------------------------


def test_every_command_but_the_one_that_creates_a_run_is_an_action() -> None:
    assert {action.command for action in ACTIONS} == set(get_args(Command)) - {CreateRun}
    assert len(ACTION) == len(ACTIONS)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_a_name_is_the_commands_tag_without_run(action: Any) -> None:
    tag = action.command.__struct_config__.tag
    assert action.name.replace("-", "_") in (tag, tag.removesuffix("_run"))
    assert not action.name.endswith("-run")


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
def test_texts_and_fields_are_those_of_the_commands_type(action: Any) -> None:
    assert action.doc == action.command.__doc__.strip()
    schema = parameters(action.command).model_json_schema()
    shared = msgspec.structs.fields(StartRun)
    own = {f.name for f in msgspec.structs.fields(action.command)} - {f.name for f in shared}
    assert set(schema["properties"]) == own
    assert schema["additionalProperties"] is False
    for field in msgspec.structs.fields(action.command):
        if field.name in own:
            meta = get_args(field.type)[1]
            if meta is type(None):
                meta = get_args(get_args(field.type)[0])[1]
            assert schema["properties"][field.name]["description"] == meta.description


def test_limits_are_those_of_the_commands_type() -> None:
    count = parameters(ACTION["scale-actors"].command).model_json_schema()["properties"]["count"]
    assert (count["minimum"], count["maximum"]) == (0, 1024)
    episodes = parameters(ACTION["evaluate"].command).model_json_schema()["properties"]["episodes"]
    assert (episodes["minimum"], episodes["maximum"], episodes["default"]) == (1, 100_000, 100)


@pytest.mark.parametrize(
    ("action", "values"),
    [
        ("scale-actors", {"count": -1}),
        ("scale-actors", {"count": 1025}),
        ("scale-actors", {"count": "4"}),
        ("scale-actors", {"count": True}),
        ("scale-actors", {}),
        ("scale-actors", {"count": 1, "more": 2}),
        ("set-hyperparameters", {"values": {}}),
        ("set-hyperparameters", {"values": {"algorithm.gamma": float("nan")}}),
        ("set-hyperparameters", {"values": {"algorithm.gamma": "high"}}),
        ("play-match", {"a": "", "b": "script:random"}),
        ("pause", {"count": 1}),
        ("resume", {"steps": 0}),
        ("resume", {"minutes": 0}),
        ("label", {"name": "x" * 101}),
        ("label", {"tags": ["two words"]}),
        ("label", {"tags": ["a,b"]}),
        ("label", {"tags": ["x"] * 21}),
    ],
)
def test_what_does_not_fit_is_refused(action: str, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parameters(ACTION[action].command).model_validate(values)


def test_only_deleting_needs_an_admin() -> None:
    assert [action.name for action in ACTIONS if action.scope == "admin"] == ["delete"]


def test_a_command_is_made_with_who_sent_it() -> None:
    id = new_id()
    who = {"id": id, "author": "ann", "reason": "more", "origin": "network"}
    command = ACTION["scale-actors"].make("r", {"count": 4}, **who)
    assert (command.run, command.id, command.author, command.origin) == ("r", id, "ann", "network")
    assert own_fields(command) == {"count": 4}


def test_what_an_environment_looks_like_is_left_out_of_a_creations_own_fields() -> None:
    content = {"config": {"seed": 1}, "spec": {"seats": {}}}
    assert own_fields(CreateRun(run="r", config=content))["config"] == {"seed": 1}


# --- effects -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "action", "values", "expected"),
    [
        (state_of(), "start", {}, "starts 1 learner, 1 actor"),
        (
            state_of(checkpoint="c7", env_steps=12_000),
            "start",
            {},
            "goes on from checkpoint c7 at 12,000 steps with 1 learner, 1 actor",
        ),
        (running(), "start", {}, "it runs already: nothing changes"),
        (running(status="queued"), "resume", {}, "it waits in the queue already: nothing changes"),
        (running(), "resume", {"minutes": 5.0}, "it runs already: up to 5 minutes"),
        (
            state_of(),
            "resume",
            {"steps": 20_000, "until_return": 475.0},
            "starts 1 learner, 1 actor, up to 20,000 steps or return 475",
        ),
        (state_of(), "label", {"name": "a", "tags": []}, "name: 'a'; tags: none"),
        (state_of(), "label", {}, "nothing is named: nothing changes"),
        (
            running(desired="paused"),
            "resume",
            {},
            "goes on where it was held, with the same workers",
        ),
        (running(), "pause", {}, "holds playing and training; 2 workers stay in memory"),
        (running(desired="paused"), "pause", {}, "it is paused already: nothing changes"),
        (running(), "stop", {}, "stops after a checkpoint; 2 workers end"),
        (state_of(), "stop", {}, "it does not run: nothing changes"),
        (running(), "scale-actors", {"count": 4}, "actors 1 -> 4: 3 processes start"),
        (running(), "scale-actors", {"count": 2}, "actors 1 -> 2: 1 process starts"),
        (running(actors=4), "scale-actors", {"count": 1}, "actors 4 -> 1: 3 processes end"),
        (running(), "scale-actors", {"count": 1}, "actors stay at 1: nothing changes"),
        (state_of(), "scale-actors", {"count": 2}, "actors 1 -> 2 when it is started"),
        (
            running(),
            "scale-learner",
            {"count": 0},
            "the learner ends after a checkpoint; the actors wait for it to come back",
        ),
        (
            running(learners=0),
            "scale-learner",
            {"count": 1},
            "a learner starts and goes on from the newest checkpoint",
        ),
        (running(), "scale-learner", {"count": 1}, "learners stay at 1: nothing changes"),
        (
            running(),
            "set-hyperparameters",
            {"values": {"algorithm.learning_rate": 1e-4}},
            "algorithm.learning_rate 0.002 -> 0.0001 from the next update on",
        ),
        (
            running(hyperparameters={"algorithm.gamma": 0.9}),
            "set-hyperparameters",
            {"values": {"algorithm.gamma": 0.95}},
            "algorithm.gamma 0.9 -> 0.95 from the next update on",
        ),
        (
            running(),
            "save-checkpoint",
            {},
            "the learner saves a checkpoint after the update it is at",
        ),
        (
            running(),
            "evaluate",
            {"episodes": 10},
            "10 fresh episodes of policy, in a process of their own",
        ),
        (
            running(),
            "play-match",
            {"a": "last", "b": "script:random", "games": 1},
            "1 game of last against script:random in CartPole-v1, half each way round",
        ),
        (state_of(), "delete", {}, "12 files, 3.4 MB, are removed for good"),
    ],
)
def test_an_effect_is_one_plain_line(
    state: RunState, action: str, values: dict[str, Any], expected: str
) -> None:
    assert line(state, action, **values) == expected


def test_the_effect_of_new_seats_names_who_leaves_and_who_comes() -> None:
    state = running(GAME)
    asked = {"player_1": "script:random"}
    whole = seats_after(state, GAME, asked)
    assert line(state, "set-seat-map", GAME, seats=whole) == (
        "player_1: as the map had it -> script:random from each slot's next episode on"
    )
    assert line(running(GAME, seats=whole), "set-seat-map", GAME, seats=whole) == (
        "everybody sits there already: nothing changes"
    )


def test_deleting_a_run_without_files_says_so() -> None:
    command = ACTION["delete"].make("r", {})
    assert effect(state_of(), CONFIG, command, (0, 0)) == "the run is forgotten; it has no files"
    assert effect(state_of(), CONFIG, command) == "the run's files are removed for good"


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.name)
@pytest.mark.parametrize("state", [state_of(), running(), running(desired="paused")])
def test_every_action_has_an_effect_in_every_state(action: Any, state: RunState) -> None:
    values: dict[str, Any] = {
        "scale-actors": {"count": 0},
        "scale-learner": {"count": 0},
        "set-hyperparameters": {"values": {"algorithm.clip": 0.1}},
        "set-seat-map": {"seats": {"*": {"draw": [{"player": "main", "weight": 1}]}}},
        "play-match": {"a": "main", "b": "script:random"},
    }.get(action.name, {})
    found = effect(state, CONFIG, action.make(state.id, values))
    assert found and "\n" not in found and len(found) < 200


# --- a new seat map ------------------------------------------------------------------------------


def test_what_is_asked_goes_over_what_the_run_has() -> None:
    state = running(GAME, seats={"player_0": "main", "player_1": "main"})
    assert seats_after(state, GAME, {"player_1": "script:random"}) == {
        "player_0": "main",
        "player_1": "script:random",
    }
    assert seats_after(state, GAME, {"player_*": "main"}) == {"player_*": "main"}


def test_a_change_that_waits_for_its_answer_counts() -> None:
    waiting = SetSeatMap(run="r", seats={"player_0": "script:random", "player_1": "main"})
    state = running(GAME, seats={"*": "main"}, commands={waiting.id: waiting})
    assert seats_after(state, GAME, {"player_1": "main"})["player_0"] == "script:random"
