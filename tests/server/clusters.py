"""A cluster that there is not: nodes as a link to Ray would tell of them, and runs whose log says
that their workers live there. A true one takes many seconds to start and has one node here."""

from __future__ import annotations

from rookery.control.home import Home
from rookery.launchers.ray.words import Node
from rookery.messages import (
    CommandAccepted,
    Event,
    RunOwned,
    StartRun,
    WorkerExited,
    WorkerStarted,
    WorkerStarting,
    WorkerWaiting,
)

OWNER, SECOND, THIRD, LOST = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.9"
WAITS = "a node with 1 CPU: none is free; the cluster has 8 CPUs on 3 nodes"
GONE = f"its node {LOST} is gone"


class FakeCluster:
    """Answers at once, with an error where it has one; says that it was asked."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0
        self.nodes = [
            Node("head", OWNER, 2.0, True, here=True),
            Node("box-b", SECOND, 4.0, True),
            Node("box-c", THIRD, 2.0, True),
            Node("box-c", THIRD, 2.0, False),  # which it was before it came back
            Node("box-z", LOST, 16.0, False),
        ]

    def __call__(self) -> list[Node]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.nodes


def spread(home: Home, run: str, pid: int) -> None:
    """The log of a run on three nodes, with an actor that was lost and one that has no place."""
    start = StartRun(run=run)
    home.send(start)
    home.record(
        CommandAccepted(run=run, command=start.id),
        RunOwned(run=run, pid=pid, by="server"),
        *started(run, "learner", 0, SECOND, 200),
        *started(run, "actor", 0, SECOND, 201),
        *started(run, "actor", 1, THIRD, 301),
        *started(run, "actor", 2, THIRD, 302),
        *started(run, "actor", 3, "", pid),
        *started(run, "actor", 4, LOST, 901),
        WorkerExited(run=run, kind="actor", index=4, incarnation=1, code=-9, reason=GONE),
        WorkerStarting(run=run, kind="actor", index=4, incarnation=2),
        WorkerWaiting(run=run, kind="actor", index=4, incarnation=2, why=WAITS),
    )


def started(run: str, kind: str, index: int, host: str, pid: int) -> tuple[Event, Event]:
    who = {"run": run, "kind": kind, "index": index, "incarnation": 1}
    return WorkerStarting(**who), WorkerStarted(**who, pid=pid, host=host)
