"""A follower: a learner that computes its lanes of every update, and nothing else.

It reads no experience, publishes nothing and saves nothing: its leader does, once for all of them.
It ends when its leader says so, or is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.algorithms.batch import Batch
from rookery.algorithms.policies import PolicySetup
from rookery.config.models import RunConfig
from rookery.errors import CrewLost
from rookery.learner.crew import Bond, answer, end_without_farewell
from rookery.learner.line import Line
from rookery.messages.crew import Aligned, CrewMessage, Over, Ready, Shared, encode_crew
from rookery.messages.frame import Arrays
from rookery.messages.steps import Steps, from_named
from rookery.worker import WorkerId
from rookery.worker.context import RunContext
from rookery.worker.policies import policy_setups

if TYPE_CHECKING:
    from rookery.algorithms.train_state import Hyper, Update
    from rookery.learner.collective import Axis
    from rookery.learner.trainer import Trainer


class Follower:
    """A `trainer.Crew`: its trainer is told everything by the leader."""

    def __init__(self, line: Line, axis: Axis) -> None:
        self.size = axis.size
        self._line, self._axis = line, axis

    def jit(self, update: Update) -> Any:
        return self._axis.jit(update)

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return self._axis.own(batches)

    def hand_out(
        self, group: int, batches: tuple[Batch, ...], scalars: tuple[Hyper, ...]
    ) -> tuple[Batch, ...]:
        raise NotImplementedError("only a leader begins updates")

    def keep_turn(self, running: Any) -> None: ...

    def align(self, lanes: Mapping[str, int], arrays: Callable[[], Arrays]) -> None: ...

    def wait(self) -> None:
        self._line.send(encode_crew(Ready()))


def follow(context: RunContext, worker: WorkerId, stop: Callable[[], bool]) -> int:
    """Compute until the leader says that training is over. Once it has joined its leader it is the
    leader alone that is asked to stop: it needs this one to finish what was begun."""
    bond = Bond()
    with context.pulse(worker) as pulse:
        pulse.busy("waiting")
        found = answer(context.bus, worker.index, bond, stop)
        if found is None:
            return 0
        line, welcome, host = found
        try:
            from rookery.learner.collective import Axis, meet, part

            meet(welcome.coordinator, worker.index, welcome.size, host)
            axis = Axis(worker.index, welcome.size)
            compute(_learning(context), context.config, line, axis, pulse.busy)
            bond.loosen()
            part()
            line.close()
        except Exception as error:
            explained = bond.explain(error) if isinstance(error, RuntimeError) else error
            bond.loosen()
            end_without_farewell(explained)
            if explained is error:
                raise
            raise explained from error
    return 0


def _learning(context: RunContext) -> list[PolicySetup]:
    setups = policy_setups(context.config, context.seating)
    return [setups[policy] for policy in context.config.learning]


def compute(
    policies: Sequence[PolicySetup],
    config: RunConfig,
    line: Line,
    axis: Axis,
    busy: Callable[[str], None] = lambda doing: None,
) -> None:
    """Do what the leader says, until it says that it is over."""
    from rookery.learner.trainer import Trainer

    trainer: Trainer | None = None
    while True:
        busy("waiting")
        message = line.receive()
        assert message is not None
        match message.word:
            case Aligned(lanes=lanes):
                busy("starting")
                batches = [replace(setup, lanes=lanes[setup.name]) for setup in policies]
                trainer = trainer or Trainer(
                    batches, config.actors.rollout_steps, config.seed, Follower(line, axis)
                )
                _go_on_from(trainer, batches, message.arrays, axis.size)
            case Shared(group=group, scalars=scalars) if trainer is not None:
                busy("training")
                hyper = tuple({k: np.float32(v) for k, v in each.items()} for each in scalars)
                trainer.follow(group, axis.placed(_batches_in(message, len(hyper))), hyper)
            case Over():
                return
            case _:
                raise CrewLost(f"learner-0 said something out of turn: {message.word}")


def _go_on_from(
    trainer: Trainer, policies: list[PolicySetup], arrays: Arrays, learners: int
) -> None:
    if [p.lanes for p in trainer.policies] != [p.lanes for p in policies]:
        trainer.resize(policies)
    trainer.restore(arrays, learners)
    trainer.compile()


def _batches_in(message: CrewMessage, members: int) -> tuple[Batch, ...]:
    """The lanes of each member of a group."""
    found = []
    for member in range(members):
        prefix = f"{member}/"
        own = {n.removeprefix(prefix): a for n, a in message.arrays.items() if n.startswith(prefix)}
        order = own.pop("order")
        found.append(Batch(from_named(Steps, own, ("observation", "state")), order))
    return tuple(found)
