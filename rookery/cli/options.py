"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, NoReturn

from rookery.config.kinds import ALGORITHMS
from rookery.errors import InputError

if TYPE_CHECKING:
    from rookery.client import AnyClient

SCOPES = ("read", "operate", "admin")


class Parser(argparse.ArgumentParser):
    """Errors are one line; an abbreviated option is unknown, not guessed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--bus", metavar="BUS", help="sqlite (default), memory, or kafka://HOST:PORT[/PREFIX]"
    )
    parser.add_argument("--bus-config", metavar="FILE", help="TLS, SASL and prefix of a cluster")


def add_server(parser: argparse.ArgumentParser) -> None:
    """Without a default, so that it may stand before or after a second word."""
    parser.add_argument(
        "--server",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="through this server, not in this home; default: $ROOKERY_SERVER",
    )


def client_of(arguments: argparse.Namespace) -> AnyClient:
    """Of the server that was named, or of this home."""
    from rookery.client import open_client

    return open_client(arguments.server)


def add_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", default="", metavar="TEXT", help="why, for the audit")
    parser.add_argument("--dry-run", action="store_true", help="only say what it would do")


def add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("environment", metavar="ENVIRONMENT", nargs="?")
    parser.add_argument("--config", metavar="FILE", help="YAML with the keys of `config show`")
    default, *others = ALGORITHMS
    known = ", ".join((f"{default} (default)", *others))
    parser.add_argument("--algorithm", metavar="NAME", help=f"{known}, or your own module:Class")
    parser.add_argument(
        "--self-play", action="store_true", help="main in every seat, at times against past selves"
    )
    parser.add_argument(
        "--seats", nargs="+", default=[], metavar="SEAT=PLAYER", help="who sits where"
    )
    parser.add_argument("--actors", type=integer, metavar="N", help="actor processes")
    parser.add_argument("--envs-per-actor", type=integer, metavar="N")
    add_bounds(parser)
    parser.add_argument("--seed", type=integer, metavar="N")
    parser.add_argument("--launcher", metavar="NAME", help="local (default) or inline")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any config key, repeatable"
    )
    parser.add_argument_group(
        "environment options", "--env.KEY=VALUE is passed to the environment, repeatable"
    )


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """How far a run goes, counted from its beginning."""
    parser.add_argument("--steps", type=integer, metavar="N", help="stop after so many steps")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so many minutes")
    parser.add_argument(
        "--until-return", type=float, metavar="R", help="stop at this mean of 100 episodes"
    )


def bounds_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were named."""
    asked = {name: getattr(arguments, name) for name in ("steps", "minutes", "until_return")}
    return {name: bound for name, bound in asked.items() if bound is not None}


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number != int(number):
            raise
        return int(number)


integer.__name__ = "whole number"


def positive(text: str) -> int:
    number = integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number
