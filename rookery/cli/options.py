"""Options that several verbs share, and how their values are read."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any, NoReturn

from rookery.config.kinds import ALGORITHMS, LAUNCHERS
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


def add_config(parser: argparse.ArgumentParser, is_fork: bool = False) -> None:
    """`is_fork`: of a run that is named instead of an environment."""
    if is_fork:
        parser.set_defaults(environment=None)
        parser.add_argument("parent", metavar="RUN[@VERSION]")
    else:
        parser.add_argument("environment", metavar="ENVIRONMENT", nargs="?")
        text = "begin with its weights, optimiser, statistics and counters"
        parser.add_argument("--from", dest="parent", metavar="RUN[@VERSION]", help=text)
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
    text = "actor processes; auto: as many as the learner can take"
    parser.add_argument("--actors", type=integer_or_auto, metavar="N", help=text)
    parser.add_argument("--envs-per-actor", type=integer, metavar="N")
    add_bounds(parser)
    parser.add_argument("--seed", type=integer, metavar="N")
    add_launcher(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any config key, repeatable"
    )
    parser.add_argument_group(
        "environment options", "--env.KEY=VALUE is passed to the environment, repeatable"
    )


def add_launcher(parser: argparse.ArgumentParser) -> None:
    default, *others = LAUNCHERS
    known = ", ".join((f"{default} (default)", *others))
    parser.add_argument("--launcher", metavar="NAME", help=f"where workers live: {known}")
    add_ray_address(parser)


def add_ray_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ray-address",
        metavar="ADDRESS",
        help="of the Ray cluster: auto, HOST:PORT, ray://HOST:PORT; default: $RAY_ADDRESS, or one "
        "on this machine",
    )


UNASKED: dict[str, Any] = {  # what a list without options shows
    **{name: "" for name in ("search", "status", "environment", "tag", "sort", "order")},
    "column": [],
    "limit": None,
}


def add_query(parser: argparse.ArgumentParser) -> None:
    """Which runs, in which order; a key is a column or any config key."""
    parser.set_defaults(**UNASKED)
    text = "words that stand in them, or tests like return>400 or seed=1"
    parser.add_argument("search", nargs="?", metavar="SEARCH", help=text)
    for option, metavar in (("status", "STATUS"), ("environment", "NAME"), ("tag", "TAG")):
        parser.add_argument(f"--{option}", metavar=metavar, help=f"only runs of this {option}")
    text = "by return, steps, or any column or config key; numbers from the greatest"
    parser.add_argument("--sort", metavar="KEY", help=text)
    parser.add_argument("--order", choices=("asc", "desc"), help="the other way round")
    text = "a config key to show too, like seed, repeatable"
    parser.add_argument("--column", action="append", metavar="KEY", help=text)
    parser.add_argument("--limit", type=positive, metavar="N", help="at most; default: all")


def add_labels(parser: argparse.ArgumentParser) -> None:
    """What people call a run."""
    parser.add_argument("--name", dest="title", metavar="TEXT", help="for people, to find it by")
    parser.add_argument("--tag", action="append", metavar="TAG", help="repeatable, to find it by")
    parser.add_argument("--notes", metavar="TEXT", help="whatever is worth keeping")
    parser.add_argument("--group", metavar="NAME", help="runs that belong together have one")


def labels_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were named; an empty tag stands for none."""
    from rookery.messages.commands import TAG_PATTERN

    tags = None if arguments.tag is None else [tag for tag in arguments.tag if tag]
    for tag in tags or ():
        if not re.match(TAG_PATTERN, tag):
            raise InputError(f"--tag {tag!r}: a tag is one word, without spaces or commas")
    if arguments.group and not re.match(TAG_PATTERN, arguments.group):
        raise InputError(f"--group {arguments.group!r}: a group is one word, without commas")
    asked = {
        "name": arguments.title,
        "tags": tags,
        "notes": arguments.notes,
        "group": arguments.group,
    }
    return {key: label for key, label in asked.items() if label is not None}


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """How far a run goes, counted from its beginning."""
    parser.add_argument("--steps", type=integer, metavar="N", help="stop after so many steps")
    parser.add_argument("--minutes", type=number, metavar="M", help="stop after so many minutes")
    parser.add_argument(
        "--until-return", type=number, metavar="R", help="stop at this mean of 100 episodes"
    )


def bounds_from(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were named."""
    asked = {name: getattr(arguments, name) for name in ("steps", "minutes", "until_return")}
    return {name: bound for name, bound in asked.items() if bound is not None}


def number(text: str) -> float:
    return float(text)


def integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        found = float(text)
        if found != int(found):
            raise
        return int(found)


integer.__name__ = "whole number"


def integer_or_auto(text: str) -> int | str:
    return text if text == "auto" else integer(text)


integer_or_auto.__name__ = "whole number, or auto"


def positive(text: str) -> int:
    count = integer(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is not at least 1")
    return count
