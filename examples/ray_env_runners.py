"""A loop of your own on Ray: four EnvRunners play, every step is seen once; needs rookery[ray]."""

import ray

import rookery.ray

RUNNERS, ROUNDS, STEPS = 4, 5, 512
CONFIG = {"environment": {"id": "CartPole-v1"}, "actors": {"envs_per_actor": 16}}

print(f"Ray and {RUNNERS} runners start: some ten seconds", flush=True)
ray.init(num_cpus=RUNNERS, include_dashboard=False, log_to_driver=False)
make = ray.remote(rookery.ray.EnvRunner).options(num_cpus=1)
runners = [make.remote(CONFIG, seed=seed) for seed in range(RUNNERS)]
seen, returns = [0] * RUNNERS, []

for number in range(ROUNDS):
    samples = ray.get([runner.sample.remote(num_steps=STEPS) for runner in runners])
    for i, sample in enumerate(samples):
        header, steps = sample.fragment()  # numpy: steps.observation, steps.action, steps.reward
        assert (sample.sequence, sample.first_step) == (number, seen[i]), "a sample is missing"
        assert steps.valid.sum() == sample.steps >= STEPS
        assert header.version.number == number, "played with other weights than those set"
        seen[i] += sample.steps
        returns += [episode.total_reward for episode in sample.episodes]
    print(f"round {number + 1} of {ROUNDS}: {sum(seen):,} steps", flush=True)

    # here you would learn from the samples; this only moves the weights a little
    arrays = ray.get(runners[0].get_weights.remote())["main"]
    moved = {name: array * 0.99 for name, array in arrays.items()}
    weights = ray.put(rookery.ray.RunnerWeights.of({"main": moved}, number=number + 1))
    ray.get([runner.set_weights.remote(weights) for runner in runners])

told = ray.get([runner.get_metrics.remote() for runner in runners])
assert [metrics["agent_steps_total"] for metrics in told] == seen, "a step was lost or seen twice"
ray.get([runner.stop.remote() for runner in runners])
ray.shutdown()
print(f"{sum(seen):,} steps, each seen once; mean return {sum(returns) / len(returns):.1f}")
