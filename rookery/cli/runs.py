"""Looking at runs, here or at a server: the list, one of them, what is stuck, who changed what."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from rookery.cli.exits import OK
from rookery.cli.options import client_of
from rookery.cli.text import (
    print_audit,
    print_deleted,
    print_diagnosis,
    print_group,
    print_json,
    print_runs,
    say,
    show_text,
)
from rookery.errors import InputError
from rookery.foreign import one_line

if TYPE_CHECKING:
    from rookery.client import AnyClient, ClientRun

EXPLAINED = 10  # runs of a queue of which the list says for what they wait: each is looked at


def runs_list(arguments: argparse.Namespace, began: float) -> int:
    """The newest last, at the prompt, or sorted as asked."""
    asked = {name: getattr(arguments, name) for name in ("search", "status", "environment", "tag")}
    sort, columns = arguments.sort or "created", arguments.column
    client = client_of(arguments)
    found = client.runs(
        **asked, sort=sort, order=arguments.order, columns=columns, limit=arguments.limit
    )
    rows = []
    for row in found if arguments.sort else reversed(found):
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_s))
        rows.append({**row.model_dump(exclude={"under"}), "created": created})
    for queued in [row for row in rows if row["status"] == "queued"][:EXPLAINED]:
        queued["waits_for"] = client.run(queued["run"]).detail().waits_for
    return print_runs(rows, arguments.json, columns, is_all=not any(asked.values()))


def runs_show(arguments: argparse.Namespace, began: float) -> int:
    """A run, or the runs of a group as one."""
    client = client_of(arguments)
    try:
        run = client.run(arguments.run)
    except InputError as unknown:
        return _show_group(client, arguments.run, unknown, arguments.json)
    found = {**run.detail().model_dump(), "directory": run.directory}
    if arguments.json:
        return print_json(found)
    say(show_text(found))
    return OK


def _show_group(client: AnyClient, name: str, unknown: InputError, as_json: bool) -> int:
    try:
        found = client.group(name)
    except InputError:
        raise unknown from None
    if as_json:
        return print_json(found.model_dump())
    print_group(found)
    return OK


def runs_delete(arguments: argparse.Namespace, began: float) -> int:
    run = client_of(arguments).run(arguments.run)
    if not (arguments.yes or arguments.dry_run):
        _ask_to_delete(run)
    return print_deleted(arguments, run.delete(run.id, arguments.reason, arguments.dry_run))


def _ask_to_delete(run: ClientRun) -> None:
    """Nothing goes before a person has said so."""
    if not sys.stdin.isatty():
        raise InputError(f"nobody is here to be asked: to delete {run.id} for good, add --yes")
    row, would = run.row, run.delete(run.id, dry_run=True)
    told = f"{row.name or row.environment}, {row.status}, {row.env_steps:,} steps"
    say(f"{run.id} ({one_line(told)}): {would.effect or would.why}", sys.stderr)
    print("Delete it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError(f"{run.id} was not deleted")


def why(arguments: argparse.Namespace, began: float) -> int:
    found = client_of(arguments).run(arguments.run).why()
    return print_diagnosis(found.model_dump(), arguments.json)


def audit(arguments: argparse.Namespace, began: float) -> int:
    return print_audit(arguments, client_of(arguments).audit(arguments.run or None))


def plot(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli.plot import plot as draw
    from rookery.control.home import Home

    points = draw(Home.default(), arguments.runs, arguments.metric, arguments.out)
    if arguments.json:
        return print_json({"out": arguments.out, "metric": arguments.metric, "points": points})
    print(f"wrote {arguments.out}")
    return OK
