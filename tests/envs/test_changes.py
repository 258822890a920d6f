"""An environment that is not what a run began with is told at once, in one line that says both."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from rookery.actor.build import build_actor
from rookery.bus.memory import MemoryBus
from rookery.checkpoints.policies import RunFiles
from rookery.config.reading import build
from rookery.envs.changes import check_unchanged
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.messages import ActorId
from rookery.players.seat_map import Seating
from rookery.spaces import Categorical, EnvironmentSpec, Leaf, SeatSpec
from rookery.worker.context import RunContext

COUNTING = "rookery.testing.envs:CountingEnv"
COMPILED = "rookery.testing.envs:CountingCompiled"


def spec(leaf: Leaf, actions: int = 2, masked: bool = False, **changes: Any) -> EnvironmentSpec:
    seat = SeatSpec((leaf,), Categorical(actions), masked)
    return replace(EnvironmentSpec("maze", {"player_0": seat}), **changes)


BEGAN = spec(Leaf("", "box", (4,), "float32", low=-1, high=1))
NOW = {
    "box(4,) float32 and is box(6,) float32": spec(Leaf("", "box", (6,), "float32")),
    "box(4,) float32 and is box(4,) float64": spec(Leaf("", "box", (4,), "float64")),
    "Categorical(n=2, start=0) and is Categorical(n=5, start=0)": spec(
        Leaf("", "box", (4,), "float32"), 5
    ),
    "and is Categorical(n=2, start=0), masked": spec(Leaf("", "box", (4,), "float32"), masked=True),
    "all at once and is in turns": replace(BEGAN, simultaneous=False),
    "the observation of seat 'player_0' was box(4,) float32 and is not there": replace(
        BEGAN, seats={}
    ),
}


@pytest.mark.parametrize("part", NOW)
def test_what_changed_is_told_with_both(part: str) -> None:
    with pytest.raises(InputError) as refused:
        check_unchanged(BEGAN, NOW[part])
    text = str(refused.value)
    assert text.startswith("environment maze has changed since the run began: ")
    assert part in text
    assert "\n" not in text


def test_bounds_of_numbers_and_what_is_no_part_of_the_weights_may_change() -> None:
    moved = spec(Leaf("", "box", (4,), "float32", low=-2, high=2), can_save=True, id="maze-2")
    check_unchanged(BEGAN, replace(moved, max_episode_steps=7))


@pytest.mark.parametrize("game", [COUNTING, COMPILED])
@pytest.mark.parametrize("seats", [{}, {"draw": [{"player": p, "weight": 1} for p in "ab"]}])
def test_an_actor_refuses_to_play_it(game: str, seats: dict[str, Any]) -> None:
    named = {"id": game, "kwargs": {"length": 7}}
    values: dict[str, Any] = {"environment": named}
    if seats:
        values |= {"policies": {"a": {}, "b": {}}, "seats": {"*": seats}}
    config = build({**values, "actors": {"envs_per_actor": 2, "rollout_steps": 8}})
    began = describe(game, {"length": 5})
    nobody: Any = None
    files = RunFiles("r1", config, began, "file:nowhere", "file:nowhere")
    context = RunContext(files, Seating.of(config, began), MemoryBus(), *[nobody] * 6)
    with pytest.raises(InputError, match=r"was box\(6,\) float32 and is box\(8,\) float32"):
        build_actor(context, ActorId(0, 1), 0.0)
