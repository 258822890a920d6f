"""Changing runs, here or at a server: start, pause, scale, set, seats, submit."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rookery.cli.config import config_from
from rookery.cli.options import bounds_from, client_of, labels_from
from rookery.cli.text import print_answers, print_json, say
from rookery.cli.waiting import waiting
from rookery.errors import InputError

SIMPLE = {
    "start": "start",
    "pause": "pause",
    "stop": "stop",
    "checkpoint": "save-checkpoint",
}

Asked = tuple[str, dict[str, Any]]  # an action's name and its own parameters


def actions_from(arguments: argparse.Namespace) -> list[Asked]:
    """The actions that a command line stands for."""
    name: str = arguments.name
    if name == "label":
        return [("label", labels_from(arguments))]
    if name == "resume":
        return [("resume", bounds_from(arguments))]
    if name in SIMPLE:
        return [(SIMPLE[name], {})]
    if name == "set":
        return [("set-hyperparameters", {"values": _numbers(arguments.values)})]
    asked = [("scale-learner", arguments.learner), ("scale-actors", arguments.actors)]
    found: list[Asked] = [(action, {"count": n}) for action, n in asked if n is not None]
    if not found:
        raise InputError("nothing to scale: say --actors N, or --learner N")
    return found


def _numbers(texts: Sequence[str]) -> dict[str, float]:
    """`KEY=VALUE` arguments; a key without a dot is the algorithm's."""
    from rookery.config.reading import parse_value

    found: dict[str, float] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        number = parse_value(value)
        if not equals or not key:
            raise InputError(f"{text!r} is not of the form KEY=VALUE, like learning_rate=1e-4")
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError(f"{key}: {value!r} is not a number")
        found[key if "." in key else f"algorithm.{key}"] = float(number)
    return found


def steer(arguments: argparse.Namespace, began: float) -> int:
    """start, pause, resume, stop, scale, set, checkpoint."""
    asked = actions_from(arguments)
    run = client_of(arguments).run(arguments.run)
    reason, dry_run = arguments.reason, arguments.dry_run
    answers = [run.act(action, values, reason, dry_run) for action, values in asked]
    code = print_answers(arguments, answers)
    if answers[-1].kind == "start_run" and not arguments.json and not run.is_carried():
        print(f"  nobody carries it yet: rookery serve, or here: rookery resume {run.id}")
    return code


def seats(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config.reading import seats_from

    run = client_of(arguments).run(arguments.run)
    answer = run.seat(seats_from(arguments.seats), arguments.reason, arguments.dry_run)
    if arguments.json and not arguments.dry_run:
        return print_json({**answer.model_dump(), "seats": run.detail().seats})
    code = print_answers(arguments, [answer])
    if not arguments.json and not run.is_carried():
        print(f"  once it goes on: rookery resume {run.id}")
    return code


def submit(arguments: argparse.Namespace, began: float) -> int:
    start, reason = not arguments.no_start, arguments.reason
    labels = labels_from(arguments)
    with waiting("looking at the environment and its players"):
        client, config = client_of(arguments), config_from(arguments)
        if arguments.dry_run:
            tried = client.submit(config, start, reason, dry_run=True, **labels)
            return print_answers(arguments, [tried])
        run = client.submit(config, start, reason, **labels)
    assert run.answer is not None
    code = print_answers(arguments, [run.answer])
    aside = sys.stderr if arguments.json else sys.stdout  # it is no part of the result
    if start and not client.carries:
        print("queued: no server runs here: rookery serve", file=aside)
    elif start and (waits_for := run.detail().waits_for):
        say(f"queued: it waits for {waits_for}", aside)
    return code
