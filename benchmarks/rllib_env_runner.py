"""The peer's half of `ray_env_runners.py`: RLlib's SingleAgentEnvRunner on CartPole-v1.

Runs in the environment that `ray_env_runners.py` makes, which has ray[rllib] and torch but not
Rookery. Samples with the network of a fresh PPO in this very process, without a cluster and without
an algorithm around it, on Gymnasium's own vector environment, which was 1.4 times as fast as its
default of one environment after the other. Prints one JSON line.
"""

import argparse
import json
import time
import warnings

import torch

warnings.filterwarnings("ignore")

import gymnasium  # noqa: E402
import ray  # noqa: E402
from ray.rllib.algorithms.ppo import PPOConfig  # noqa: E402
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig  # noqa: E402
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--environments", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--call-steps", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    config = (
        PPOConfig()
        .environment("CartPole-v1")
        .env_runners(
            num_envs_per_env_runner=args.environments,
            gym_env_vectorize_mode="sync" if args.environments == 1 else "vector_entry_point",
        )
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh"))
        .debugging(seed=args.seed)
    )
    runner = SingleAgentEnvRunner(config=config)
    runner.sample(num_timesteps=args.call_steps, random_actions=False)
    steps, began = 0, time.perf_counter()
    while steps < args.steps:
        episodes = runner.sample(num_timesteps=args.call_steps, random_actions=False)
        steps += sum(len(episode) for episode in episodes)
    elapsed_s = time.perf_counter() - began
    runner.stop()
    versions = {"ray": ray.__version__, "torch": torch.__version__}
    versions["gymnasium"] = gymnasium.__version__
    print(json.dumps({"steps_per_s": steps / elapsed_s, "versions": versions}))


if __name__ == "__main__":
    main()
