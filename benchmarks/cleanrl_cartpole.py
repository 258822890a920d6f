"""A second peer of `versus.py`: PPO on CartPole-v1 as one loop in the manner of CleanRL.

Runs in the environment that `versus.py` makes, which has torch and Gymnasium but not Rookery, and
prints one JSON line. Everything is in one process and takes turns: 256 environments of Gymnasium's
numpy vector environment are stepped 32 times, then 4 epochs of minibatches of 2048 follow. It is
the fastest plain loop that we could write on torch: one thread, preallocated storage, no logging.
"""

import argparse
import json
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

ENVIRONMENTS, STEPS, MINIBATCH, EPOCHS = 256, 32, 2048, 4
BATCH = ENVIRONMENTS * STEPS
LEARNING_RATE, GAMMA, GAE_LAMBDA, CLIP = 2e-3, 0.99, 0.9, 0.2
ENTROPY_COEF, VALUE_COEF, MAX_GRAD_NORM = 0.01, 0.5, 0.5


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def network(outputs: int, gain: float) -> nn.Sequential:
    return nn.Sequential(
        layer(4, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, outputs, gain)
    )


class Agent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = network(2, 0.01), network(1, 1.0)

    def value(self, observation: torch.Tensor) -> torch.Tensor:
        value: torch.Tensor = self.critic(observation).squeeze(-1)
        return value

    def policy(self, observation: torch.Tensor) -> Categorical:
        return Categorical(logits=self.actor(observation), validate_args=False)


class Rollout:
    """T x B rows, and where the environments stand after them."""

    def __init__(self, seed: int) -> None:
        self.envs = gymnasium.make_vec(
            "CartPole-v1", num_envs=ENVIRONMENTS, vectorization_mode="vector_entry_point"
        )
        shape = (STEPS, ENVIRONMENTS)
        self.observation = torch.zeros((*shape, 4))
        self.action = torch.zeros(shape, dtype=torch.int64)
        self.log_prob, self.reward, self.value = torch.zeros((3, *shape))
        self.ended, self.resets = torch.zeros((2, *shape))
        first, _ = self.envs.reset(seed=seed)
        self.next = torch.as_tensor(first)
        self.next_ended = torch.zeros(ENVIRONMENTS)

    @torch.no_grad()
    def play(self, agent: Agent) -> None:
        for t in range(STEPS):
            self.observation[t] = self.next
            self.resets[t] = self.next_ended  # this step only begins a new episode there
            policy = agent.policy(self.next)
            action = policy.sample()
            self.action[t], self.log_prob[t] = action, policy.log_prob(action)
            self.value[t] = agent.value(self.next)
            observation, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            self.reward[t] = torch.as_tensor(reward)
            self.next = torch.as_tensor(observation)
            self.next_ended = torch.as_tensor(np.logical_or(terminated, truncated)).float()
            self.ended[t] = self.next_ended

    @torch.no_grad()
    def advantages(self, agent: Agent) -> torch.Tensor:
        """Generalised advantage estimation; as in CleanRL, a truncated episode counts as over."""
        advantage = torch.zeros_like(self.reward)
        following, value = torch.zeros(ENVIRONMENTS), agent.value(self.next)
        for t in reversed(range(STEPS)):
            goes_on = 1.0 - self.ended[t]
            delta = self.reward[t] + GAMMA * value * goes_on - self.value[t]
            following = delta + GAMMA * GAE_LAMBDA * goes_on * following
            advantage[t], value = following, self.value[t]
        return advantage


def update(agent: Agent, optimizer: torch.optim.Adam, rollout: Rollout) -> None:
    advantage = rollout.advantages(agent)
    target = (advantage + rollout.value).reshape(-1)
    advantage = advantage.reshape(-1)
    observation, action = rollout.observation.reshape(-1, 4), rollout.action.reshape(-1)
    old_log_prob = rollout.log_prob.reshape(-1)
    for _ in range(EPOCHS):
        for rows in torch.randperm(BATCH).split(MINIBATCH):
            policy = agent.policy(observation[rows])
            ratio = (policy.log_prob(action[rows]) - old_log_prob[rows]).exp()
            wanted = advantage[rows]
            wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-8)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            policy_loss = -torch.min(ratio * wanted, clipped * wanted).mean()
            value_loss = (agent.value(observation[rows]) - target[rows]).square().mean()
            loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), MAX_GRAD_NORM)
            optimizer.step()


def speed(steps: int, seed: int) -> dict[str, Any]:
    """Steps per second from the end of the first update to the end of the last one."""
    torch.manual_seed(seed)
    agent, rollout = Agent(), Rollout(seed)
    optimizer = torch.optim.Adam(agent.parameters(), lr=LEARNING_RATE, eps=1e-5)
    counted, began_s = 0, 0.0
    updates = max(2, -(-steps // BATCH))
    for number in range(updates):
        rollout.play(agent)
        update(agent, optimizer, rollout)
        if number == 0:
            began_s = time.perf_counter()
        else:
            counted += BATCH - int(rollout.resets.sum())  # as Rookery counts: steps, not resets
    elapsed_s = time.perf_counter() - began_s
    ended = max(float(rollout.ended.sum()), 1.0)
    return {"steps_per_s": counted / elapsed_s, "mean_length": BATCH / ended}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, required=True, help="budget in environment steps")
    parser.add_argument("--seed", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    result = speed(args.steps, args.seed)
    print(json.dumps(result | {"versions": {"torch": torch.__version__}}), flush=True)


if __name__ == "__main__":
    main()
