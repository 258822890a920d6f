"""Seeing how well players play, here or at a server: fresh episodes, matches, the ladder."""

from __future__ import annotations

import argparse

from rookery.cli.config import environment_options
from rookery.cli.exits import OK
from rookery.cli.options import client_of
from rookery.cli.text import print_evaluation, print_json, say
from rookery.cli.waiting import waiting

JOB_S = 24 * 3600.0  # for the result of an evaluation


def evaluate(arguments: argparse.Namespace, began: float) -> int:
    run = client_of(arguments).run(arguments.run)
    with waiting(f"{run.id} plays {arguments.episodes:,} episodes, greedy and sampled"):
        result = run.evaluate(arguments.episodes, arguments.seed, arguments.player, wait_s=JOB_S)
    return print_evaluation(result, run.id, arguments.player, arguments.json)


def match(arguments: argparse.Namespace, began: float) -> int:
    from rookery.evaluation.match import match_text

    with waiting(f"{arguments.a} and {arguments.b} play {arguments.games:,} games"):
        result = client_of(arguments).match(
            arguments.environment,
            arguments.a,
            arguments.b,
            arguments.games,
            arguments.seed,
            arguments.sampled,
            environment_options(arguments),
        )
    if arguments.json:
        return print_json(result)
    say(match_text(result))
    return OK


def ladder(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.evaluation.ladder import ladder as read_ladder
    from rookery.evaluation.ladder import ladder_text

    home = Home.default()
    found = read_ladder(home, home.find(arguments.run))
    if arguments.json:
        return print_json(found)
    say(ladder_text(found, arguments.payoff))
    return OK
