"""The policies that one learner trains: who they are, what they begin with, who shares an encoder.

Nothing here imports JAX: the first weights are published before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from rookery.algorithms import Algorithm, algorithm_of
from rookery.algorithms.networks import Network, Params, Stats, initial_arrays
from rookery.config.algorithm import AlgorithmConfig
from rookery.errors import ConfigError

ORDER = "learner.order"  # in a checkpoint: which rows of the next batch make which minibatch
_FIRST_POLICY = "main"  # draws from the run's own streams, as the only policy of a run does


@dataclass(frozen=True)
class PolicySetup:
    """One policy and how it is trained."""

    name: str
    network: Network
    algorithm: AlgorithmConfig
    lanes: int  # B of its batch: all fragments of an update side by side
    trains_encoder: bool = True  # False: it sees through the shared encoder but does not change it


def stream(policies: Sequence[PolicySetup], name: str) -> tuple[int, ...]:
    """What tells a policy's random streams apart from the others', as a place in `seeds`."""
    names = [policy.name for policy in policies]
    return () if name == _FIRST_POLICY else (names.index(name),)


def initial_weights(policies: Sequence[PolicySetup], seed: int) -> dict[str, tuple[Params, Stats]]:
    """What each policy begins with; a shared encoder is that of the first policy that names it."""
    found: dict[str, tuple[Params, Stats]] = {}
    encoders: dict[str, Params] = {}
    for policy in policies:
        params, stats = initial_arrays(policy.network, seed, *stream(policies, policy.name))
        encoder = policy.network.config.encoder
        if encoder is not None:
            own = {name: params[name] for name in policy.network.encoder_names(params)}
            params.update(encoders.setdefault(encoder, own))
        found[policy.name] = params, stats
    return found


def fitted(policy: PolicySetup, steps: int, learners: int = 1) -> PolicySetup:
    """The policy with minibatches that divide its batch, or the lanes of each of several learners.

    The config foresees one number of lanes; where a policy has another, its algorithm says what
    comes nearest and leaves nothing over.
    """
    algorithm = algorithm_of(policy.algorithm)
    if learners == 1:
        return replace(policy, algorithm=algorithm.fitted(steps, policy.lanes))
    if policy.lanes % learners:
        raise ConfigError(
            f"learner.count={learners} does not divide the {policy.lanes} lanes of a batch"
        )
    algorithm = algorithm_of(algorithm.fitted(steps, policy.lanes, learners))
    try:
        shared = algorithm.shared(steps, policy.lanes, learners)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return replace(policy, algorithm=shared)


def gradient_steps(policy: PolicySetup, steps: int, learners: int = 1) -> int:
    """Gradient steps per update."""
    algorithm = algorithm_of(policy.algorithm)
    return len(algorithm.make_order(np.random.default_rng(0), steps, policy.lanes // learners))


def grouped(
    policies: Sequence[PolicySetup], steps: int, learners: int = 1
) -> list[tuple[PolicySetup, ...]]:
    """Policies that are updated together: those of one encoder, and each other one by itself."""
    names = [policy.name for policy in policies]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two policies are named {name!r}: give each its own name")
    found: dict[tuple[str, str], list[PolicySetup]] = {}
    for policy in policies:
        encoder = policy.network.config.encoder
        key = ("policy", policy.name) if encoder is None else ("encoder", encoder)
        if encoder is not None:
            _check_encoder(encoder, policy)
        found.setdefault(key, []).append(fitted(policy, steps, learners))
    for (_, encoder), members in found.items():
        for left, right in pairwise(members):
            _check_alike(encoder, left, right, steps, learners)
    return [tuple(members) for members in found.values()]


def _check_alike(
    encoder: str, left: PolicySetup, right: PolicySetup, steps: int, learners: int
) -> None:
    """One joint update needs as many gradient steps of each, of one kind, through one encoder."""
    pair = f"policies {left.name!r} and {right.name!r} share the encoder {encoder!r} but"
    if _encoder_shape(left) != _encoder_shape(right):
        raise ConfigError(
            f"{pair} theirs differ in shape: both need the same observations, encoder_hidden, "
            "channels and activation"
        )
    kinds = left.algorithm.kind, right.algorithm.kind
    if kinds[0] != kinds[1]:
        raise ConfigError(f"{pair} learn by {kinds[0]} and {kinds[1]}: use one algorithm for both")
    counts = gradient_steps(left, steps, learners), gradient_steps(right, steps, learners)
    if counts[0] != counts[1]:
        raise ConfigError(
            f"{pair} make {counts[0]} and {counts[1]} gradient steps per update: set epochs and "
            "minibatches so that the two are equal"
        )
    for policy in (left, right):
        why = algorithm_of(policy.algorithm).why_alone()
        if why is not None:
            raise ConfigError(f"{pair} {policy.name!r} {why}")


def _check_encoder(encoder: str, policy: PolicySetup) -> None:
    """Only the shared gradient loop knows encoders."""
    if type(algorithm_of(policy.algorithm)).make_update is not Algorithm.make_update:
        raise ConfigError(
            f"policy {policy.name!r} names the encoder {encoder!r} but {policy.algorithm.kind} has "
            "an update of its own, which knows none: set network.encoder to null"
        )


def _encoder_shape(policy: PolicySetup) -> tuple[object, ...]:
    network = policy.network
    leaves = [(leaf.path, leaf.kind, leaf.shape, leaf.sizes) for leaf in network.spec.observation]
    config = network.config
    return leaves, config.encoder_hidden, config.channels, config.activation
