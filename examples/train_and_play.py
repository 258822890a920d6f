"""Train CartPole-v1 from Python, then let the policy play one episode."""

import gymnasium

import rookery

run = rookery.train("CartPole-v1", until_return=475, steps=1_000_000)
policy = run.policy()

env = gymnasium.make("CartPole-v1")
observation, _ = env.reset(seed=1)
total, over = 0.0, False
while not over:
    observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
    total += float(reward)
    over = terminated or truncated
print(f"{run.id}: one episode, return {total:.0f}")
