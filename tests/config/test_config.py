"""A config is what was asked for over tuned defaults, or one line that says what is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rookery.algorithms.impala import ImpalaConfig
from rookery.algorithms.ppo import PPOConfig
from rookery.config.algorithm import find, live_hyperparameters
from rookery.config.kinds import ALGORITHMS
from rookery.config.models import RunConfig
from rookery.config.reading import (
    DEFAULT_STEPS,
    assignment,
    build,
    config_keys,
    load_yaml,
    parse_value,
    validate,
)
from rookery.config.tuned import PPO, tuned_defaults
from rookery.errors import MOST_TOLD, ConfigError, UnknownName
from rookery.errors.words import _KEYS, _MEANT

EXAMPLES = Path(__file__).parents[2] / "examples"
ENV = {"environment": {"id": "CartPole-v1"}}
OTHER = {"environment": {"id": "my.module:World"}}


def one_line(*layers: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        build(*layers)
    text = str(caught.value)
    assert "\n" not in text and "pydantic" not in text, text
    return text


# --- layers --------------------------------------------------------------------------------------


def test_later_layers_win_over_earlier_ones_and_both_over_tuned_defaults() -> None:
    tuned = tuned_defaults(PPO, "CartPole-v1")

    config = build(
        ENV,
        {"algorithm": {"gamma": 0.5, "clip": 0.1}},
        {"algorithm": {"gamma": 0.6}, "seed": 3},
    )

    assert config.algorithm.gamma == 0.6
    assert isinstance(config.algorithm, PPOConfig) and config.algorithm.clip == 0.1
    assert config.algorithm.learning_rate == tuned["algorithm"]["learning_rate"]
    assert config.actors.envs_per_actor == tuned["actors"]["envs_per_actor"]
    assert config.seed == 3


def test_building_leaves_the_layers_and_the_tuned_tables_as_they_were() -> None:
    layer = {"environment": {"id": "CartPole-v1"}, "algorithm": {"gamma": 0.5}}
    before = json.dumps([layer, tuned_defaults(PPO, "CartPole-v1")])

    build(layer, {"algorithm": {"gamma": 0.6}, "environment": {"kwargs": {"a": 1}}})

    assert json.dumps([layer, tuned_defaults(PPO, "CartPole-v1")]) == before


def test_a_config_is_frozen_and_comes_back_from_its_own_json() -> None:
    config = build(ENV)
    assert validate(config.model_dump(mode="json")) == config
    with pytest.raises(ValidationError):
        config.seed = 1  # type: ignore[misc]


def test_without_a_target_or_a_limit_a_run_has_a_default_limit() -> None:
    assert build(ENV).stop.steps == DEFAULT_STEPS
    assert build(ENV, {"stop": {"until_return": 475}}).stop.steps is None


def test_no_environment_is_said_with_an_example() -> None:
    assert "name one, like CartPole-v1" in one_line({"seed": 1})


# --- --set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("seed=3", {"seed": 3}),
        ("algorithm.learning_rate=3e-4", {"algorithm": {"learning_rate": 3e-4}}),
        ("stop.steps=2_000_000", {"stop": {"steps": 2_000_000}}),
        ("network.hidden=[32, 16]", {"network": {"hidden": [32, 16]}}),
        ("algorithm.kl_stop=null", {"algorithm": {"kl_stop": None}}),
        (
            "environment.kwargs.is_slippery=false",
            {"environment": {"kwargs": {"is_slippery": False}}},
        ),
        ("environment.kwargs.map=a=b", {"environment": {"kwargs": {"map": "a=b"}}}),
        ("checkpoint.uri=file:/tmp/x", {"checkpoint": {"uri": "file:/tmp/x"}}),
        ("checkpoint.uri=", {"checkpoint": {"uri": ""}}),
    ],
)
def test_an_assignment_is_a_nested_layer(text: str, expected: dict[str, Any]) -> None:
    assert assignment(text) == expected


@pytest.mark.parametrize("text", ["seed", "=3", ".=3", ""])
def test_an_assignment_without_key_or_value_says_its_form(text: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        assignment(text)


@pytest.mark.parametrize(
    ("text", "value"), [("1e-4", 1e-4), ("5", 5), ("true", True), ("[1", "[1"), ("abc", "abc")]
)
def test_a_value_is_read_as_yaml_reads_it_but_for_numbers(text: str, value: Any) -> None:
    found = parse_value(text)
    assert found == value and type(found) is type(value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=20))
def test_any_text_after_set_gives_a_config_or_a_config_error(text: str) -> None:
    try:
        build(ENV, assignment(text))
    except (ConfigError, UnknownName) as error:
        assert "\n" not in str(error).replace(text, "")


# --- one line for what is wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("algorithm.learning_rat", "algorithm.learning_rate"),
        ("algorithm.gama", "algorithm.gamma"),
        ("actors.envs_per_acto", "actors.envs_per_actor"),
        ("actor.count", "actors"),
        ("learning_rate", "algorithm.learning_rate"),
        ("network.minibatch_size", "algorithm.minibatch_size"),
        ("sed", "seed"),
        ("lr", "algorithm.learning_rate"),
        ("algorithm.ent_coef", "algorithm.entropy_coef"),
        ("hidden_sizes", "network.hidden"),
        ("checkpoint.intervall_s", "checkpoint.interval_s"),
        ("stop.until_retrun", "stop.until_return"),
        ("environment.kwarg", "environment.kwargs"),
        ("restarts.backoff", "restarts.backoff_s"),
    ],
)
def test_an_unknown_key_names_the_nearest_one(key: str, near: str) -> None:
    text = one_line(ENV, assignment(f"{key}=1"))
    assert f"unknown config key '{key.split('.')[0] if near == 'actors' else key}'" in text
    assert f"did you mean {near}" in text


def test_of_many_problems_some_are_told_and_the_others_counted() -> None:
    """To look for the nearest key takes its time: for 40,000 of them, twelve seconds."""
    wrong = {"algorithm": {f"learning_rat{number}": 1 for number in range(40_000)}}
    text = one_line(ENV, wrong)
    assert text.count("did you mean") == MOST_TOLD and text.endswith("; and 39,990 more")
    assert "did you mean" not in one_line(ENV, {"a" * 900_000: 1})


WRONG = [
    *[
        f"actors.{key}={value}"
        for key in ("count", "max_count", "envs_per_actor", "rollout_steps", "opponents_per_actor")
        for value in (-1, 0, 1.5, "many", "null", "[1]")
    ],
    *[f"learner.fragments_per_batch={value}" for value in (0, "x")],
    *[f"learner.max_policy_lag_versions={value}" for value in (-1, "x")],
    "learner.follows_actors=x",
    "learner.threads=0",
    "learner.device=tpu",
    "learner.publish_interval_s=-1",
    *[f"learner.walk_in_places={value}" for value in (-1, 2, "x")],
    *[f"actors.heartbeat_s={value}" for value in (0, "x")],
    "bus.topics=private",
    "bus.partitions=0",
    "bus.replication=-2",
    "bus.experience_hours=0",
    "replay.run=7",
    "replay.start=x",
    *[f"algorithm.learning_rate={value}" for value in (0, -1, 2, "fast", ".nan", ".inf", "null")],
    *[f"algorithm.gamma={value}" for value in (-0.1, 1.1, "x")],
    "algorithm.schedule=cosine",
    "algorithm.epochs=0",
    "algorithm.clip=0",
    "algorithm.value_clip=0",
    "algorithm.kl_stop=-1",
    "algorithm.gae_lambda=2",
    "algorithm.max_grad_norm=0",
    "algorithm.entropy_coef=-1",
    "algorithm.normalize_returns=perhaps",
    "algorithm.minibatch_size=0",
    "algorithm=7",
    "network=7",
    "network.hidden=[0]",
    "network.hidden=wide",
    "network.activation=gelu",
    "network.gaussian=round",
    "network.initial_log_std=9",
    "learner.count=0",
    "learner.max_count=0",
    "parent.run=a run",
    "parent.version=-1",
    "stop.steps=0",
    "stop.steps=soon",
    "stop.minutes=0",
    "stop.until_return=high",
    "stop=7",
    "checkpoint.interval_s=0",
    "checkpoint.keep=0",
    "checkpoint.every_updates=0",
    "bus.max_experience_mb=0",
    "launcher=rocket",
    "league.snapshot_every_steps=0",
    "league.snapshot_win_rate=1.5",
    "league.keep=1",
    "league.opponents=best",
    "league.games_per_draw=0",
    "actors.auto=7",
    "league.reference=7",
    "league.rating_every=-1",
    "league.rating_slots=0",
    "league.exploiter_win_rate=1",
    "league.exploiter_max_updates=0",
    "network.encoder=7",
    "network.encoder_hidden=[0]",
    *[
        f"placement.{text}"
        for kind in ("actor", "learner")
        for text in (
            *(f"{kind}=7", f"{kind}.cpus=-1", f"{kind}.cpus=many", f"{kind}.cpus=.inf"),
            *(f"{kind}.gpus=-1", f"{kind}.resources=7", f"{kind}.resources.tpu=-1"),
            *(f"{kind}.labels=7", f"{kind}.labels.zone=[1]"),
        )
    ],
    "seats=7",
    "seat_map=7",
    "policies=7",
    "train=7",
    "restarts.max_restarts=-1",
    "restarts.backoff_s=-1",
    "restarts.silent_s=1",
    "environment.deadline_s=0",
    "environment.kwargs=5",
    "seed=-1",
    "seed=4294967296",
    "seed=x",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_type_or_range_is_one_line_that_names_the_key(text: str) -> None:
    key = text.partition("=")[0]
    found = one_line(ENV, assignment(text))
    assert key in found, found


def test_actors_that_follow_the_learner_begin_with_one() -> None:
    config = build(ENV, {"actors": {"count": "auto", "max_count": 4}})
    assert (config.actors.count, config.actors.auto, config.actors.number) == (1, True, "auto")
    assert config.learner.follows_actors
    assert build(config.model_dump(mode="json")) == config, "as it is written down"
    assert build(ENV, {"actors": {"count": 3}}).actors.number == "3"


def test_a_number_of_actors_takes_back_that_they_follow_the_learner() -> None:
    stored = build(ENV, {"actors": {"count": "auto"}}).model_dump(mode="json")
    assert build(stored, {"actors": {"count": 3}}).actors.number == "3"
    assert build(stored, {"actors": {"max_count": 3}}).actors.number == "auto"
    assert build(stored, {"actors": {"count": 1}}, {"actors": {"count": "auto"}}).actors.auto


def test_every_key_of_the_config_has_a_wrong_value_in_the_list_above() -> None:
    listed = {text.partition("=")[0] for text in WRONG}
    free = {
        "checkpoint.uri",
        "environment.id",
        "network.channels",
        "network.normalize_observations",
    }
    checked = {
        key
        for key, field in config_keys()
        if "." in key and not key.endswith(".kind") and "algorithm" not in key
    }
    missing = checked - listed - free - {"restarts.max_backoff_s"}
    assert not missing


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{"steps": 0, "set": {"algorithm.gamma": 0.9}}], "changes.0.steps"),
        ([{"steps": 5, "set": {}}], "changes.0.set"),
        ([{"steps": 5, "set": {"algorithm.gama": 0.9}}], "did you mean algorithm.gamma"),
        ([{"steps": 5, "set": {"algorithm.gamma": 2}}], "at 5 steps: algorithm.gamma"),
        ([{"steps": 5, "set": {"actors.count": 2}}], "at 5 steps: unknown live"),
        ([{"steps": n, "set": {"algorithm.gamma": 0.9}} for n in (9, 5)], "put them in order"),
    ],
)
def test_changes_that_no_run_could_make_are_one_line(changes: Any, said: str) -> None:
    assert said in one_line(ENV, {"changes": changes})


def test_an_unknown_bus_is_one_line_with_those_there_are() -> None:
    assert "'sqlite', 'memory'" in one_line(ENV, {"bus": {"kind": "kafkaesque"}})


def test_a_bus_without_a_kind_is_the_default_one() -> None:
    bus = build(ENV, assignment("bus.max_experience_mb=64")).bus
    assert (bus.kind, bus.max_experience_mb) == ("sqlite", 64)


def test_an_algorithm_by_name_alone_is_refused_not_ignored() -> None:
    assert "set algorithm.kind" in one_line(ENV, {"algorithm": "impala"})


def test_an_unknown_algorithm_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean ppo"):
        build(ENV, {"algorithm": {"kind": "pppo"}})
    with pytest.raises(UnknownName):
        build(ENV, {"algorithm": {"kind": [1]}})


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        ({"launcher": "inline", "actors": {"count": 2}}, "set actors.count to 1"),
        ({"launcher": "inline", "actors": {"count": "auto"}}, "set actors.auto to false"),
        ({"bus": {"kind": "memory"}}, "set launcher to inline"),
        ({"algorithm": {"schedule": "linear"}, "stop": {"until_return": 1}}, "needs stop.steps or"),
        ({"algorithm": {"minibatch_size": 7}}, "minibatch_size=7 does not divide"),
        ({"algorithm": {"kind": "impala", "minibatches": 7}}, "minibatches=7 does not divide"),
        ({"algorithm": {"kind": "impala", "kl_stop": 1}}, "unknown config key 'algorithm.kl_stop'"),
    ],
)
def test_fields_that_disagree_are_named(layer: dict[str, Any], says: str) -> None:
    assert says in one_line(ENV, layer)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a: [", "not valid YAML"),
        ("- 1", "not a mapping"),
        ("", "not a mapping"),
        ("a: !!python/object/apply:os.getcwd []", "not valid YAML"),
    ],
)
def test_a_yaml_file_that_is_no_config_is_one_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=says) as caught:
        load_yaml(path)
    assert "\n" not in str(caught.value)


def test_a_yaml_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_yaml(tmp_path / "missing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ConfigError):
        load_yaml(tmp_path / "binary.yaml")


# --- files, schema, tuned defaults ---------------------------------------------------------------


def test_every_example_config_is_valid() -> None:
    found = sorted([*EXAMPLES.glob("**/*.yaml"), *EXAMPLES.glob("**/*.yml")])
    for path in found:
        assert build(load_yaml(path)).environment.id, path
    assert found, "examples/ has no config to check"


def test_the_json_schema_marks_what_may_change_while_a_run_goes_on() -> None:
    schema = RunConfig.model_json_schema()
    live = {
        name: {k for k, v in schema["$defs"][name]["properties"].items() if v.get("live")}
        for name in ("PPOConfig", "ImpalaConfig", "ActorsConfig")
    }
    shared = {"learning_rate", "gamma", "entropy_coef", "value_coef", "max_grad_norm"}
    assert live["PPOConfig"] == shared | {"gae_lambda", "clip"}
    assert live["ImpalaConfig"] == shared | {"trace_lambda", "rho_clip", "c_clip"}
    assert live["ActorsConfig"] == set()
    for config in (PPOConfig(), ImpalaConfig()):
        assert set(live_hyperparameters(config)) == live[type(config).__name__]


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize(
    "environment", sorted({environment for kind in ALGORITHMS for environment in find(kind).tuned})
)
def test_the_tuned_defaults_of_every_environment_are_valid(
    environment: str, algorithm: str
) -> None:
    config = build(
        {"environment": {"id": environment.replace("*", "Breakout-MinAtar")}},
        {"algorithm": {"kind": algorithm}},
    )
    tuned = find(algorithm).tuned.get(environment, {})
    for part, values in tuned.items():
        for key, value in values.items():
            found = getattr(getattr(config, part), key)
            assert (list(found) if isinstance(found, tuple) else found) == value
    assert config.algorithm.kind == algorithm


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 4), st.integers(1, 200), st.integers(1, 200), st.sampled_from([ENV, OTHER]))
def test_a_minibatch_that_nobody_asked_for_divides_the_batch(
    count: int, envs: int, steps: int, environment: dict[str, Any]
) -> None:
    actors = {"count": count, "envs_per_actor": envs, "rollout_steps": steps}

    config = build(environment, {"actors": actors})

    assert isinstance(config.algorithm, PPOConfig)
    assert config.batch_rows == count * envs * steps
    assert config.batch_rows % config.algorithm.minibatch_size == 0
    tuned = tuned_defaults(PPO, config.environment.id).get("algorithm", {})
    wanted = tuned.get("minibatch_size", PPOConfig().minibatch_size)
    assert config.algorithm.minibatch_size <= wanted


def test_ppo_takes_one_fragment_per_actor_and_impala_one_with_room_for_its_lag() -> None:
    layer = {"actors": {"count": 3}}
    ppo, impala = build(ENV, layer), build(ENV, layer, {"algorithm": {"kind": "impala"}})
    assert (ppo.learner.fragments_per_batch, ppo.learner.max_policy_lag_versions) == (3, 1)
    assert (impala.learner.fragments_per_batch, impala.learner.max_policy_lag_versions) == (1, 3)


@pytest.mark.parametrize(
    ("kind", "asked", "follows"),
    [
        ("ppo", {}, True),
        ("ppo", {"max_policy_lag_versions": 3}, True),
        ("ppo", {"fragments_per_batch": 3}, False),
        ("ppo", {"fragments_per_batch": 3, "follows_actors": True}, True),
        ("impala", {}, True),
        ("impala", {"fragments_per_batch": 2}, True),
        ("impala", {"max_policy_lag_versions": 3}, False),
        ("impala", {"follows_actors": False}, False),
    ],
)
def test_batches_follow_the_actors_unless_somebody_set_them(
    kind: str, asked: dict[str, Any], follows: bool
) -> None:
    config = build(ENV, {"algorithm": {"kind": kind}, "learner": asked})
    assert config.learner.follows_actors is follows
    again = build(config.model_dump(mode="json"))
    assert again.learner == config.learner, "as a run's own config is read"


def test_one_width_is_a_row_of_one_and_other_text_says_how_it_is_written() -> None:
    assert build(ENV, assignment("network.hidden=256")).network.hidden == (256,)
    assert "like [256, 256]" in one_line(ENV, assignment("network.hidden=256,256"))


def test_every_word_from_elsewhere_stands_for_a_key() -> None:
    keys = {key for key, _ in config_keys()}
    assert set(_KEYS) <= keys
    assert not set(_MEANT) & {key.rpartition(".")[2] for key in keys} - {"device"}


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("s3://bucket", "s3://BUCKET/PREFIX"),
        ("s3://bucket/", "s3://BUCKET/PREFIX"),
        ("s3:bucket/a", "s3://BUCKET/PREFIX"),
        ("simplecache::s3://bucket/a", "s3://BUCKET/PREFIX"),
        ("s3://bucket/a?key=b", "s3://BUCKET/PREFIX"),
        ("s3://bucket/a b", "s3://BUCKET/PREFIX"),
        ("s3://user:word@bucket/a", "no user and no password"),
        ("memory://bucket/a", "gone with it"),
        ("https://example.org/a", "not written"),
        ("file:", "file:DIRECTORY"),
    ],
)
def test_a_store_that_cannot_be_used_says_what_can(uri: str, says: str) -> None:
    found = one_line(ENV, {"checkpoint": {"uri": uri}})
    assert says in found and "word@" not in found


def test_a_store_has_no_slash_at_its_end() -> None:
    """Its snapshots are beside it."""
    for uri in ("s3://bucket/a/b", "gs://bucket/a", "s3://bucket/a/b/"):
        found = build(ENV, {"checkpoint": {"uri": uri}}).checkpoint.uri
        assert found == uri.rstrip("/")
