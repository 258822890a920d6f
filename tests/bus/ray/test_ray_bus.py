"""The bus on Ray keeps the contract, over a true host in a true cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from rookery.bus import Bus
from rookery.testing.bus_suite import EmbeddedBusSuite
from tools.ray import local_ray

NAMESPACE = "suite"


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with local_ray():
        yield


class TestRayBus(EmbeddedBusSuite):
    @pytest.fixture(autouse=True)
    def _hosts(self, tmp_path: Path) -> Iterator[None]:
        import ray

        self.directory, self.hosts = tmp_path, list[object]()
        yield
        for host in self.hosts:
            ray.kill(host)

    def make_bus(self, limits: Mapping[str, int] | None = None) -> Bus:
        import ray

        from rookery.bus.ray.client import HostedBus
        from rookery.bus.ray.host import BusHost
        from rookery.bus.ray.line import HostLine

        name = uuid4().hex
        path, bounds = str(self.directory / f"{name}.sqlite"), msgspec.json.encode(limits or {})
        placed = ray.remote(num_cpus=0)(BusHost).options(name=name, namespace=NAMESPACE)
        self.hosts.append(placed.remote(path, bounds))
        return HostedBus(HostLine(NAMESPACE, name))
