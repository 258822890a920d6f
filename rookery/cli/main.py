"""The command line: one verb a person would type each.

Every verb takes `--json`: then stdout is one JSON object and nothing else, whatever environments
print. Bad input is one line on
stderr and exit code 2. Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import sys
from collections.abc import Sequence

from rookery.cli import exits
from rookery.cli.parser import Verb, all_commands
from rookery.cli.suggest import unknown_option
from rookery.cli.sweep import second_word
from rookery.cli.text import as_typed, say
from rookery.errors import (
    DamagedCheckpoint,
    EnvironmentFailed,
    InputError,
    RookeryError,
    UnknownName,
)
from rookery.output import keep_stdout

TAKE_ENV = ("train", "fork", "submit", "match", "sweep", "config")  # options of an environment
# As often as by default, collecting costs a list of 10,000 runs a third of its time.
RARE_COLLECTIONS = (50_000, 20, 20)


def run(argv: Sequence[str], began: float) -> int:
    """Carry out one command line; returns the exit code."""
    gc.set_threshold(*RARE_COLLECTIONS)
    arguments = argparse.Namespace()
    try:
        arguments = _parse(argv)
        if arguments.json and arguments.name != "mcp":  # whose output is a protocol
            with contextlib.suppress(OSError):  # it is closed: nobody reads
                keep_stdout()
        verb: Verb = arguments.verb
        return verb(arguments, began)
    except (InputError, DamagedCheckpoint) as error:
        say(f"rookery: {as_typed(str(error), getattr(arguments, 'server', None))}", sys.stderr)
        return exits.BAD_INPUT
    except RookeryError as error:
        say(f"rookery: {error}", sys.stderr)
        if isinstance(error, EnvironmentFailed):
            say(error.user_traceback.rstrip(), sys.stderr)
        return exits.FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return exits.OK
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    commands = all_commands()
    argv, environment = _split_environment_options(argv)
    argv = second_word(argv)
    if argv and not argv[0].startswith("-") and argv[0] not in commands.names:
        known = [name for name in commands.names if name not in commands.hidden]
        raise UnknownName("command", argv[0], known, "See `rookery --help`.")
    arguments, unknown = commands.parser.parse_known_args(argv)
    if not hasattr(arguments, "verb"):
        commands.parser.print_help()
        raise SystemExit(exits.OK)
    if unknown:
        raise unknown_option(arguments, unknown[0], argv)
    if environment and arguments.name not in TAKE_ENV:
        raise InputError(
            f"{environment[0]} goes with train, fork, match, submit, sweep and config show only"
        )
    arguments.env_options = environment
    _note_server(arguments)
    _note_bus(getattr(arguments, "bus", None), getattr(arguments, "bus_config", None))
    if getattr(arguments, "ray_address", None) is not None:
        os.environ["RAY_ADDRESS"] = arguments.ray_address
    return arguments


def _note_server(arguments: argparse.Namespace) -> None:
    """Where a verb that may go through a server goes."""
    if arguments.takes_server:
        arguments.server = getattr(arguments, "server", os.environ.get("ROOKERY_SERVER"))


def _note_bus(uri: str | None, file: str | None) -> None:
    """For all that this process and its children do."""
    if uri is not None and "://" in uri:
        os.environ["ROOKERY_BUS"] = uri
    elif uri is not None:
        os.environ.pop("ROOKERY_BUS", None)
    if file is not None:
        os.environ["ROOKERY_BUS_CONFIG"] = os.path.abspath(file)


def _split_environment_options(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """`--env.key=value` and `--env.key value` apart from the rest."""
    rest: list[str] = []
    found: list[str] = []
    items = iter(argv)
    for item in items:
        if not item.startswith("--env."):
            rest.append(item)
        elif "=" in item:
            found.append(item.removeprefix("--env."))
        else:
            value = next(items, None)
            if value is None:
                raise InputError(f"{item} needs a value, like {item}=true")
            found.append(f"{item.removeprefix('--env.')}={value}")
    return rest, found
