"""What a machine cannot hold is refused before it is begun, and later when a run is scaled."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rookery.config.reading import build
from rookery.control import check as module
from rookery.control.check import answer, check_order
from rookery.control.create import local_service
from rookery.control.home import Home
from rookery.control.local_log import LocalLog, run_here
from rookery.envs.registry import describe
from rookery.errors import InputError
from rookery.messages import ScaleActors
from rookery.players.seat_map import Seating
from rookery.spaces import spec_to_json
from rookery.worker import policies
from rookery.worker.policies import delivery_bytes, fragment_bytes, least_experience

SPEC = describe("CartPole-v1")
MEMORY = 64 << 20


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (module, policies):
        monkeypatch.setattr(place, "memory_bytes", lambda: MEMORY)
    disk = SimpleNamespace(free=4 * MEMORY)
    monkeypatch.setattr(module, "shutil", SimpleNamespace(disk_usage=lambda path: disk))


def of_memory(share: float, **parts: Any) -> Any:
    """A config whose fragment takes that share of the machine's memory."""

    def made(steps: int) -> Any:
        actors = {"rollout_steps": steps, "envs_per_actor": 64, **parts.get("actors", {})}
        return build({"environment": {"id": "CartPole-v1"}}, {**parts, "actors": actors})

    each = fragment_bytes(made(64), seating(made(64))) // 64
    return made(int(share * MEMORY) // each)


def seating(config: Any) -> Seating:
    return Seating.of(config, SPEC)


def checked(home: Path, config: Any, **more: Any) -> None:
    check_order(Home(home), {"config": config.model_dump(mode="json"), **more})


def test_a_batch_has_half_of_the_memory(tmp_path: Path) -> None:
    checked(tmp_path, of_memory(0.4))
    with pytest.raises(InputError, match="GB a batch"):
        checked(tmp_path, of_memory(0.6))
    with pytest.raises(InputError, match=r"GB a batch.*actors\.max_count"):
        checked(tmp_path, of_memory(0.4, actors={"count": "auto"}))


def test_a_batch_on_a_cluster_elsewhere_is_not_measured_by_this_machines_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_memory(0.6, launcher="ray", bus={"kind": "ray"})
    with pytest.raises(InputError, match="GB a batch"):
        checked(tmp_path, config)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    checked(tmp_path, config, spec=spec_to_json(SPEC), actors=3)
    with pytest.raises(InputError, match="and its disk has"):
        checked(tmp_path, config)  # the bus is a file of its owner's
    disk = SimpleNamespace(free=100 * MEMORY)
    monkeypatch.setattr(module, "shutil", SimpleNamespace(disk_usage=lambda path: disk))
    checked(tmp_path, config)


def test_more_actors_are_not_asked_again_whether_their_code_is_allowed(tmp_path: Path) -> None:
    """Of a run with an environment of its owner's own, that a server is asked to scale."""
    config = build({"environment": {"id": "my_module:MyEnv"}}).model_dump(mode="json")
    told = answer(Home(tmp_path), {"config": config, "spec": spec_to_json(SPEC), "actors": 2})
    assert "error" not in told
    assert "allow" in answer(Home(tmp_path), {"config": config})["error"]


def test_a_bus_holds_no_more_actors_than_memory_does() -> None:
    small = of_memory(0.001, actors={"max_count": 1024})
    large = of_memory(0.4, actors={"max_count": 1024})
    for config in (small, large):
        delivery = delivery_bytes(config, seating(config))
        assert least_experience(config, seating(config)) <= 3 * max(MEMORY, 2 * delivery)
    few = of_memory(0.001, actors={"max_count": 16})
    assert least_experience(few, seating(few)) == 16 * 3 * delivery_bytes(few, seating(few))


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_what_a_bus_has_to_hold_fits_where_it_is(tmp_path: Path, kind: str) -> None:
    launcher = "inline" if kind == "memory" else "local"
    parts = {"bus": {"kind": kind, "max_experience_mb": 1}, "launcher": launcher}
    checked(tmp_path, of_memory(0.05, **parts))
    with pytest.raises(InputError, match=r"GB of experience, .* has .* GB: lower .*lag_versions"):
        checked(tmp_path, of_memory(0.4, **parts, learner={"max_policy_lag_versions": 1024}))


@pytest.mark.parametrize(
    ("config", "most"),
    [
        ({}, 4),
        ({"learner": {"fragments_per_batch": 1}}, None),  # batches stay as they are
        ({"algorithm": {"kind": "impala"}}, None),  # of one fragment, whoever played it
    ],
)
def test_a_run_is_not_scaled_past_the_memory(
    tmp_path: Path, config: dict[str, Any], most: int | None
) -> None:
    asked, home = of_memory(0.12, **config), Home(tmp_path)
    home.create(asked, SPEC, "ann", "r")
    service = local_service(home, LocalLog(home, "r"))
    for count in (4, 5, 16):
        command = ScaleActors(run="r", count=count)
        if most is None or count <= most:
            assert run_here(service.dry_run(command)).outcome == "would_accept"
        else:
            told = run_here(service.dry_run(command))
            assert told.outcome == "would_reject" and f"ask for {most}" in told.why
            with pytest.raises(InputError, match=f"a batch of {most} at most"):
                run_here(service.submit(command))
    home.close()


def test_to_look_is_asked_once_where_all_actors_fit(tmp_path: Path) -> None:
    home, orders = Home(tmp_path), []
    home.create(of_memory(0.01), SPEC, "ann", "r")

    async def look(order: Any) -> Any:
        orders.append(order["actors"])
        return {}

    service = local_service(home, LocalLog(home, "r"), look)
    for count in (4, 5, 1, 16):
        assert run_here(service.dry_run(ScaleActors(run="r", count=count))).outcome
    assert orders == [16]  # actors.max_count
    home.close()
