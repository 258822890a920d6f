"""Creating a run from this process: check it first, which finds most mistakes, then CreateRun."""

from __future__ import annotations

import getpass
import os
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.control.local_log import LocalLog, run_here
from rookery.control.models import Answer
from rookery.control.service import Check, Service
from rookery.control.settings import Allow
from rookery.errors import InputError
from rookery.messages import new_id

if TYPE_CHECKING:
    from rookery.players.seat_map import SeatFunction


def author() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def labels_of(name: str, tags: Collection[str], notes: str, group: str) -> dict[str, Any]:
    """As CreateRun has them."""
    if isinstance(tags, str):
        raise InputError(f"tags is a list of words: write tags=[{tags!r}]")
    return {"name": name, "tags": list(tags), "notes": notes, "group": group}


def local_service(home: Home, log: LocalLog, check: Check | None = None) -> Service:
    """The service over a home's own log: its owner, to whom nothing is forbidden, sends by it."""
    return Service(home, log, check or checked_here(home), Allow(), carries=True)


def checked_here(home: Home, seat_function: SeatFunction | None = None) -> Check:
    """Checks orders in this process."""

    async def check(order: Mapping[str, Any]) -> dict[str, Any]:
        from rookery.control.check import check_order  # imports players and environments

        return check_order(home, order, seat_function)

    return check


def create_run(
    home: Home,
    config: RunConfig,
    seat_function: SeatFunction | None = None,
    labels: Mapping[str, Any] | None = None,
) -> str:
    """Create a run that this process is about to carry, and so to answer."""
    from rookery.worker.xla import prepare_xla

    if config.launcher == "inline":
        # looking at a JAX-native environment imports JAX
        prepare_xla(config.learner.threads, config.learner.device)
    check = checked_here(home, seat_function)
    return send_new(home, config, check, start=False, wait_s=0.0, labels=labels).run


def send_new(home: Home, config: RunConfig, check: Check, **options: Any) -> Answer:
    """CreateRun, and StartRun, through the service; `options` are those of `Service.create`."""
    home.check_writable()
    service = local_service(home, LocalLog(home), check)
    who = {"author": author(), "id": new_id(), **options}
    return run_here(service.create(config, **who))
