"""The leader of a crew: the learner that owns inbox, ledger, league and checkpoints, and hands each
follower its lanes of every batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.algorithms.batch import Batch
from rookery.errors import CrewLost
from rookery.learner.crew import Bond, call, end_without_farewell
from rookery.learner.line import Line
from rookery.messages.crew import Aligned, Over, Ready, Shared, encode_crew
from rookery.messages.frame import Arrays
from rookery.messages.steps import named_arrays
from rookery.worker.context import RunContext

if TYPE_CHECKING:
    from rookery.algorithms.train_state import Hyper, Update
    from rookery.learner.collective import Axis

READY_S = 1800.0  # for followers to compile, as long as a worker may start


class Leader:
    """A `trainer.Crew`."""

    def __init__(self, lines: Sequence[Line], axis: Axis, bond: Bond) -> None:
        self.size = axis.size
        self._lines, self._axis, self._bond = lines, axis, bond

    def jit(self, update: Update) -> Any:
        return self._axis.jit(update)

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        return self._axis.own(batches)

    def hand_out(
        self, group: int, batches: tuple[Batch, ...], scalars: tuple[Hyper, ...]
    ) -> tuple[Batch, ...]:
        self._bond.check()
        told = Shared(group, tuple({k: float(v) for k, v in each.items()} for each in scalars))
        for index, line in enumerate(self._lines, start=1):
            line.send(encode_crew(told, self._lanes(index, batches)))
        return self._axis.own(batches)

    def _lanes(self, index: int, batches: tuple[Batch, ...]) -> list[tuple[str, np.ndarray]]:
        return [
            (f"{member}/{name}", self._axis.lanes_of(index, array))
            for member, batch in enumerate(batches)
            for name, array in [("order", batch.order), *named_arrays(batch.steps)]
        ]

    def keep_turn(self, running: Any) -> None:
        import jax

        jax.block_until_ready(running)  # type: ignore[no-untyped-call]

    def align(self, lanes: Mapping[str, int], arrays: Callable[[], Arrays]) -> None:
        payload = encode_crew(Aligned(dict(lanes)), list(arrays().items()))
        for line in self._lines:
            line.send(payload)

    def wait(self) -> None:
        for line in self._lines:
            message = line.receive(READY_S)
            self._bond.check()
            if message is None or not isinstance(message.word, Ready):
                raise CrewLost(f"{line.name} was not ready within {READY_S:.0f} s")

    def dismiss(self) -> None:
        """Training has ended: everyone goes."""
        from rookery.learner.collective import part

        self._bond.loosen()
        for line in self._lines:
            line.send(encode_crew(Over()))
        part()
        for line in self._lines:
            line.close()


class Muster:
    """Calls the crew when a generation is claimed; what `build_learner` is handed."""

    def __init__(self, context: RunContext, size: int, stopped: Callable[[], bool]) -> None:
        self._context, self._size, self._stopped = context, size, stopped
        self.bond = Bond()
        self.leader: Leader | None = None

    def __call__(self, generation: int) -> Leader:
        from rookery.learner.collective import Axis, meet

        host = self._context.host
        lines, coordinator = call(
            self._context.bus,
            self._context.run,
            generation,
            self._size,
            host,
            self.bond,
            self._stopped,
        )
        meet(coordinator, 0, self._size, host)
        self.leader = Leader(lines, Axis(0, self._size), self.bond)
        return self.leader

    def stopped(self) -> bool:
        """For the loop: raises when one of the crew is gone."""
        return self.bond.check() or self._stopped()


@contextmanager
def mustered(context: RunContext, size: int, stopped: Callable[[], bool]) -> Iterator[Muster]:
    """A crew for as long as the block lasts. Whatever goes wrong in it ends all of them."""
    muster = Muster(context, size, stopped)
    try:
        yield muster
        if muster.leader is not None:
            muster.leader.dismiss()
    except Exception as error:
        explained = muster.bond.explain(error) if isinstance(error, RuntimeError) else error
        muster.bond.loosen()
        end_without_farewell(explained)
        if explained is error:
            raise
        raise explained from error
