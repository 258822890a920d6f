"""The nodes of a Ray cluster, and what a worker without a place on one of them waits for."""

from __future__ import annotations

import ray

from rookery.launchers.ray.words import Node, Order


def nodes(here: str = "") -> list[Node]:
    """All that the cluster knows of, lost ones too; `here`: the id of the driver's own."""
    return [
        Node(
            found["NodeManagerHostname"],
            found["NodeManagerAddress"],
            float(found["Resources"].get("CPU", 0.0)),
            bool(found["Alive"]),
            bool(here) and found["NodeID"] == here,
        )
        for found in ray.nodes()
    ]


def wanted(order: Order, found: list[Node]) -> str:
    """What a worker waits for, in words that change only when that does."""
    alive = [node for node in found if node.alive]
    cpus = f"{order.cpus:g} CPU" + ("" if order.cpus == 1 else "s")
    more = [f"{count:g} {name}" for name, count in order.resources.items()]
    more += [f"{order.gpus:g} GPU"] if order.gpus else []
    more += [f"{key}={value}" for key, value in order.labels.items()]
    what = f"a node with {' and '.join([cpus, *more])}"
    most = max((node.cpus for node in alive), default=0.0)
    if order.cpus > most:
        return f"{what}: the largest of {len(alive)} has {most:g} in all"
    total = sum(node.cpus for node in alive)
    return f"{what}: none is free; the cluster has {total:g} CPUs on {len(alive)} nodes"
