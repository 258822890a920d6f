"""A policy behind HTTP on Ray Serve, thin: weights by the run's name, requests decided together.

    ray.serve.run(rookery.ray.serve_app("last"))

    {"observation": [0.1, 0.0, 0.02, 0.0]}      ->  {"action": 1, "version": 340}
    {"observations": [[...], [...]]}            ->  {"actions": [1, 0], "version": 340}
    {"observation": ..., "mask": [true, ...]}       where the environment says what is legal
    anything else                               ->  400 or 422, {"error": "one line"}

The weights travel with the application, so its replicas need no home. The observations'
normalisation is among them: observations come raw, as the environment gives them.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.errors import InputError, MissingExtra
from rookery.messages.weights import encode_weights
from rookery.ray.weights import RunnerWeights, frozen_policy

if TYPE_CHECKING:
    from ray.serve import Application


def serve_app(
    run: str = "last",
    policy: str | None = None,
    version: int | None = None,
    *,
    greedy: bool = True,
    max_batch: int = 64,
    batch_wait_s: float = 0.002,
    num_replicas: int = 1,
    home: str | Path | None = None,
    **options: Any,
) -> Application:
    """The application of a run's policy: its newest weights, or those of a version in its league.

    `greedy`: the likeliest action, or else one by chance. Requests that come within `batch_wait_s`
    are decided together, up to `max_batch` at a time. `options` are Ray Serve's own for a
    deployment, like `ray_actor_options={"num_cpus": 1}`.
    """
    if max_batch < 1 or batch_wait_s < 0:
        raise InputError("max_batch is at least 1 and batch_wait_s at least 0")
    try:
        with warnings.catch_warnings():  # Ray Serve's own, of pydantic, where it is imported
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            from ray import serve

            from rookery.ray.replica import PolicyReplica
    except ImportError as error:
        raise MissingExtra("serve_app", "ray-serve") from error
    frozen = frozen_policy(run, policy, version, home)
    (message,) = RunnerWeights.of(frozen).policies.values()
    deploy = serve.deployment(
        name=f"{frozen.run}-{frozen.policy}",
        num_replicas=num_replicas,
        max_ongoing_requests=4 * max_batch,
        **options,
    )
    return deploy(PolicyReplica).bind(
        encode_weights(message),
        msgspec.msgpack.encode(frozen.network.spec),  # which has infinite bounds
        frozen.network.config.model_dump_json(),
        greedy,
        max_batch,
        batch_wait_s,
    )
