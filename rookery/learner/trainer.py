"""The policies' train states and their compiled updates: the only part of the learner with JAX.

Policies that share an encoder form a group with one joint update; every other policy is a group by
itself. Groups do not know of one another.

Several learners of one run, a crew, train each batch together: `Crew` is what a trainer asks of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

from rookery import seeds
from rookery.algorithms.batch import Batch
from rookery.algorithms.group import Group, Moment
from rookery.algorithms.networks import Network, Params, Stats, initial_arrays
from rookery.algorithms.policies import PolicySetup, grouped, initial_weights, stream
from rookery.algorithms.train_state import Hyper, Update
from rookery.config.algorithm import live_hyperparameters
from rookery.messages.fragment import Fragment
from rookery.messages.frame import Arrays


class Running(NamedTuple):
    """An update that was begun; it may still be computed."""

    metrics: dict[str, Any]  # by policy
    after: tuple[Moment, ...]  # what it makes of each group

    def done(self) -> bool:
        return all(value.is_ready() for value in jax.tree.leaves(self.metrics))


class Crew(Protocol):
    """The learners that train each batch together, as one of them sees it."""

    size: int

    def jit(self, update: Update) -> Any:
        """The update as all of them compute it together."""
        ...

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """This learner's lanes of whole batches, as the compiled update takes them."""
        ...

    def hand_out(
        self, group: int, batches: tuple[Batch, ...], scalars: tuple[Hyper, ...]
    ) -> tuple[Batch, ...]:
        """Let the others begin an update of a group; returns our own lanes."""
        ...

    def keep_turn(self, running: Any) -> None:
        """Of several groups' updates each is computed before the next one is begun, if need be:
        all have to compute them in the same order."""
        ...

    def align(self, lanes: Mapping[str, int], arrays: Callable[[], Arrays]) -> None:
        """Let the others go on from here: with batches of these lanes, by policy, and this state.
        They compile; every update that was begun is finished."""
        ...

    def wait(self) -> None:
        """Until the others are where `align` put them."""
        ...


class Alone:
    """One learner, as most runs have it."""

    size = 1

    def jit(self, update: Update) -> Any:
        return jax.jit(update)

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return batches

    def hand_out(
        self, group: int, batches: tuple[Batch, ...], scalars: tuple[Hyper, ...]
    ) -> tuple[Batch, ...]:
        return batches

    def keep_turn(self, running: Any) -> None: ...

    def align(self, lanes: Mapping[str, int], arrays: Callable[[], Arrays]) -> None: ...

    def wait(self) -> None: ...


