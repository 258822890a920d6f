"""Which hyperparameters may change while a run goes on, and what the config is then."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.algorithms.ppo import PPOConfig
from rookery.config.live import combined, effective, live_values, why_not_set
from rookery.config.models import RunConfig
from rookery.config.reading import build, validate
from rookery.control.home import content
from rookery.envs.registry import describe
from rookery.errors import ConfigError, UnknownName

CARTPOLE = {"environment": {"id": "CartPole-v1"}}
PLAIN = build(CARTPOLE)
SEVERAL = build(CARTPOLE, {"policies": {"a": {}, "b.1": {"algorithm": {"kind": "impala"}}}})
CONTENT = content(PLAIN, describe("CartPole-v1"))
RATE, CLIP = "algorithm.learning_rate", "algorithm.clip"
RATE_OF_A = "policies.a.algorithm.learning_rate"
RATE_OF_B = "policies.b.1.algorithm.learning_rate"

# keys that are live, and one value outside the bounds of each
OUTSIDE = {
    "algorithm.learning_rate": 0.0,
    "algorithm.gamma": 1.01,
    "algorithm.entropy_coef": -0.1,
    "algorithm.value_coef": -0.1,
    "algorithm.max_grad_norm": 0.0,
    "algorithm.gae_lambda": -0.01,
    "algorithm.clip": 0.0,
}


def rates(config: RunConfig) -> dict[str, float]:
    found = {name: policy.algorithm.learning_rate for name, policy in config.policies.items()}
    return found | {"": config.algorithm.learning_rate}


# --- what is live --------------------------------------------------------------------------------


def test_every_live_key_has_the_value_of_the_config() -> None:
    assert live_values(PLAIN).keys() == OUTSIDE.keys()
    assert live_values(PLAIN)[RATE] == PLAIN.algorithm.learning_rate
    parts = {"algorithm", "policies.a.algorithm", "policies.b.1.algorithm"}
    assert {key.rpartition(".")[0] for key in live_values(SEVERAL)} == parts
    own = {"policies.b.1.algorithm.rho_clip", "policies.a.algorithm.gae_lambda"}
    assert own <= live_values(SEVERAL).keys()
    assert "policies.b.1.algorithm.clip" not in live_values(SEVERAL), "IMPALA compiles it in"


@pytest.mark.parametrize("config", [PLAIN, SEVERAL], ids=["plain", "several"])
def test_every_live_key_can_be_set_and_changes_nothing_else(config: RunConfig) -> None:
    for key, value in live_values(config).items():
        changed = effective(config, {key: value / 2 + 0.1})
        after = live_values(changed)
        meant = {key}
        if key.startswith("algorithm."):
            meant |= {other for other in after if other.endswith("." + key)}
        assert {k for k in after if after[k] == value / 2 + 0.1} >= meant
        assert {k: v for k, v in after.items() if k not in meant} == {
            k: v for k, v in live_values(config).items() if k not in meant
        }
        assert effective(changed, live_values(config)) == config


def test_the_config_itself_stays_as_it_was() -> None:
    before = SEVERAL.model_dump_json()
    effective(SEVERAL, {RATE: 0.5, RATE_OF_B: 0.25})
    assert SEVERAL.model_dump_json() == before
    assert effective(PLAIN, {}) == PLAIN


# --- for every policy, and for one ---------------------------------------------------------------


def test_a_value_for_every_policy_and_one_for_a_single_policy() -> None:
    assert rates(effective(SEVERAL, {RATE: 0.5})) == {"a": 0.5, "b.1": 0.5, "": 0.5}
    only = effective(SEVERAL, {RATE_OF_B: 0.25})  # a name may hold dots
    assert rates(only) == rates(SEVERAL) | {"b.1": 0.25}


@pytest.mark.parametrize("turned", [False, True])
def test_a_policys_own_value_counts_more_in_whatever_order_they_stand(turned: bool) -> None:
    items = [(RATE, 0.5), (RATE_OF_A, 0.25)]
    values = dict(reversed(items) if turned else items)
    assert rates(effective(SEVERAL, values)) == {"a": 0.25, "b.1": 0.5, "": 0.5}


def test_a_policy_of_another_algorithm_keeps_what_is_not_live_in_it() -> None:
    changed = effective(SEVERAL, {CLIP: 0.1})
    assert isinstance(changed.policies["a"].algorithm, PPOConfig)
    assert changed.policies["a"].algorithm.clip == 0.1
    assert changed.policies["b.1"] == SEVERAL.policies["b.1"]


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([{RATE_OF_A: 0.1}, {RATE: 0.5}], {"a": 0.5, "b.1": 0.5, "": 0.5}),
        ([{RATE: 0.5}, {RATE_OF_A: 0.1}], {"a": 0.1, "b.1": 0.5, "": 0.5}),
        ([{RATE_OF_A: 0.1}, {RATE: 0.5}, {RATE_OF_A: 0.1}], {"a": 0.1, "b.1": 0.5, "": 0.5}),
        ([{RATE_OF_A: 0.1, RATE_OF_B: 0.2}, {CLIP: 0.3}], {"a": 0.1, "b.1": 0.2}),
        ([{RATE: 0.5, RATE_OF_A: 0.1}, {RATE: 0.6, RATE_OF_B: 0.2}], {"a": 0.6, "b.1": 0.2}),
    ],
)
def test_the_newest_word_on_a_policy_counts(
    steps: list[dict[str, float]], expected: dict[str, float]
) -> None:
    values: dict[str, float] = {}
    for step in steps:
        values = combined(values, step)
    assert rates(effective(SEVERAL, values)).items() >= expected.items()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.dictionaries(st.sampled_from([*live_values(SEVERAL)]), st.floats(0.01, 1), max_size=4),
        max_size=6,
    )
)
def test_combining_is_the_same_as_setting_one_after_the_other(
    steps: list[dict[str, float]],
) -> None:
    config, values = SEVERAL, dict[str, float]()
    for step in steps:
        config, values = effective(config, step), combined(values, step)
    assert effective(SEVERAL, values) == config


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", OUTSIDE)
@pytest.mark.parametrize("value", ["outside", float("nan"), float("inf"), float("-inf")])
def test_a_value_out_of_its_bounds_names_its_key(key: str, value: float | str) -> None:
    values: dict[str, Any] = {key: OUTSIDE[key] if value == "outside" else value}
    why = why_not_set(CONTENT, values)
    assert why is not None and key in why and "\n" not in why
    with pytest.raises(ConfigError):
        effective(PLAIN, values)


@pytest.mark.parametrize(("general", "own"), [(5.0, 0.1), (0.1, 5.0)])
def test_a_bad_value_is_refused_though_another_covers_it(general: float, own: float) -> None:
    for values in ({RATE: general, RATE_OF_A: own}, {RATE_OF_A: own, RATE: general}):
        assert why_not_set({"config": SEVERAL.model_dump(), "spec": {}}, values) is not None


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("algorithm.learning_rat", RATE),
        ("learning_rate", RATE),
        ("algorithm.epochs", None),  # known, but compiled in
        ("algorithm.kind", None),
        ("actors.count", None),
        ("policies.a.algorithm.learning_rate", RATE),  # of a run with one policy
        ("", None),
        (".", None),
        ("algorithm.", None),
        ("environment.kwargs.__class__", None),
    ],
)
def test_a_key_that_is_not_live_is_refused_with_the_nearest_one(
    key: str, nearest: str | None
) -> None:
    with pytest.raises(UnknownName) as caught:
        effective(PLAIN, {key: 0.5})
    assert nearest is None or nearest in caught.value.nearest
    assert "changes while a run goes on" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"config": CONTENT["config"]},
        {"spec": CONTENT["spec"]},
        {"config": None, "spec": {}},
        {"config": [], "spec": {}},
        {"config": {}, "spec": {}},
        {"config": {**CONTENT["config"], "policies": 3}, "spec": {}},
        {"config": {**CONTENT["config"], "actors": {"count": "many"}}, "spec": {}},
    ],
)
def test_a_config_that_is_none_is_refused_in_one_line(broken: dict[str, Any]) -> None:
    why = why_not_set(broken, {})
    assert why and "\n" not in why


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from([*CONTENT["config"]]),
    json_values,
    st.dictionaries(st.text(max_size=12) | st.sampled_from([*OUTSIDE]), st.floats(), max_size=3),
)
def test_whatever_stands_in_a_config_there_is_an_answer(
    key: str, value: Any, values: dict[str, float]
) -> None:
    broken = {**CONTENT, "config": {**CONTENT["config"], key: value}}
    if why_not_set(broken, values) is None:
        assert effective(validate(broken["config"]), values)
