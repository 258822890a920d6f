"""The driver: the one process of an owner that is on the Ray cluster.

It reads requests from its owner, and a thread of its own minds what was placed: it notes births and
ends, looks at each worker about every second, keeps its progress and its log in files of the
owner's machine, and places a host again that ended. It decides nothing about restarts of workers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rookery.launchers.ray.ends import LOST, Ended, explain
from rookery.launchers.ray.host import RunHost, Switchboard
from rookery.launchers.ray.nodes import nodes, reaches, wanted
from rookery.launchers.ray.placed import PlacedHost, PlacedWorker
from rookery.launchers.ray.tunnel import Tunnel
from rookery.launchers.ray.words import (
    Answer,
    Close,
    HostOrder,
    Kill,
    Look,
    Match,
    Nodes,
    Order,
    Request,
    Seen,
    Tell,
    Told,
    receive_request,
    send,
)
from rookery.launchers.ray.worker import RayWorker

if TYPE_CHECKING:
    from rookery.launchers.ray.tune import Tuning

MIND_S = 0.1
UNKILLED_S = 3.0  # that the cluster has to confirm an end
TOLD_AFTER_S = 10.0  # that a worker waits for a place: its process takes seconds to come up

logger = logging.getLogger(__name__)


class Driver:
    def __init__(
        self, namespace: str, runtime_env: dict[str, Any], is_client: bool = False
    ) -> None:
        """`is_client`: this machine is no node of the cluster, and nobody there can call it."""
        self._namespace, self._runtime_env = namespace, runtime_env
        self._node = "" if is_client else ray.get_runtime_context().get_node_id()
        self._workers: dict[str, dict[str, PlacedWorker]] = {}  # by run, by name
        self._refused: dict[str, dict[str, Seen]] = {}  # by run, by name, until it is told
        self._hosts: dict[str, PlacedHost] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._tunnels: dict[str, Tunnel] = {}
        self._tuning: Tuning | None = None
        # a client has no way to the nodes, so it takes whoever is silent for busy
        self._reaches: Callable[[str], bool] = (lambda node: True) if is_client else reaches
        host_class = Switchboard if is_client else RunHost
        self._host_class = ray.remote(num_cpus=0, max_restarts=0)(host_class)
        self._worker_class = ray.remote(max_restarts=0, max_concurrency=4)(RayWorker)

    def serve(self, line: socket.socket) -> None:
        """Until the owner is gone."""
        start_thread("mind", self._mind)
        while (request := receive_request(line)) is not None:
            try:
                with self._lock:
                    answer = Answer(self._answer(request))
            except RayError as error:
                answer = Answer(error=" ".join(str(error).split())[:500])
            send(line, answer)
        if self._tuning is not None:
            self._tuning.close()

    def _answer(self, request: Request) -> Any:
        match request:
            case Match(run=run, orders=orders, host=host):
                self._match(run, {order.name: order for order in orders}, host)
                return None  # an end is told once: to whoever looks
            case Look(run=run):
                return self._seen(run)
            case Kill(run=run, name=name):
                self._kill(run, name)
                return None
            case Close(run=run):
                self._close(run)
                return None
            case Nodes():
                return nodes(self._node)
            case Tell():
                return self._tell_tune(request)

    def _tell_tune(self, word: Tell) -> Told:
        if self._tuning is None:
            from rookery.launchers.ray.tune import start

            self._tuning = start(word.order)
        try:
            return self._tuning.tell(word)
        except RayError:  # what it heard is not known: the next is told everything
            self._tuning = None
            raise

    # --- placing ---------------------------------------------------------------------------------

    def _match(self, run: str, orders: dict[str, Order], host: HostOrder | None) -> None:
        workers = self._workers.setdefault(run, {})
        if host is not None and run not in self._hosts:
            self._hosts[run] = PlacedHost(host, self._place_host(run, host))
        for name, worker in workers.items():
            if name not in orders:
                with apart(name):
                    worker.ask_to_stop()
        for name, order in orders.items():
            if name in workers:
                continue
            try:
                workers[name] = self._place(run, order)
            except (ValueError, TypeError, OverflowError) as error:  # what Ray takes, it knows best
                self._refused.setdefault(run, {})[name] = refusal(order, error)
            except RayError as error:
                ended = end_by(error, "")
                refused = Seen(name, code=ended.code, reason=ended.reason, final=ended.final)
                self._refused.setdefault(run, {})[name] = refused

    def _place_host(self, run: str, order: HostOrder) -> Any:
        """On this very node, whose disk has the file. None: its name is not free yet."""
        options: dict[str, Any] = {"name": host_name(run), "namespace": self._namespace}
        arguments: tuple[Any, ...] = ()
        if self._node:
            here = NodeAffinitySchedulingStrategy(self._node, soft=False)
            options["scheduling_strategy"] = here
            arguments = (order.path, msgspec.json.encode(order.limits), order.directory)
        try:
            host = self._host_class.options(**options).remote(*arguments)
            host.alive.remote()  # a client is told of a taken name only by the first call
        except ValueError:  # a host of the owner before this one, that is about to end
            return None
        if not self._node:
            self._answer_from_here(run, order, host)
        return host

    def _answer_from_here(self, run: str, order: HostOrder, board: Any) -> None:
        if run in self._tunnels:
            self._tunnels[run].board = board
            return
        tunnel = self._tunnels[run] = Tunnel(order, board)
        start_thread("tunnel", tunnel.serve)

    def _place(self, run: str, order: Order) -> PlacedWorker:
        options: dict[str, Any] = {
            "num_cpus": order.cpus,
            "num_gpus": order.gpus,
            "resources": order.resources,
            "scheduling_strategy": self._strategy(order),
        }
        if order.labels:
            options["label_selector"] = order.labels
        if self._runtime_env:
            options["runtime_env"] = self._runtime_env
        handle = self._worker_class.options(**options).remote(
            order.kind, order.index, order.incarnation
        )
        briefed = (order.briefing, self._namespace, host_name(run), self._node)
        return PlacedWorker(order, handle, briefed, self._reaches)

    def _strategy(self, order: Order) -> Any:
        """Actors are spread; a learner is best beside the bus, where there is room for it."""
        if order.kind == "actor" or order.labels or order.resources or not self._node:
            return "SPREAD"
        return NodeAffinitySchedulingStrategy(self._node, soft=True, _spill_on_unavailable=True)

    def _kill(self, run: str, name: str) -> None:
        worker = self._workers.get(run, {}).get(name)
        if worker is not None:
            worker.end()

    def _close(self, run: str) -> None:
        self._refused.pop(run, None)
        for worker in self._workers.pop(run, {}).values():
            with apart(worker.order.name):
                worker.end()
            worker.forget()
        if (host := self._hosts.pop(run, None)) is not None:
            with apart(host_name(run)):
                host.end()
        if (tunnel := self._tunnels.pop(run, None)) is not None:
            tunnel.close()

    # --- looking ---------------------------------------------------------------------------------

    def _seen(self, run: str) -> list[Seen]:
        """Everyone; whoever has ended is told of once."""
        workers = self._workers.get(run, {})
        waits = self._waits(workers.values())
        seen = [self._as_seen(worker, waits.get(name, "")) for name, worker in workers.items()]
        seen += self._refused.pop(run, {}).values()
        for worker in [w for w in workers.values() if w.ended is not None]:
            worker.forget()
            del workers[worker.order.name]
        return seen

    def _waits(self, workers: Iterable[PlacedWorker]) -> dict[str, str]:
        """What those that have waited for some time wait for."""
        waiting = [w for w in workers if w.birth is None and w.age_s > TOLD_AFTER_S]
        if not waiting:
            return {}
        found, free = ray.nodes(), ray.available_resources()
        return {w.order.name: wanted(w.order, found, free) for w in waiting}

    def _as_seen(self, worker: PlacedWorker, waits_for: str) -> Seen:
        name, birth = worker.order.name, worker.birth
        pid, host = (birth.pid, birth.host) if birth is not None else (0, "")
        host = "" if birth is not None and birth.node == self._node else host
        if (ended := worker.ended) is not None:
            return Seen(name, pid, host, ended.code, ended.reason, ended.final)
        return Seen(name, pid, host, reason=waits_for)

    def _mind(self) -> None:
        while not self._over.wait(MIND_S):
            with self._lock:
                for workers in self._workers.values():
                    for worker in workers.values():
                        with apart(worker.order.name):
                            self._mind_worker(worker)
                for run, host in self._hosts.items():
                    with apart(host_name(run)):
                        if not host.lives():
                            host.handle = self._place_host(run, host.order)

    def _mind_worker(self, worker: PlacedWorker) -> None:
        if worker.ended is not None:
            return
        if worker.call.done():
            try:
                worker.ended = worker.take(worker.call.result())
            except RayError as error:
                worker.ended = end_by(error, worker.host)
                worker.end()  # it may live on
        elif worker.killed_at is not None and time.monotonic() > worker.killed_at + UNKILLED_S:
            worker.ended = Ended(LOST, "it could not be reached, and was left to itself")
        else:
            worker.look()


def end_by(error: RayError, host: str) -> Ended:
    if isinstance(error, ActorUnavailableError):
        return Ended(LOST, f"its {f'node {host}'.strip()} could not be reached")
    return explain(error, host)


@contextlib.contextmanager
def apart(who: str) -> Iterator[None]:
    """Whatever Ray has to say of one, the others are minded."""
    try:
        yield
    except RayError:
        logger.exception("%s cannot be minded", who)


def start_thread(name: str, work: Callable[[], None]) -> None:
    """Without it nothing would come on: if it fails, the driver ends, and its owner hears of it."""

    def work_or_end() -> None:
        try:
            work()
        except BaseException:
            logger.exception("the thread %s failed", name)
            os._exit(1)

    threading.Thread(target=work_or_end, name=name, daemon=True).start()


def host_name(run: str) -> str:
    return f"{run}.host"


def refusal(order: Order, error: Exception) -> Seen:
    """Of a worker whose placement cannot be: another try can't help."""
    why = " ".join(str(error).split())[:300]
    return Seen(order.name, code=1, reason=f"placement.{order.kind}: {why}", final=True)
