"""What an owner hands to the launcher of one of its runs; the same for a terminal and a server."""

from __future__ import annotations

from typing import Any

from rookery.bus import BusPlace
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.launchers import Launch
from rookery.launchers.ray.link import Links


def launch_of(
    home: Home, run: str, config: RunConfig, links: Links | None, **at_hand: Any
) -> Launch:
    """`at_hand`: what else the owner has for it (`Launch`)."""
    return Launch(
        config,
        home.run_dir(run) / "logs",
        progress=home.progress_dir(run),
        run=run,
        experience_bytes=_experience_bytes(home, run, config),
        links=links,
        ray=home.settings.ray.here(),
        **at_hand,
    )


def _experience_bytes(home: Home, run: str, config: RunConfig) -> int:
    """That a host keeps; other buses are opened by whoever knows."""
    if config.bus.kind != "ray":
        return 0
    from rookery.players.seat_map import Seating
    from rookery.worker.policies import least_experience

    seating = Seating.of(config, home.spec(home.state(run)))
    least = least_experience(config, seating)
    return BusPlace(run, home.run_dir(run), config.bus, least_bytes=least).experience_bytes