class Trainer:
    """Owns the train state of every policy; `update` takes a batch of fragments of each.

    Updates are compiled ahead of time from shapes alone, while the first fragments are played, and
    dispatched asynchronously: the next permutations are made while they run, and the next update
    may be begun before this one is finished; updates are finished in the order they were begun.
    Minibatches that do not divide a policy's batch are made smaller (`policies.fitted`).
    """

    def __init__(
        self,
        policies: Sequence[PolicySetup],
        steps: int,
        seed: int,
        crew: Crew | None = None,
    ) -> None:
        self.policies, self.steps, self.seed = tuple(policies), steps, seed
        self._crew: Crew = crew or Alone()
        self.hyper = {each.name: live_hyperparameters(each.algorithm) for each in policies}
        gathered = grouped(policies, steps, self._crew.size)
        weights = initial_weights(policies, seed)
        rngs = {
            each.name: seeds.generator(seed, "learner", *stream(policies, each.name))
            for each in policies
        }
        self._groups = [
            Group(members, steps, weights, rngs, self._crew.size) for members in gathered
        ]
        # Policies that differ only in their weights share a compiled update.
        self._updates: dict[Any, Any] = {}
        self._add_updates()

    def _add_updates(self) -> None:
        for group in self._groups:
            if group.shape not in self._updates:
                self._updates[group.shape] = self._crew.jit(group.make_update())

    def compile(self) -> None:
        """Compile from shapes; with a warm cache this only reads files."""
        self._align()
        for group in self._groups:
            update = self._updates[group.shape]
            if hasattr(update, "lower"):  # one that is compiled cannot be lowered again
                batches = self._crew.own(group.batches({}))
                example = (group.state, batches, self._scalars(group, 0.0))
                self._updates[group.shape] = update.lower(*example).compile()
        self._crew.wait()

    def _align(self) -> None:
        self._crew.align({policy.name: policy.lanes for policy in self.policies}, self.save)

    def reshape(self, policies: Sequence[PolicySetup]) -> None:
        """Go on with batches of other sizes; every update that was begun must be finished."""
        self.resize(policies)
        self.compile()

    def resize(self, policies: Sequence[PolicySetup]) -> None:
        gathered = grouped(policies, self.steps, self._crew.size)
        self.policies = tuple(policies)
        for group, members in zip(self._groups, gathered, strict=True):
            group.reshape(members)
        self._add_updates()

    def update(
        self, fragments: Mapping[str, Sequence[Fragment]], progress: float
    ) -> dict[str, dict[str, float]]:
        """One update, begun and finished."""
        return self.finish(self.begin(fragments, progress))

    def begin(self, fragments: Mapping[str, Sequence[Fragment]], progress: float) -> Running:
        """Begin an update; `progress` in [0, 1] drives the learning-rate schedules.

        A policy without a row to train on is left as it was and has no metrics.
        """
        running: dict[str, Any] = {}
        for index, group in enumerate(self._groups):
            played = group.played(fragments)
            if not played:
                continue
            scalars = self._scalars(group, progress)
            batches = self._crew.hand_out(index, group.batches(played), scalars)
            metrics = self._dispatch(group, batches, scalars)
            if len(self._groups) > 1:
                self._crew.keep_turn(metrics)
            found = zip(group.members, metrics, strict=True)
            running |= {m.name: metric for m, metric in found if m.name in played}
        for group in self._groups:
            group.permute(running)  # while XLA computes
        return Running(running, tuple(group.moment() for group in self._groups))

    def _dispatch(self, group: Group, batches: tuple[Batch, ...], scalars: Any) -> Any:
        update = self._updates[group.shape]
        group.state, metrics = update(group.state, batches, scalars)
        return metrics

    def follow(self, group: int, batches: tuple[Batch, ...], scalars: tuple[Hyper, ...]) -> None:
        """This learner's part of an update that its leader has begun: to the end."""
        metrics = self._dispatch(self._groups[group], batches, scalars)
        jax.block_until_ready(metrics)  # type: ignore[no-untyped-call]

    def finish(self, running: Running) -> dict[str, dict[str, float]]:
        """Wait for an update; from now on its weights are the ones to publish and to save."""
        found = jax.device_get(running.metrics)
        for group, moment in zip(self._groups, running.after, strict=True):
            group.settled = moment
        return {
            name: {key: float(value) for key, value in metrics.items()}
            for name, metrics in found.items()
        }

    def learning_rate(self, policy: str, progress: float) -> float:
        rate = self.hyper[policy]["learning_rate"]
        if self._setup(policy).algorithm.schedule == "linear":
            return rate * max(0.0, 1.0 - progress)
        return rate

    def acting_arrays(self) -> dict[str, Arrays]:
        """What each policy needs to act: parameters and statistics, without the value's."""
        return self._arrays(Network.acting_arrays)

    def critic_arrays(self) -> dict[str, Arrays]:
        """What acting leaves out: each policy's value network and the scale of its returns."""
        return self._arrays(Network.critic_arrays)

    def _arrays(self, part: Callable[[Network, Params, Stats], Arrays]) -> dict[str, Arrays]:
        return {
            member.name: part(member.network, state.params(i), state.policies[i].stats)
            for group in self._groups
            for state in [group.settled.state]
            for i, member in enumerate(group.members)
        }

    def save(self) -> Arrays:
        """Every array of the train states and the host's random states, by name."""
        arrays: Arrays = {}
        for group in self._groups:
            arrays |= group.save()
        return arrays

    def restore(self, arrays: Arrays, learners: int = 1) -> None:
        """What a trainer in a crew of so many has saved."""
        for group in self._groups:
            group.restore(arrays, learners)

    def reset(self, policy: str, salt: int) -> None:
        """Begin a policy anew from fresh weights, other ones for each salt.

        A shared encoder stays as it is; so do the policy's live hyperparameters.
        """
        index = self.policies.index(self._setup(policy))
        arrays = initial_arrays(self.policies[index].network, self.seed, index, salt)
        for group in self._groups:
            for i, member in enumerate(group.members):
                if member.name == policy:
                    group.begin(i, *arrays)
        self._align()
        self._crew.wait()

    def _setup(self, policy: str) -> PolicySetup:
        return next(each for each in self.policies if each.name == policy)

    def _scalars(self, group: Group, progress: float) -> tuple[dict[str, np.float32], ...]:
        found = []
        for name in (member.name for member in group.members):
            rate = self.learning_rate(name, progress)
            values = {**self.hyper[name], "learning_rate": rate}
            found.append({key: np.float32(value) for key, value in values.items()})
        return tuple(found)
