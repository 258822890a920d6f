"""The nodes of a Ray cluster, and what a worker without a place on one of them waits for."""

from __future__ import annotations

import socket
from typing import Any

import ray

from rookery.launchers.ray.words import Node, Order

KNOCK_S = 2.0
_CHOICES = ("!", "in(")  # of labels, which Ray alone judges


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


def reaches(node: str) -> bool:
    """Whether a node lets anyone in where its raylet listens, however busy its workers are."""
    for each in ray.nodes():
        if each["NodeID"] == node:
            address = each["NodeManagerAddress"], each["NodeManagerPort"]
            try:
                socket.create_connection(address, KNOCK_S).close()
            except OSError:
                return False
            return True
    return False


def wanted(order: Order, found: list[dict[str, Any]], free: dict[str, float]) -> str:
    """What a worker waits for, in words that change only when that does: `found` and `free` are
    Ray's nodes and what the cluster has left."""
    asked = {"CPU": order.cpus, "GPU": order.gpus, **order.resources}
    asked = {name: count for name, count in asked.items() if count or name == "CPU"}
    labels = {k: v for k, v in order.labels.items() if not v.startswith(_CHOICES)}
    parts = [_counted(name, count) for name, count in asked.items()]
    parts += [f"{key}={value}" for key, value in order.labels.items()]
    what = f"a node with {' and '.join(parts)}"
    alive = [node for node in found if node["Alive"]]
    for name, count in asked.items():
        most = max((node["Resources"].get(name, 0.0) for node in alive), default=0.0)
        if count > most:
            return f"{what}: the largest of {len(alive)} has {_counted(name, most)} in all"
    for key, value in labels.items():
        if not any(_has(node, {}, {key: value}) for node in alive):
            return f"{what}: none of {len(alive)} nodes has {key}={value}"
    fit = [node for node in alive if _has(node, asked, labels)]
    if not fit:
        return f"{what}: none of {len(alive)} nodes has all of that"
    for name, count in asked.items():
        if count > free.get(name, 0.0):
            total = sum(node["Resources"].get(name, 0.0) for node in alive)
            whole = f"{_counted(name, total)} on {len(alive)} nodes"
            return f"{what}: none is free; the cluster has {whole}"
    return f"its process on {what}: where there is room it starts, or sets up its runtime_env"


def _has(node: dict[str, Any], asked: dict[str, float], labels: dict[str, str]) -> bool:
    has, known = node["Resources"], node.get("Labels", {})
    return all(has.get(name, 0.0) >= count for name, count in asked.items()) and all(
        known.get(key) == value for key, value in labels.items()
    )


def _counted(name: str, count: float) -> str:
    return f"{count:g} {name}" + ("s" if name in ("CPU", "GPU") and count != 1 else "")
