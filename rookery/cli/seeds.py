"""`rookery train --seeds N`: a group of runs that differ in their seed alone, told as one."""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rookery.cli.config import config_from
from rookery.cli.exits import ENDINGS, FAILED, INTERRUPTED
from rookery.cli.live_line import LiveLine
from rookery.cli.options import labels_from
from rookery.cli.summary import settings
from rookery.cli.text import aggregate_text, print_group, print_json, say, server_shown
from rookery.cli.train import connecting
from rookery.cli.waiting import waiting

if TYPE_CHECKING:
    from rookery.client import Client
    from rookery.config.models import RunConfig
    from rookery.control.fleet import Fleet
    from rookery.control.models import GroupDetail, RunRow

LOOK_S = 0.5  # between two looks at how all are
AT_WORK = ("running", "paused")


def train_seeds(arguments: argparse.Namespace, began: float) -> int:
    """All of them here, or at a server; the exit code is that of the worst."""
    out = sys.stderr if arguments.json else sys.stdout
    with waiting("looking at the environment and its players"):
        config = config_from(arguments)
    place = f"seeds-{secrets.token_hex(3)}"
    labels = labels_from(arguments)
    labels["group"] = labels.get("group") or place
    configs = [_seeded(config, config.seed + i, place) for i in range(arguments.seeds)]
    train = _train_far if arguments.server else _train_here
    found = train(arguments, configs, labels, out)
    if arguments.json:
        print_json({**found.model_dump(), "wall_s": round(time.monotonic() - began, 3)})
    else:
        print_group(found)
        at = f" --server {server_shown(arguments.server)}" if arguments.server else ""
        say(f"  try: rookery runs show {found.group}{at}")
        say(f"       rookery plot {found.group}") if not at else None
    return _exit_code(found.runs)


def _seeded(config: RunConfig, seed: int, place: str) -> RunConfig:
    """Each has its checkpoints in a place of its own."""
    uri = config.checkpoint.uri_below(f"{place}-{seed}")
    checkpoint = config.checkpoint.model_copy(update={"uri": uri})
    return config.model_copy(update={"seed": seed, "checkpoint": checkpoint})


def _named(labels: dict[str, Any], config: RunConfig) -> dict[str, Any]:
    """A run that was given no name is called by what sets it apart."""
    return {"name": f"seed {config.seed}", **labels}


def _exit_code(rows: Sequence[RunRow]) -> int:
    """Of the worst ending; of runs that go on, that we left them."""
    if any(row.status not in ENDINGS for row in rows):
        return INTERRUPTED
    codes = [ENDINGS.get(row.status, FAILED) for row in rows]
    return max(codes)


def _train_here(
    arguments: argparse.Namespace, configs: list[RunConfig], labels: dict[str, Any], out: TextIO
) -> GroupDetail:
    from rookery.client.local import LocalClient
    from rookery.control.carry import carry_all
    from rookery.control.create import create_run
    from rookery.control.home import Home

    home = Home.default()
    runs, parent = list[str](), configs[0].parent
    with contextlib.ExitStack() as stack:
        links = connecting(home, configs[0], stack)
        for config in configs:
            own = config.model_copy(update={"parent": parent})
            runs.append(create_run(home, own, labels=_named(labels, own)))
            parent = home.config(home.state(runs[-1])).parent  # `last` is another run now
        with GroupProgress(labels["group"], configs, out) as progress:
            carry_all(home, runs, _looking(runs, progress), links)
    return LocalClient(home).group(labels["group"])


def _looking(runs: list[str], progress: GroupProgress) -> Callable[[Fleet], None]:
    from rookery.control.queries import make_row

    due = 0.0

    def tick(fleet: Fleet) -> None:
        nonlocal due
        now = time.monotonic()
        if now < due:
            return
        due = now + LOOK_S
        states = [fleet.states[run] for run in runs if run in fleet.states]
        progress(
            [make_row(state, "terminal", fleet.training(state.id), time.time()) for state in states]
        )

    return tick


def _train_far(
    arguments: argparse.Namespace, configs: list[RunConfig], labels: dict[str, Any], out: TextIO
) -> GroupDetail:
    """Submit, and watch; Ctrl-C leaves the runs going."""
    from rookery.client import Client

    client = Client(arguments.server)
    group, parent = labels["group"], configs[0].parent
    with waiting("looking at the environment and its players"):
        for config in configs:
            own = config.model_copy(update={"parent": parent})
            run = client.submit(own, **_named(labels, own))
            parent = parent.model_validate(run.config()["parent"])  # `last` is another run now
    try:
        with GroupProgress(group, configs, out) as progress:
            return _watched(client, group, progress)
    except KeyboardInterrupt:
        shown = server_shown(arguments.server)
        print(f"rookery: {group} goes on: rookery runs show {group} --server {shown}", file=out)
        return client.group(group)


def _watched(client: Client, group: str, progress: GroupProgress) -> GroupDetail:
    while True:
        found = client.group(group)
        progress(found.runs)
        if all(row.status in ENDINGS for row in found.runs):
            return found
        time.sleep(LOOK_S)


class GroupProgress:
    """One line for all of them."""

    def __init__(self, group: str, configs: Sequence[RunConfig], out: TextIO) -> None:
        self._group, self._configs, self._out = group, configs, out
        self._began = time.monotonic()
        self._rows: Sequence[RunRow] = ()
        self._told: Mapping[str, str] = {}
        self._line = LiveLine(out, self._now)

    def __enter__(self) -> GroupProgress:
        config = self._configs[0]
        first, last = config.seed, self._configs[-1].seed
        say(
            f"{self._group}: {config.environment.id} with {config.algorithm.kind}, "
            f"seeds {first} to {last}, each {config.actors.number} x "
            f"{config.actors.envs_per_actor} environments",
            self._out,
        )
        say(settings(config), self._out)
        self._line.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._line.__exit__(*error)

    def __call__(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            if row.status in ENDINGS and self._told.get(row.run) != row.status:
                self._told = {**self._told, row.run: row.status}
                self._line.note(f"{row.run} {row.status}: {row.reason}")
        self._rows = rows
        self._line.tell()

    def _now(self) -> str:
        from rookery.control.groups import make_group

        rows = self._rows
        done = sum(row.status in ENDINGS for row in rows)
        work = sum(row.status in AT_WORK for row in rows)
        waits = len(self._configs) - done - work
        rate = sum(row.steps_per_s or 0.0 for row in rows)
        counts = f"{done} done, {work} at work, {waits} waiting"
        text = (
            f"{time.monotonic() - self._began:7.1f} s  {counts}  "
            f"{sum(row.env_steps for row in rows):>11,} steps  now {rate:,.0f} steps/s"
        )
        aggregates = make_group(self._group, rows).aggregates
        return "  ".join([text, *(aggregate_text(each) for each in aggregates)])
