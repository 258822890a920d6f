"""Policies that are updated together: one by itself, or those that share an encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.algorithms import algorithm_of
from rookery.algorithms.batch import Batch, blank, has_trained_rows, stack
from rookery.algorithms.networks import Params, Stats
from rookery.algorithms.optimizer import Moments, init_moments
from rookery.algorithms.policies import ORDER, PolicySetup
from rookery.algorithms.train_state import (
    EncoderState,
    GroupState,
    TrainState,
    Update,
    init_state,
)
from rookery.algorithms.update import group_of_one, if_finite, make_update
from rookery.config.algorithm import AlgorithmConfig, live_hyperparameters
from rookery.errors import DamagedCheckpoint
from rookery.messages.fragment import Fragment
from rookery.messages.frame import Arrays


class Moment(NamedTuple):
    """All of a group between two updates. Its arrays may still be computed."""

    state: GroupState
    orders: dict[str, np.ndarray]
    rngs: dict[str, Mapping[str, Any]]


class Group:
    """The state of its members, and the order of their next minibatches.

    `state` is that after every update that was begun, `settled` all of the group after the last one
    that was finished: what may be published and saved without waiting.
    """

    def __init__(
        self,
        members: tuple[PolicySetup, ...],
        steps: int,
        weights: Mapping[str, tuple[Params, Stats]],
        rngs: Mapping[str, np.random.Generator],
        learners: int = 1,
    ) -> None:
        """`learners`: of a crew, each with an equal part of the lanes; members then have the
        algorithm of one of them (`policies.fitted`)."""
        self._take(members)
        self._steps, self._learners = steps, learners
        self._encoder = members[0].network.config.encoder
        first, _ = weights[members[0].name]
        shared = {name: first[name] for name in members[0].network.encoder_names(first)}
        self.state = GroupState(
            None if self._encoder is None else EncoderState(shared, init_moments(shared)),
            tuple(self._fresh(member, *weights[member.name]) for member in members),
        )
        self._rngs = {member.name: rngs[member.name] for member in members}
        self._orders: dict[str, np.ndarray] = {}
        self.permute(self._rngs)
        self.settled = self.moment()

    def _take(self, members: tuple[PolicySetup, ...]) -> None:
        self.members = members
        self._algorithms = {each.name: algorithm_of(each.algorithm) for each in members}

    def reshape(self, members: tuple[PolicySetup, ...]) -> None:
        """The same policies with batches of other sizes, from the next update on."""
        self._take(members)
        self.permute(self._rngs)
        self.settled = self.moment()

    @property
    def shape(self) -> tuple[object, ...]:
        """All that the update is compiled from; live hyperparameters are its arguments."""
        return tuple(
            (m.network, _without_live(m.algorithm), m.lanes, m.trains_encoder) for m in self.members
        )

    def make_update(self) -> Update:
        if self._encoder is None:
            (alone,) = self.members
            own = self._algorithms[alone.name].make_update(alone.network)
            return if_finite(group_of_one(own))
        objectives = [self._algorithms[m.name].make_objective(m.network) for m in self.members]
        trains_encoder = [member.trains_encoder for member in self.members]
        return if_finite(make_update(objectives, trains_encoder))

    def played(self, fragments: Mapping[str, Sequence[Fragment]]) -> dict[str, Sequence[Fragment]]:
        """The fragments of each member that has something to learn from."""
        own = {name: fragments.get(name, ()) for name in self._algorithms}
        return {
            name: own[name]
            for name, algorithm in self._algorithms.items()
            if has_trained_rows(own[name], algorithm.needs_log_prob)
        }

    def batches(self, played: Mapping[str, Sequence[Fragment]]) -> tuple[Batch, ...]:
        """A batch of each member, blank for those that did not play."""
        found = []
        for member in self.members:
            order = self._orders[member.name]
            if member.name in played:
                found.append(stack(played[member.name], order))
            else:
                found.append(Batch(blank(member.network, self._steps, member.lanes), order))
        return tuple(found)

    def permute(self, played: Mapping[str, object]) -> None:
        """Make the next order of each member that played."""
        for member in self.members:
            if member.name in played:
                self._orders[member.name] = self._order(member)

    def _order(self, member: PolicySetup) -> np.ndarray:
        """Of several learners side by side, each numbered from its own first lane."""
        rng, lanes = self._rngs[member.name], member.lanes // self._learners
        make = self._algorithms[member.name].make_order
        if self._learners == 1:
            return make(rng, self._steps, lanes)
        each = [make(rng, self._steps, lanes) for _ in range(self._learners)]
        return np.concatenate(each, axis=1)

    def moment(self) -> Moment:
        rngs = {name: rng.bit_generator.state for name, rng in self._rngs.items()}
        return Moment(self.state, dict(self._orders), rngs)

    def begin(self, index: int, params: Params, stats: Stats) -> None:
        """Let a member begin anew with these arrays, its encoder's aside."""
        policies = list(self.state.policies)
        shared = {} if self.state.encoder is None else self.state.encoder.params
        policies[index] = self._fresh(self.members[index], {**params, **shared}, stats)
        self.state = self.state._replace(policies=tuple(policies))
        self.settled = self.moment()

    def save(self) -> Arrays:
        """Every array by name; a policy's parameters whole, so that it can be read alone."""
        arrays = self._state_arrays()
        for name, rng in self.settled.rngs.items():
            arrays[f"{name}/learner.rng"] = np.frombuffer(json.dumps(rng).encode(), np.uint8)
        return arrays

    def restore(self, arrays: Arrays, learners: int) -> None:
        """`learners`: of the crew that saved them; the next order is drawn anew for another one."""
        for name, leaf in self._state_arrays().items():
            saved = arrays.get(name)
            if saved is None and name.endswith(ORDER):
                continue  # a fork with other batches: it has drawn an order of its own
            if saved is None or saved.shape != leaf.shape or saved.dtype != leaf.dtype:
                raise DamagedCheckpoint(
                    f"array {name!r} of the checkpoint does not fit this network: was the config "
                    "or the environment changed?"
                )
        policies = []
        for member, state in zip(self.members, self.state.policies, strict=True):
            params = _named(arrays, f"{member.name}/params", state.params)
            moments = _moments(arrays, f"{member.name}/optimizer")
            stats = _named(arrays, f"{member.name}/stats", state.stats)
            extra = _named(arrays, f"{member.name}/extra", state.extra)
            policies.append(TrainState(params, moments, stats, extra))
            order = arrays.get(f"{member.name}/{ORDER}")
            if order is not None:
                self._orders[member.name] = np.array(order)
            rng = json.loads(arrays[f"{member.name}/learner.rng"].tobytes())
            self._rngs[member.name].bit_generator.state = rng
        encoder = self.state.encoder
        if encoder is not None:
            shared = _named(arrays, f"{self.members[0].name}/params", encoder.params)
            encoder = EncoderState(shared, _moments(arrays, f"encoder:{self._encoder}/optimizer"))
        self.state = GroupState(encoder, tuple(policies))
        if learners != self._learners:
            self.permute(self._rngs)
        self.settled = self.moment()

    def _fresh(self, member: PolicySetup, params: Params, stats: Stats) -> TrainState:
        """A policy's own state, without its encoder's."""
        extra = self._algorithms[member.name].init_extra(member.network, params)
        shared = member.network.encoder_names(params)
        own = {name: array for name, array in params.items() if name not in shared}
        return init_state(own, stats, extra)

    def _state_arrays(self) -> Arrays:
        arrays: dict[str, Any] = {}
        whole, orders, _ = self.settled
        for i, (member, state) in enumerate(zip(self.members, whole.policies, strict=True)):
            arrays |= _prefixed(f"{member.name}/params", whole.params(i))
            arrays |= _prefixed(f"{member.name}/optimizer", state.optimizer._asdict())
            arrays |= _prefixed(f"{member.name}/stats", state.stats)
            arrays |= _prefixed(f"{member.name}/extra", state.extra)
            arrays[f"{member.name}/{ORDER}"] = orders[member.name]
        if whole.encoder is not None:
            moments = whole.encoder.optimizer._asdict()
            arrays |= _prefixed(f"encoder:{self._encoder}/optimizer", moments)
        return {name: np.asarray(array) for name, array in arrays.items()}


def _without_live(algorithm: AlgorithmConfig) -> AlgorithmConfig:
    return algorithm.model_copy(update=dict.fromkeys(live_hyperparameters(algorithm), 0.0))


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{name}": array for name, array in arrays.items()}


def _named(arrays: Arrays, prefix: str, like: Mapping[str, object]) -> Arrays:
    return {name: np.array(arrays[f"{prefix}/{name}"]) for name in like}


def _moments(arrays: Arrays, prefix: str) -> Moments:
    return Moments(*(np.array(arrays[f"{prefix}/{field}"]) for field in Moments._fields))
