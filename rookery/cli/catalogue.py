"""What a config can name: environments, algorithms, players."""

from __future__ import annotations

import argparse

from rookery.cli.exits import OK
from rookery.cli.text import print_json, print_table


def envs(arguments: argparse.Namespace, began: float) -> int:
    from rookery.envs.registry import search

    found = search(arguments.search)
    if arguments.json:
        rows = [{"id": e.id, "source": e.source, "description": e.description} for e in found]
        return print_json({"environments": rows})
    if not found:
        print(f"no environment matches {arguments.search!r}; `rookery envs` lists all")
        return OK
    print_table([("ENVIRONMENT", "SOURCE", "")] + [(e.id, e.source, e.description) for e in found])
    return OK


def algorithms(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control import catalogue

    found = catalogue.algorithms()
    if arguments.json:
        return print_json({"algorithms": found})
    for name, entry in found.items():
        print(f"{name}: {entry['description']}")
        print_table(
            [
                ("  " + o["key"], str(o["default"]), "live" if o["live"] else "", o["description"])
                for o in entry["options"]
            ]
        )
    print("live: may change while a run goes on")
    return OK


def players(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control import catalogue

    found = catalogue.players()
    if arguments.json:
        return print_json({"players": found})
    lines = [("PLAYER", "")]
    for kind in found:
        lines.append((kind["example"], kind["description"]))
        for option in kind["options"]:
            default = f", default {option['default']}" if option["default"] else ""
            shown = f"  {option['description']} ({option['takes']}{default})"
            lines.append((f"  {option['name']}", shown))
    print_table(lines)
    print("in `rookery match` a run's id stands for its newest checkpoint, playing greedily")
    return OK
