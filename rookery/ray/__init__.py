"""For those who write their own loop on Ray: Rookery's playing and serving as plain parts of it.

    runners = [ray.remote(rookery.ray.EnvRunner).remote("CartPole-v1", seed=i) for i in range(4)]
    samples = ray.get([runner.sample.remote(num_steps=512) for runner in runners])
    app = rookery.ray.serve_app("last")
    tuner = rookery.ray.tuner("CartPole-v1", search={"algorithm.gamma": "0.9..0.999"})

Only serving and tuning need Ray itself. What crosses a process is bytes of Rookery's own codec: a
sample and weights say themselves how they are taken apart, and are checked when they are put
together.
"""

from __future__ import annotations

from rookery.ray.env_runner import EnvRunner
from rookery.ray.sample import Sample
from rookery.ray.serve import serve_app
from rookery.ray.tuner import tuner
from rookery.ray.weights import RunnerWeights, load_weights

__all__ = ["EnvRunner", "RunnerWeights", "Sample", "load_weights", "serve_app", "tuner"]
