"""Defaults that were measured to learn, per environment and algorithm.

`rookery train NAME` starts from these; every value can be overridden. An environment that is not
listed gets the general defaults of the config's models. Each algorithm names its own table.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

_BOARD: dict[str, Any] = {  # small boards, won or lost at the end
    "actors": {"envs_per_actor": 256, "rollout_steps": 64},
    "algorithm": {
        "learning_rate": 1e-3,
        "epochs": 2,
        "minibatch_size": 2048,
        "gamma": 1.0,
        "entropy_coef": 0.04,  # wide play: a sharp policy wins as the first seat and learns no more
        "normalize_returns": False,  # they are -1, 0 or 1 already
    },
    "network": {
        "encoder": "board",
        "encoder_hidden": [128, 128],
        "hidden": [],
        "activation": "relu",
        "normalize_observations": False,
    },
}
_CONTROL: dict[str, Any] = {  # MuJoCo: slow to step, so each batch is used well
    "algorithm": {"epochs": 10, "minibatch_size": 256, "gae_lambda": 0.9},
}
_HOPPER: dict[str, Any] = {  # it falls at once where it is pushed: little noise, a far sight
    "algorithm": {
        "learning_rate": 3e-4,
        "epochs": 10,
        "minibatch_size": 64,
        "gamma": 0.995,
        "gae_lambda": 0.98,
    },
    "network": {"initial_log_std": -2.0},
}
_MUJOCO = (
    "Ant HalfCheetah Humanoid HumanoidStandup InvertedDoublePendulum InvertedPendulum "
    "Pusher Reacher Swimmer Walker2d"
)
_TIC_TAC_TOE = {**_BOARD, "league": {"reference": ["script:random", "script:perfect"]}}
_CONNECT_FOUR = {**_BOARD, "league": {"reference": ["script:random", "script:minimax?depth=2"]}}

PPO: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "actors": {"envs_per_actor": 128, "rollout_steps": 32},
        "algorithm": {
            "learning_rate": 2e-3,
            "epochs": 4,
            "minibatch_size": 512,
            "gae_lambda": 0.9,
            "normalize_returns": False,
        },
        "network": {"normalize_observations": False},
    },
    "Acrobot-v1": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 128},
        "algorithm": {
            "learning_rate": 1e-3,
            "epochs": 4,
            "minibatch_size": 512,
        },
    },
    "Pendulum-v1": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 128},
        "algorithm": {
            "learning_rate": 1e-3,
            "schedule": "linear",
            "epochs": 10,
            "minibatch_size": 512,
            "gamma": 0.95,
        },
        "network": {"initial_log_std": 0.5},  # torques go from -2 to 2
    },
    "FrozenLake-v1": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 64},
        "algorithm": {
            "learning_rate": 3e-3,
            "epochs": 4,
            "minibatch_size": 512,
            "entropy_coef": 0.02,
            "normalize_returns": False,
        },
    },
    "Taxi-v*": {"algorithm": {"schedule": "linear"}},  # near ties at the end are circles, greedily
    "LunarLander-v3": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 128},
        "algorithm": {
            "learning_rate": 1e-3,
            "epochs": 6,
            "minibatch_size": 512,
            "gamma": 0.995,
            "gae_lambda": 0.97,
            "entropy_coef": 0.005,
        },
    },
    "pgx:tic_tac_toe": _TIC_TAC_TOE,
    "pettingzoo:tictactoe_v3": _TIC_TAC_TOE,
    "pgx:connect_four": _CONNECT_FOUR,
    "pettingzoo:connect_four_v3": _CONNECT_FOUR,
    "pettingzoo:simple_*": {  # MPE: short episodes, slow to step, so each batch is used well
        "actors": {"envs_per_actor": 32, "rollout_steps": 104},
        "algorithm": {
            "learning_rate": 1e-3,
            "epochs": 8,
            "minibatch_size": 832,
            "gamma": 0.95,
            "entropy_coef": 0.01,
        },
    },
    "Hopper-v*": _HOPPER,
    **{f"{name}-v*": _CONTROL for name in _MUJOCO.split()},
    "gymnax:*": {
        "actors": {"envs_per_actor": 64, "rollout_steps": 64},
        "algorithm": {
            "learning_rate": 1e-3,
            "minibatch_size": 512,
            "entropy_coef": 0.01,
            "normalize_returns": False,
        },
        "network": {"normalize_observations": False},
    },
}

IMPALA: dict[str, dict[str, Any]] = {
    "CartPole-v1": {
        "actors": {"envs_per_actor": 64, "rollout_steps": 32},
        "algorithm": {
            "learning_rate": 2e-3,
            "normalize_returns": False,
        },
        "network": {"normalize_observations": False},
    },
    "Acrobot-v1": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 64},
        "algorithm": {"learning_rate": 1e-3, "normalize_returns": False},
    },
    "Pendulum-v1": {
        "actors": {"envs_per_actor": 32, "rollout_steps": 64},
        "algorithm": {
            "learning_rate": 1e-3,
            "epochs": 8,
            "gamma": 0.9,
        },
    },
}


def tuned_defaults(table: Mapping[str, Any], environment_id: str) -> dict[str, Any]:
    """A fresh mapping of an algorithm's defaults for this environment; empty where it has none."""
    entry = entry_for(table, environment_id)
    return {} if entry is None else copy.deepcopy(dict(table[entry]))


def entry_for(table: Mapping[str, Any], environment_id: str) -> str | None:
    """The name or pattern* under which this environment was measured; None where it was not."""
    for pattern in table:
        if environment_id == pattern or (
            pattern.endswith("*") and environment_id.startswith(pattern[:-1])
        ):
            return pattern
    return None
