"""What the verbs of `rookery bus` do: look at topics, whichever bus they are on."""

from __future__ import annotations

import argparse
from typing import Any

from rookery.cli.exits import OK
from rookery.cli.text import print_json, print_table, say


def topics(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.bus_topics import topics as look
    from rookery.control.home import Home

    home = Home.default()
    found = look(home, home.find(arguments.run))
    if arguments.json:
        return print_json(found)
    say(f"{found['run']} on {found['place']}")
    print_table(
        [("TOPIC", "PARTITIONS", "KEPT", "END", "BYTES", "WRITTEN BY", "READ BY")]
        + [
            (
                row["topic"],
                str(row["partitions"]),
                f"{row['kept']:,}",
                " ".join(f"{end:,}" for end in row["end"]),
                "-" if row["bytes"] is None else f"{row['bytes']:,}",
                row["writers"],
                row["readers"],
            )
            for row in found["topics"]
        ]
    )
    return OK


def tail(arguments: argparse.Namespace, began: float) -> int:
    """With --follow and --json each message is an object of its own."""
    from rookery.control.bus_topics import open_tail, row_text
    from rookery.control.home import Home

    def tell(row: dict[str, Any]) -> None:
        if arguments.json:
            print_json(row)
        else:
            say(row_text(row))

    with open_tail(Home.default(), arguments.topic, arguments.run) as found:
        newest = found.newest(arguments.count)
        if arguments.json and not arguments.follow:
            return print_json({"topic": arguments.topic, "messages": newest})
        for row in newest:
            tell(row)
        if arguments.follow:
            for row in found.follow():
                tell(row)
    return OK


def lag(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.bus_topics import lag as look
    from rookery.control.bus_topics import lag_text
    from rookery.control.home import Home

    home = Home.default()
    found = look(home, home.find(arguments.run))
    if arguments.json:
        return print_json(found)
    say(lag_text(found))
    print_table(
        [("PARTITION", "POSITION", "END", "RECORDS", "STEPS")]
        + [
            tuple(f"{row[key]:,}" for key in ("partition", "position", "end", "records", "steps"))
            for row in found["partitions"]
        ]
    )
    return OK
