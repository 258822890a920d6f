"""A real Apache Kafka on loopback, for tests and for development.

    with Cluster(directory=tmp_path) as cluster:             # one node; brokers=3 for three
        Producer({"bootstrap.servers": cluster.servers})
        cluster.kill(0)                                      # kill -9
        cluster.start(0)                                     # same port, same data; returns ready

Every node is broker and controller in one JVM that ends with this process. Limits are Kafka's own;
`settings` change them. `python -m tools.kafka.broker start` starts one that stays (see
`kafka_command`).
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rookery.errors import BusError, InputError, MissingExtra
from tools.kafka.jars import KAFKA_VERSION, jars
from tools.kafka.java import Runtime, find_java, spawn
from tools.kafka.ports import listens, reserve
from tools.kafka.settings import SCRAM, Node, Plan, Security, client_properties
from tools.kafka.storage import node_failed, prepare

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

__all__ = ["KAFKA_VERSION", "Cluster", "Security", "find_java", "jars"]

READY_S = 60.0  # a node on an idle machine needs two to five seconds
STOP_S = 15.0  # then it is killed; writing the archive of classes takes five
LEADER_S = 10.0
ANSWER_S = 2.0
POLL_S = 0.02
T = TypeVar("T")


class Cluster:
    """Kafka nodes, numbered from 0."""

    def __init__(
        self,
        *,
        directory: Path,
        brokers: int = 1,
        listener_security: Security | None = None,
        also_on: str = "",
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        version: str = KAFKA_VERSION,
    ) -> None:
        """Nothing is started yet.

        directory: for data, logs and settings; that of an earlier cluster brings its data back.
        also_on: another address of this machine to listen on, for clients that are not on loopback.
        port: of node 0 for clients; a free one by default, as for every other node.
        settings: more lines for each node's server.properties, which win over ours.
        """
        if find_spec("confluent_kafka") is None:
            raise MissingExtra("asking Kafka whether it is ready", "kafka")
        self._runtime = Runtime.find(version)
        directory = directory.resolve()
        self._held: list[socket.socket] = []  # the nodes' ports, also while a node is down
        try:
            nodes = [
                Node(i, directory / f"node-{i}", self._addresses(also_on, 0 if i else port))
                for i in range(brokers)
            ]
        except InputError:
            self._release()
            raise
        security = listener_security or Security()
        self._plan = Plan(directory, tuple(nodes), security, settings or {})
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._drafts: dict[int, Path] = {}  # archives of classes that a node writes when it stops

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for clients -----------------------------------------------------------------------------

    @property
    def servers(self) -> str:
        """bootstrap.servers of clients on loopback."""
        return self._plan.servers("CLIENTS")

    @property
    def also_servers(self) -> str:
        """bootstrap.servers of clients that come by the address `also_on`."""
        return self._plan.servers("ALSO")

    def client_settings(self, user: str = "", mechanism: str = SCRAM) -> dict[str, str]:
        """All that a client of confluent_kafka needs; the first user unless one is named."""
        return client_properties(self._plan, user, mechanism)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; a killed one still does until its session is over."""

        def look() -> int | None:
            live = [self._plan.nodes[index].listeners["CLIENTS"] for index in self.running]
            seen = self._ask(",".join(live))
            described = seen.topics.get(topic) if seen else None
            found = described.partitions.get(partition) if described else None
            return None if found is None or found.leader < 0 else int(found.leader)

        leader = _wait(look, LEADER_S)
        if leader is None:
            raise BusError(f"partition {partition} of {topic!r} has no leader, or does not exist")
        return leader

    # --- nodes -----------------------------------------------------------------------------------

    @property
    def running(self) -> list[int]:
        return [index for index, process in self._processes.items() if process.poll() is None]

    def pid(self, index: int) -> int:
        return self._processes[index].pid

    def log(self, index: int) -> Path:
        return self._plan.nodes[index].log

    def start(self, *indices: int) -> None:
        """Start these nodes, or all, where they do not run; returns when they are ready."""
        for index in self.launch(*indices):
            self.wait_until_ready(index)

    def launch(self, *indices: int, keep: int | None = None) -> list[int]:
        """As `start`, without waiting. Nodes that are given a descriptor to keep outlive us."""
        chosen = indices or range(len(self._plan.nodes))
        starting = [self._plan.nodes[index] for index in chosen if index not in self.running]
        prepare(self._plan, starting, self._runtime)
        for node in starting:
            draft = self._runtime.draft() if node.index == 0 and keep is None else None
            if draft is not None:
                self._drafts[node.index] = draft
            command = self._runtime.command("kafka.Kafka", str(node.properties), draft=draft)
            process = spawn(command, self._runtime.environment, node.log, keep)
            self._processes[node.index] = process
        return [node.index for node in starting]

    def wait_until_ready(self, index: int) -> None:
        """Ready: it answers, and knows itself and all other running nodes as brokers."""
        node, process = self._plan.nodes[index], self._processes[index]
        address = node.listeners["CLIENTS"]

        def look() -> bool | None:
            if process.poll() is not None:
                raise node_failed(node, f"ended at its start, with code {process.returncode}")
            seen = self._ask(address) if listens(address) else None
            return True if seen and seen.brokers.keys() >= set(self.running) else None

        if not _wait(look, READY_S):
            raise node_failed(node, f"was not ready after {READY_S:g} s")

    def kill(self, index: int) -> None:
        """kill -9."""
        self._processes[index].kill()
        self._processes[index].wait()

    def stop(self, *indices: int) -> None:
        """Ask these nodes, or all, to stop; those that have not done so in time are killed."""
        stopping = [index for index in self.running if not indices or index in indices]
        for index in stopping:
            self._processes[index].send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_S
        for index in stopping:
            try:
                self._processes[index].wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(index)
                continue
            draft = self._drafts.pop(index, None)
            if draft is not None and draft.exists():
                draft.replace(self._runtime.archive)

    def close(self) -> None:
        """Stop, and give the ports back."""
        self.stop()
        for draft in self._drafts.values():
            draft.unlink(missing_ok=True)
        self._release()

    def _release(self) -> None:
        while self._held:
            self._held.pop().close()

    def _addresses(self, also_on: str, port: int) -> dict[str, str]:
        wanted = {"CLIENTS": ("127.0.0.1", port)}
        wanted |= dict.fromkeys(("BETWEEN", "CONTROLLER"), ("127.0.0.1", 0))
        if also_on:
            wanted["ALSO"] = (also_on, 0)
        found = {}
        for name, address in wanted.items():
            self._held.append(reserve(*address))
            found[name] = "{}:{}".format(*self._held[-1].getsockname())
        if sys.platform != "linux":  # nobody may listen on a port that we hold
            self._release()
        return found

    def _ask(self, servers: str) -> ClusterMetadata | None:
        """The cluster as one of these servers sees it; an old client might ask any other."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        quiet = {"log_level": "0", "reconnect.backoff.ms": "50"}
        client = AdminClient({**self.client_settings(), "bootstrap.servers": servers, **quiet})
        try:
            return client.list_topics(timeout=ANSWER_S)
        except KafkaException:
            return None


def _wait(look: Callable[[], T | None], seconds: float) -> T | None:
    """Look until there is something to see, or the time is over."""
    deadline = time.monotonic() + seconds
    while (found := look()) is None and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return found


if __name__ == "__main__":
    from tools.kafka.command import main

    sys.exit(main())
