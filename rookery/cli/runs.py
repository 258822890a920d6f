"""Looking at runs, here or at a server: the list, one of them, what is stuck, who changed what."""

from __future__ import annotations

import argparse
import time

from rookery.cli.exits import OK
from rookery.cli.options import client_of
from rookery.cli.text import (
    print_audit,
    print_deleted,
    print_diagnosis,
    print_json,
    print_runs,
    say,
    show_text,
)

EXPLAINED = 10  # runs of a queue of which the list says for what they wait: each is looked at


def runs_list(arguments: argparse.Namespace, began: float) -> int:
    client, rows = client_of(arguments), []
    for row in reversed(client.runs()):
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_s))
        rows.append({**row.model_dump(), "created": created})
    for queued in [row for row in rows if row["status"] == "queued"][:EXPLAINED]:
        queued["waits_for"] = client.run(queued["run"]).detail().waits_for
    return print_runs(rows, arguments.json)


def runs_show(arguments: argparse.Namespace, began: float) -> int:
    run = client_of(arguments).run(arguments.run)
    found = {**run.detail().model_dump(), "directory": run.directory}
    if arguments.json:
        return print_json(found)
    say(show_text(found))
    return OK


def runs_delete(arguments: argparse.Namespace, began: float) -> int:
    run = client_of(arguments).run(arguments.run)
    return print_deleted(arguments, run.delete(run.id, arguments.reason, arguments.dry_run))


def why(arguments: argparse.Namespace, began: float) -> int:
    found = client_of(arguments).run(arguments.run).why()
    return print_diagnosis(found.model_dump(), arguments.json)


def audit(arguments: argparse.Namespace, began: float) -> int:
    return print_audit(arguments, client_of(arguments).audit(arguments.run or None))


def plot(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli.plot import plot as draw
    from rookery.control.home import Home

    home = Home.default()
    runs = [home.find(name) for name in arguments.runs]
    points = draw(home, runs, arguments.metric, arguments.out)
    if arguments.json:
        return print_json({"out": arguments.out, "metric": arguments.metric, "points": points})
    print(f"wrote {arguments.out}")
    return OK
