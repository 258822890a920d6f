"""The command line: one verb a person would type each.

Every verb takes `--json`: then stdout is one JSON object and nothing else. Bad input is one line on
stderr and exit code 2. Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rookery import verbs, verbs_bus
from rookery.errors import (
    DamagedCheckpoint,
    EnvironmentFailed,
    InputError,
    RookeryError,
    UnknownName,
    nearest_names,
)

EPILOG = """\
examples:
  rookery train CartPole-v1 --until-return 475
  rookery train LunarLander-v3 --actors 2 --envs-per-actor 64 --steps 2_000_000 --seed 1
  rookery train FrozenLake-v1 --env.is_slippery=false
  rookery train --config examples/pendulum.yaml --set algorithm.learning_rate=3e-4
  rookery resume last            rookery eval last --episodes 100
  rookery plot last --out curve.png
  rookery match pgx:connect_four last script:random --games 200
  rookery ladder last --payoff   rookery seats last player_1=script:random
  rookery bus tail metrics.training --follow

RUN is an id, a unique prefix of one, or `last`. Runs live under ./runs or $ROOKERY_HOME.
"""

WORKER_COMMANDS = ("standby",)  # typed by launchers, not by people


def run(argv: Sequence[str], began: float) -> int:
    """Carry out one command line; returns the exit code."""
    try:
        arguments = _parse(argv)
        verb: Callable[[argparse.Namespace, float], int] = arguments.verb
        return verb(arguments, began)
    except (InputError, DamagedCheckpoint) as error:
        print(f"rookery: {error}", file=sys.stderr)
        return verbs.BAD_INPUT
    except RookeryError as error:
        print(f"rookery: {error}", file=sys.stderr)
        if isinstance(error, EnvironmentFailed):
            print(error.user_traceback.rstrip(), file=sys.stderr)
        return verbs.FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return verbs.OK
    except KeyboardInterrupt:
        return verbs.INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Errors are one line; an abbreviated option is unknown, not guessed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser, names = _parser()
    argv, environment = _split_environment_options(argv)
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        known = [name for name in names if name not in WORKER_COMMANDS]
        raise UnknownName("command", argv[0], known, "See `rookery --help`.")
    arguments, unknown = parser.parse_known_args(argv)
    if not hasattr(arguments, "verb"):
        parser.print_help()
        raise SystemExit(verbs.OK)
    if unknown:
        known = [option for option in _OPTIONS if option.startswith("--")]
        near = nearest_names(unknown[0].partition("=")[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"unknown option {unknown[0]!r}{hint} See `rookery --help`.")
    if environment and arguments.name not in ("train", "match", "config"):
        raise InputError(f"{environment[0]} goes with train, match and config show only")
    arguments.env_options = environment
    _note_bus(getattr(arguments, "bus", None), getattr(arguments, "bus_config", None))
    return arguments


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


_OPTIONS: set[str] = set()


def _parser() -> tuple[argparse.ArgumentParser, list[str]]:
    """The parser, and the names of its commands."""
    parser = _Parser(
        prog="rookery",
        description="Train agents: actors play, a learner trains, every step is accounted for.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)

    def verb(
        name: str, function: Any, help_text: str, listed: bool = True
    ) -> argparse.ArgumentParser:
        shown: dict[str, Any] = {"help": help_text} if listed else {}
        sub = commands.add_parser(name, description=help_text, **shown)
        _add_common(sub)
        sub.set_defaults(verb=function, name=name)
        return sub

    train = verb("train", verbs.train, "train a policy, from nothing or from a config file")
    _add_config_options(train)
    resume = verb("resume", verbs.resume, "go on with a run from its newest checkpoint")
    resume.add_argument("run", metavar="RUN")
    replay = verb("replay", verbs.replay, "train a new run on what another one has recorded")
    replay.add_argument("run", metavar="RUN")
    replay.add_argument("--into", required=True, metavar="NEW", help="name of the new run")
    replay.add_argument("--from-offset", default="", metavar="N[,N]", help="in `experiences`")
    replay.add_argument("--passes", type=_positive, default=1, metavar="N", help="over the log")
    replay.add_argument("--seed", type=_integer, metavar="N")
    evaluate = verb("eval", verbs.evaluate, "play fresh episodes with a run's newest checkpoint")
    evaluate.add_argument("run", metavar="RUN")
    evaluate.add_argument("--episodes", type=_positive, default=100)
    evaluate.add_argument("--seed", type=int, default=0, help="of the evaluation, not of the run")
    evaluate.add_argument(
        "--player", default="policy", help="policy (default) or script:random, as a baseline"
    )
    match = verb("match", verbs.match, "let two players meet, both ways round")
    match.add_argument("environment", metavar="ENVIRONMENT")
    for side in ("a", "b"):
        match.add_argument(side, metavar=side.upper(), help="RUN, RUN@340, script:random ...")
    match.add_argument("--games", type=_positive, default=100, metavar="N")
    match.add_argument("--seed", type=_integer, default=0, metavar="N", help="of the match")
    match.add_argument(
        "--sampled", action="store_true", help="runs play by chance, not their likeliest action"
    )
    ladder = verb("ladder", verbs.ladder, "ratings of everyone who played in a run's league")
    ladder.add_argument("run", metavar="RUN")
    ladder.add_argument("--payoff", action="store_true", help="also who beats whom")
    plot = verb("plot", verbs.plot, "draw learning curves as a PNG")
    plot.add_argument("runs", metavar="RUN", nargs="+")
    plot.add_argument("--out", default="curve.png")
    plot.add_argument("--metric", default="mean_return_100")

    runs = verb("runs", verbs.runs_list, "list, show or delete runs")
    actions = runs.add_subparsers(metavar="list|show|delete", parser_class=_Parser)
    for name, function, help_text in (
        ("list", verbs.runs_list, "every run with its state"),
        ("show", verbs.runs_show, "one run: state, workers, balance, checkpoints"),
        ("delete", verbs.runs_delete, "remove a run that does not run"),
    ):
        sub = actions.add_parser(name, help=help_text, description=help_text)
        _add_common(sub)
        sub.set_defaults(verb=function)
        if name != "list":
            sub.add_argument("run", metavar="RUN")
    bus = verb("bus", verbs_bus.topics, "look at the topics that workers talk over")
    bus.set_defaults(run="last")
    views = bus.add_subparsers(metavar="topics|tail|lag", parser_class=_Parser)
    for name, function, help_text in (
        ("topics", verbs_bus.topics, "every topic: what it keeps, who writes and who reads it"),
        ("tail", verbs_bus.tail, "a topic's newest messages; of binary ones the headers"),
        ("lag", verbs_bus.lag, "how far the learner is behind the end of `experiences`"),
    ):
        sub = views.add_parser(name, help=help_text, description=help_text)
        _add_common(sub)
        sub.set_defaults(verb=function)
        if name == "tail":
            sub.add_argument("topic", metavar="TOPIC")
            sub.add_argument("-n", dest="count", type=_positive, default=10, metavar="N")
            sub.add_argument("--follow", action="store_true", help="go on with what comes")
        default = None if name == "tail" else "last"
        sub.add_argument("run", metavar="RUN", nargs="?", default=default, help="default: last")
    why = verb("why", verbs.why, "name the component that is stuck, and its last error")
    why.add_argument("run", metavar="RUN")
    envs = verb("envs", verbs.envs, "environments that can be named")
    envs.add_argument("search", nargs="?", default="")
    verb("algorithms", verbs.algorithms, "algorithms with their options")
    verb("players", verbs.players, "kinds of players with their options")
    seats = verb("seats", verbs.seats, "seat other players in a run, from the next episode on")
    seats.add_argument("run", metavar="RUN")
    seats.add_argument("seats", metavar="SEAT=PLAYER", nargs="+")
    config = verb("config", verbs.config_show, "show the config that a command line stands for")
    config.add_argument("action", choices=["show"])
    config.add_argument("--schema", action="store_true", help="the JSON Schema instead")
    _add_config_options(config)

    for name, help_text in (
        ("actor", "join a run as one more actor, in the foreground"),
        ("learner", "take over as the learner of a run, in the foreground"),
    ):
        worker = verb(name, verbs.worker, help_text)
        worker.add_argument("run", metavar="RUN")
        worker.add_argument("--index", type=int, default=0, help=argparse.SUPPRESS)
        worker.add_argument("--incarnation", type=int, help=argparse.SUPPRESS)  # by a launcher
    standby = verb("standby", verbs.standby, "a learner that waits for its run", listed=False)
    standby.add_argument("--threads", type=int, default=1)
    for sub in (*commands.choices.values(), *actions.choices.values(), *views.choices.values()):
        _OPTIONS.update(sub._option_string_actions)
    return parser, list(commands.choices)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--bus", metavar="BUS", help="sqlite (default), memory, or kafka://HOST:PORT[/PREFIX]"
    )
    parser.add_argument("--bus-config", metavar="FILE", help="TLS, SASL and prefix of a cluster")


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("environment", metavar="ENVIRONMENT", nargs="?")
    parser.add_argument("--config", metavar="FILE", help="YAML with the keys of `config show`")
    parser.add_argument("--algorithm", metavar="NAME", help="ppo (default) or impala")
    parser.add_argument(
        "--self-play", action="store_true", help="main in every seat, at times against past selves"
    )
    parser.add_argument(
        "--seats", nargs="+", default=[], metavar="SEAT=PLAYER", help="who sits where"
    )
    parser.add_argument("--actors", type=_integer, metavar="N", help="actor processes")
    parser.add_argument("--envs-per-actor", type=_integer, metavar="N")
    parser.add_argument("--steps", type=_integer, metavar="N", help="stop after so many steps")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so many minutes")
    parser.add_argument(
        "--until-return", type=float, metavar="R", help="stop at this mean of 100 episodes"
    )
    parser.add_argument("--seed", type=_integer, metavar="N")
    parser.add_argument("--launcher", metavar="NAME", help="local (default) or inline")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any config key, repeatable"
    )
    parser.add_argument_group(
        "environment options", "--env.KEY=VALUE is passed to the environment, repeatable"
    )


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if number != int(number):
            raise
        return int(number)


_integer.__name__ = "whole number"


def _positive(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number
