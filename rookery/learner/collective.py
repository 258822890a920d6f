"""What a crew computes together, with JAX's own collectives: one device of each learner, side by
side along one axis. Batches lie along it, everything else is the same on all."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from rookery.algorithms.batch import Batch
from rookery.algorithms.statistics import LEARNERS
from rookery.algorithms.train_state import Update

MEET_S = 120  # for everyone to reach the coordinator, once they know where it is
PART_S = 10  # for everyone to leave it
_SAME = PartitionSpec()  # type: ignore[no-untyped-call]
_LANES = PartitionSpec(None, LEARNERS)  # type: ignore[no-untyped-call]


def meet(coordinator: str, index: int, size: int, host: str) -> None:
    """Wait for the others. Before anything is computed in this process; once in its life.

    `host`: this machine's address, as the others see it: nothing listens on another one.
    """
    # SIGTERM is ours
    jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
    jax.distributed.initialize(
        coordinator,
        size,
        index,
        cluster_detection_method="deactivate",
        initialization_timeout=MEET_S,
        shutdown_timeout_seconds=PART_S,
        coordinator_bind_address=coordinator,
    )
    _listen_on(host)
    found = len(jax.devices())
    assert found == size, f"{found} devices of {size} learners"


def part() -> None:
    """Leave the others, who leave too."""
    jax.distributed.shutdown()  # type: ignore[no-untyped-call]


def _listen_on(host: str) -> None:
    """Gloo's own choice is what the machine's name leads to, and JAX has no setting for it."""
    from jax._src import distributed, xla_bridge
    from jaxlib import _jax

    def client() -> Any:
        gloo = _jax.make_gloo_tcp_collectives(
            distributed_client=distributed.global_state.client, hostname=host
        )
        return xla_bridge.make_cpu_client(collectives=gloo)

    xla_bridge.register_backend_factory("cpu", client, priority=0, fail_quietly=False)


class Axis:
    """One learner's place along the axis."""

    def __init__(self, index: int, size: int) -> None:
        self.index, self.size = index, size
        mesh = jax.sharding.Mesh(np.array(jax.devices()), (LEARNERS,))
        self._mesh, self._along = mesh, NamedSharding(mesh, _LANES)

    def jit(self, update: Update) -> Any:
        """Each computes on its own lanes; the states that come of it are the same on all, since
        all that they are made of is: sums over the axis, and what all had before."""
        shared = jax.shard_map(
            update,
            mesh=self._mesh,
            in_specs=(_SAME, _LANES, _SAME),
            out_specs=(_SAME, _SAME),
            check_vma=False,  # it would ask every objective to say what differs between learners
        )
        return jax.jit(shared)

    def lanes_of(self, index: int, whole: np.ndarray) -> np.ndarray:
        """The part of one learner; orders lie side by side as lanes do."""
        lanes = whole.shape[1] // self.size
        return whole[:, index * lanes : (index + 1) * lanes]

    def own(self, batches: tuple[Batch, ...]) -> tuple[Batch, ...]:
        found: tuple[Batch, ...] = jax.tree.map(lambda x: self.lanes_of(self.index, x), batches)
        return self.placed(found)

    def placed(self, own: tuple[Batch, ...]) -> tuple[Batch, ...]:
        """This learner's part of arrays that lie along the axis."""

        def place(part: np.ndarray) -> Any:
            shape = (part.shape[0], part.shape[1] * self.size, *part.shape[2:])
            return jax.make_array_from_process_local_data(  # type: ignore[no-untyped-call]
                self._along, part, shape
            )

        found: tuple[Batch, ...] = jax.tree.map(place, own)
        return found
