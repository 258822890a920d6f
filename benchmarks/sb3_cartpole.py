"""The peer's half of `versus.py`: stable-baselines3 PPO on CartPole-v1, one JSON line on stdout.

Runs in the environment that `versus.py` makes, which has stable-baselines3 and torch but not
Rookery. `speed` trains for a fixed number of steps and reports the steady steps per second.
`solve` trains until the mean of the last 100 episodes reaches the target and prints its line that
very moment, so that the parent's clock, started at Popen, gives the seconds to solve.

Only the values in HYPERPARAMETERS and the single torch thread are ours; everything else is
stable-baselines3's default (listed in README.md). Its progress output is off, which is the
fastest it has.
"""

import argparse
import json
import time
from collections import deque
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3 import __version__ as sb3_version
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

ENVIRONMENTS = 64
HYPERPARAMETERS = {"n_steps": 64, "batch_size": 1024, "n_epochs": 6, "learning_rate": 2e-3}
SCORE_EPISODES = 100


class SteadyClock(BaseCallback):
    """Marks the moment the first update is over: the second time a rollout starts."""

    def __init__(self) -> None:
        super().__init__()
        self.rollouts = 0
        self.start_s = 0.0
        self.start_steps = 0

    def _on_rollout_start(self) -> None:
        self.rollouts += 1
        if self.rollouts == 2:
            self.start_s, self.start_steps = time.perf_counter(), self.num_timesteps

    def _on_step(self) -> bool:
        return True


class StopAtReturn(BaseCallback):
    """Stops the training as soon as the mean of the last 100 episodes reaches the target."""

    def __init__(self, target_return: float) -> None:
        super().__init__()
        self.target_return = target_return
        self.returns: deque[float] = deque(maxlen=SCORE_EPISODES)

    @property
    def mean_return(self) -> float:
        return sum(self.returns) / max(len(self.returns), 1)

    @property
    def solved(self) -> bool:
        return len(self.returns) == SCORE_EPISODES and self.mean_return >= self.target_return

    def _on_step(self) -> bool:
        ended = self.locals["dones"].nonzero()[0]
        self.returns.extend(self.locals["infos"][i]["episode"]["r"] for i in ended)
        return not (len(ended) and self.solved)


def ppo(seed: int) -> PPO:
    envs = make_vec_env("CartPole-v1", n_envs=ENVIRONMENTS, seed=seed)
    return PPO("MlpPolicy", envs, seed=seed, device="cpu", verbose=0, **HYPERPARAMETERS)


def speed(steps: int, seed: int) -> dict[str, Any]:
    """Steps per second from the end of the first update to the end of the last one."""
    model, clock = ppo(seed), SteadyClock()
    model.learn(steps, callback=clock)
    elapsed_s = time.perf_counter() - clock.start_s
    if clock.rollouts < 2:
        raise SystemExit(f"--steps {steps} is one rollout only: give at least two")
    measured_steps = model.num_timesteps - clock.start_steps
    return {"steps_per_s": measured_steps / elapsed_s, "env_steps": model.num_timesteps}


def solve(steps: int, seed: int, target_return: float) -> dict[str, Any]:
    """Whether, and after how many steps, the target was reached within the budget."""
    model, stop = ppo(seed), StopAtReturn(target_return)
    model.learn(steps, callback=stop)
    return {
        "solved": stop.solved,
        "env_steps": model.num_timesteps,
        "mean_return_100": stop.mean_return,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measure", choices=["speed", "solve"])
    parser.add_argument("--steps", type=int, required=True, help="budget in environment steps")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--until-return", type=float, default=475.0, help="target of `solve`")
    args = parser.parse_args()

    torch.set_num_threads(1)
    if args.measure == "speed":
        result = speed(args.steps, args.seed)
    else:
        result = solve(args.steps, args.seed, args.until_return)
    versions = {"torch": torch.__version__, "stable_baselines3": sb3_version}
    print(json.dumps(result | {"versions": versions}), flush=True)


if __name__ == "__main__":
    main()
