"""The layers of a Gymnasium environment (wrappers, then itself) and the state that each holds.

A copy can be saved when every layer is one whose changing attributes are listed here, or when one
has `save_state` and `restore_state` of its own and so answers for everything inside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from rookery.envs import Arrays
from rookery.errors import InputError

# The attributes that change while an environment is played, for those we know exactly. A subclass
# is not its parent here: it may have more state.
_CLASSIC, _TOY = "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text."
_WRAPPER = "gymnasium.wrappers.common:"
_STATE_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    _CLASSIC + "cartpole:CartPoleVectorEnv": ("state", "steps", "prev_done", "low", "high"),
    _CLASSIC + "cartpole:CartPoleEnv": ("state", "steps_beyond_terminated"),
    _CLASSIC + "acrobot:AcrobotEnv": ("state",),
    _CLASSIC + "pendulum:PendulumEnv": ("state", "last_u"),
    _CLASSIC + "mountain_car:MountainCarEnv": ("state",),
    _CLASSIC + "continuous_mountain_car:Continuous_MountainCarEnv": ("state",),
    _TOY + "frozen_lake:FrozenLakeEnv": ("s", "lastaction"),
    _TOY + "cliffwalking:CliffWalkingEnv": ("s", "lastaction"),
    _TOY + "taxi:TaxiEnv": ("s", "lastaction", "fickle_step", "taxi_orientation"),
    _TOY + "blackjack:BlackjackEnv": (
        "player",
        "dealer",
        "dealer_top_card_suit",
        "dealer_top_card_value_str",
    ),
    _WRAPPER + "TimeLimit": ("_elapsed_steps",),
    _WRAPPER + "OrderEnforcing": ("_has_reset",),
    _WRAPPER + "PassiveEnvChecker": (),
}
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def layers_of(env: Any) -> Iterator[Any]:
    """The wrappers from the outside in, then the environment itself."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _name(layer: Any) -> str:
    return f"{type(layer).__module__}:{type(layer).__qualname__}"


def _saves_itself(layer: Any) -> bool:
    return callable(getattr(layer, "save_state", None)) and callable(
        getattr(layer, "restore_state", None)
    )


def can_save(env: Any) -> bool:
    """Each layer is known, down to one that saves itself or to the environment."""
    for layer in layers_of(env):
        if _saves_itself(layer):
            return True
        if _name(layer) not in _STATE_ATTRIBUTES:
            return False
    return True


def save_copy(env: Any) -> tuple[dict[str, Any], Arrays]:
    """A copy's attributes as plain values, and the arrays of one that saves itself."""
    layers: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for layer in layers_of(env):
        if _saves_itself(layer):
            arrays = layer.save_state()
            break
        held = vars(layer)
        layers.append({n: held[n] for n in _STATE_ATTRIBUTES[_name(layer)] if n in held})
    generator = vars(env.unwrapped).get("_np_random")
    random = None if generator is None else generator.bit_generator.state
    return {"layers": layers, "random": random}, arrays


def restore_copy(env: Any, plain: dict[str, Any], arrays: Arrays) -> None:
    """Put a copy in the state that `save_copy` gave."""
    for layer, attributes in zip(layers_of(env), plain["layers"], strict=False):
        vars(layer).update(attributes)
    for layer in layers_of(env):
        if _saves_itself(layer):
            layer.restore_state(arrays)
            break
    random = plain["random"]
    if random is not None:
        if random["bit_generator"] not in _BIT_GENERATORS:
            raise InputError(f"unknown random generator {random['bit_generator']!r} in a state")
        bits = getattr(np.random, random["bit_generator"])()
        bits.state = random
        env.unwrapped.np_random = np.random.Generator(bits)
