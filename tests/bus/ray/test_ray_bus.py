"""The bus on Ray keeps the contract, over a true host in a true cluster."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from rookery.bus import EARLIEST, Bus, Outgoing
from rookery.bus.ray.calls import Call, decode_call, encode, result_of
from rookery.bus.ray.client import HostedBus
from rookery.bus.ray.host import BusHost
from rookery.bus.sqlite import SqliteBus
from rookery.errors import BusError, MessageError
from rookery.testing.bus_suite import EmbeddedBusSuite, drain
from tests.conftest import wait_until

NAMESPACE = "suite"


Place = Callable[..., str]


@pytest.fixture(scope="module")
def place(ray_here: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Places a host in the cluster; gives its name."""
    hosts: dict[str, Any] = {}

    def placed(
        limits: Mapping[str, int] | None = None, path: Path | None = None, name: str = ""
    ) -> str:
        name = name or uuid4().hex
        path = path or tmp_path_factory.mktemp("host") / "bus.sqlite"
        hosts.pop(name, None)  # Ray keeps a name for as long as somebody has its handle
        actor = ray_here.remote(num_cpus=0)(BusHost).options(name=name, namespace=NAMESPACE)
        hosts[name] = actor.remote(str(path), msgspec.json.encode(limits or {}))
        return name

    yield placed
    for host in hosts.values():
        ray_here.kill(host)


@pytest.fixture(scope="module")
def shared(place: Place) -> str:
    return place()


def bus_of(name: str) -> HostedBus:
    from rookery.bus.ray.line import HostLine

    return HostedBus(HostLine(NAMESPACE, name))


class TestRayBus(EmbeddedBusSuite):
    @pytest.fixture(autouse=True)
    def _hosts(self, place: Place, shared: str) -> None:
        self.place, self.shared = place, shared

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        return bus_of(self.place(limits) if limits else self.shared)


def test_a_host_that_no_socket_reaches_is_called_by_ray(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no way through")

    monkeypatch.setattr("rookery.bus.ray.line.DirectLine", refuse)
    bus = bus_of(place())
    payloads = [b"small", bytes(330_000)]
    assert bus.publish([Outgoing("t", payload) for payload in payloads]) == [0, 1]
    assert [r.payload for r in drain(bus.subscribe("t", EARLIEST), 2)] == payloads
    bus.close()


@pytest.mark.soak
def test_a_host_that_is_killed_comes_back_with_all_that_it_acknowledged(
    place: Place, tmp_path: Path
) -> None:
    import ray

    path = tmp_path / "bus.sqlite"
    name = place(path=path)
    bus = bus_of(name)
    bus.publish([Outgoing("t", b"before")])
    os.kill(int(ray.get(ray.get_actor(name, NAMESPACE).alive.remote())), signal.SIGKILL)
    later: list[Any] = []

    def publish() -> None:
        later.append(bus.publish([Outgoing("t", b"after")]))

    waiting = threading.Thread(target=publish)
    waiting.start()
    wait_until(lambda: bus.trouble, "the line to notice", 30)

    def placed_again() -> bool:
        try:
            return bool(place(path=path, name=name))
        except ValueError:  # Ray has not noticed yet
            return False

    wait_until(placed_again, "the name to be free", 30)
    waiting.join(60)
    assert later == [[1]]
    assert [r.payload for r in drain(bus.subscribe("t", EARLIEST), 2)] == [b"before", b"after"]
    bus.close()


def test_a_publication_that_is_sent_again_is_there_once(tmp_path: Path) -> None:
    bus = SqliteBus(tmp_path / "bus.sqlite")
    messages = [Outgoing("t", b"x"), Outgoing("u", b"y")]
    first = bus.publish_once(messages, 1.0, "ann", 1)
    assert bus.publish_once(messages, 1.0, "ann", 1) == first == [0, 0]
    assert bus.publish_once(messages, 1.0, "ann", 2) == [1, 1]
    assert bus.publish_once(messages, 1.0, "ben", 1) == [2, 2]
    assert bus.newest_headers("t") == {"": {}} and bus.newest_headers("never used") == {}
    bus.close()


def test_a_worker_on_the_hosts_own_node_meets_the_others_in_the_file(
    place: Place, tmp_path: Path
) -> None:
    path = tmp_path / "bus.sqlite"
    far = bus_of(place(path=path))
    reader = far.subscribe("t", EARLIEST)
    near = SqliteBus(path)
    near.publish([Outgoing("t", b"near")])
    assert reader.poll(10.0)[0].payload == b"near"
    far.publish([Outgoing("t", b"far")])
    assert near.newest("t", "").payload == b"far"  # type: ignore[union-attr]
    near.close()
    far.close()


@pytest.mark.parametrize("content", [b"", b"x", encode(Call("publish", []))[:-1], b"\x93\x01\x02"])
def test_what_is_no_call_is_refused(content: bytes) -> None:
    with pytest.raises(MessageError):
        decode_call(content)


def test_a_host_answers_what_it_cannot_do_with_an_error(shared: str) -> None:
    bus = bus_of(shared)
    with pytest.raises(BusError, match="knows no 'drop_everything'"):
        bus.call("drop_everything")
    with pytest.raises(BusError):
        bus.call("publish", "not a list", 1.0)
    with pytest.raises(BusError, match="no answer"):
        result_of(b"nonsense")
    bus.close()
