"""Which nodes a server's runs live on: this machine alone, or those of its cluster.

A cluster is asked in a thread of its own, one at a time: whoever wants to know waits a moment and
is then told that it does not answer, while the question itself may take long.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial

from rookery.config.reading import LOCAL
from rookery.control.models import Node, Nodes, NodeWorker
from rookery.errors import RookeryError
from rookery.launchers.ray import words

AskNodes = Callable[[], list[words.Node]]

PATIENCE_S = 3.0
YOUNG_S = 1.0  # how old an answer may be that others got too
UNANSWERED = "the Ray cluster does not answer: try again"


class NodeLook:
    """Safe from threads."""

    def __init__(self, ask: AskNodes | None, patience_s: float = PATIENCE_S) -> None:
        """`ask`: the cluster, which may take long; None: there is this machine alone."""
        self._ask, self._patience_s = ask, patience_s
        self._lock = threading.Lock()
        self._answer: Future[list[words.Node]] = Future()
        self._again_at = 0.0  # the answer is too old from then on
        self._answer.set_result([])

    def look(self, workers: Iterable[tuple[str, NodeWorker]]) -> Nodes:
        """`workers`: each with the address of its node; empty: its owner's machine."""
        if self._ask is None:
            machine = words.Node(socket.gethostname(), "127.0.0.1", os.cpu_count() or 1, True, True)
            return Nodes(launcher=LOCAL, nodes=placed([machine], workers), trouble="")
        try:
            found, trouble = self._newest(self._ask).result(self._patience_s), ""
        except TimeoutError:
            found, trouble = [], UNANSWERED
        except RookeryError as error:
            found, trouble = [], str(error)
        return Nodes(launcher="ray", nodes=placed(found, workers), trouble=trouble)

    def _newest(self, ask: AskNodes) -> Future[list[words.Node]]:
        """The answer of a moment ago, or the one that is waited for."""
        with self._lock:
            if self._answer.done() and time.monotonic() >= self._again_at:
                self._answer = Future()
                work = threading.Thread(
                    target=self._work, args=(ask, self._answer), name="nodes", daemon=True
                )
                work.start()
            return self._answer

    def _work(self, ask: AskNodes, answer: Future[list[words.Node]]) -> None:
        try:
            tell = partial(answer.set_result, ask())
        except BaseException as error:  # noqa: BLE001 it is whoever waits who is told
            tell = partial(answer.set_exception, error)
        self._again_at = time.monotonic() + YOUNG_S
        tell()


def placed(found: Sequence[words.Node], workers: Iterable[tuple[str, NodeWorker]]) -> list[Node]:
    """Nodes with who is at work on them. A lost one is left out where another has its address."""
    living = {node.address for node in found if node.alive}
    kept = [node for node in found if node.alive or node.address not in living]
    at: dict[str, list[NodeWorker]] = {}
    for address, worker in workers:
        at.setdefault(address, []).append(worker)
    nodes = []
    for node in kept:
        own = at.pop("", []) if node.here else []
        own += at.pop(node.address, []) if node.alive else []
        nodes.append(
            Node(
                name=node.name,
                address=node.address,
                cpus=node.cpus,
                alive=node.alive,
                workers=own,
            )
        )
    return nodes
