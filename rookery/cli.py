"""The command line: one verb a person would type each.

Every verb takes `--json`: then stdout is one JSON object and nothing else. Bad input is one line on
stderr and exit code 2. Heavy imports happen inside the verbs, so that `--help` answers at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from rookery.errors import (
    DamagedCheckpoint,
    EnvironmentFailed,
    InputError,
    RookeryError,
    nearest_names,
)

OK, FAILED, BAD_INPUT, LIMITED, INTERRUPTED = 0, 1, 2, 3, 130

EPILOG = """\
examples:
  rookery train CartPole-v1 --until-return 475
  rookery train LunarLander-v3 --actors 2 --envs-per-actor 64 --steps 2_000_000 --seed 1
  rookery train FrozenLake-v1 --env.is_slippery=false
  rookery train --config examples/pendulum.yaml --set algorithm.learning_rate=3e-4
  rookery resume last            rookery eval last --episodes 100
  rookery plot last --out curve.png

RUN is an id, a unique prefix of one, or `last`. Runs live under ./runs or $ROOKERY_HOME.
"""


def run(argv: Sequence[str], began: float) -> int:
    """Carry out one command line; returns the exit code."""
    try:
        arguments = _parse(argv)
        verb: Callable[[argparse.Namespace, float], int] = arguments.verb
        return verb(arguments, began)
    except (InputError, DamagedCheckpoint) as error:
        print(f"rookery: {error}", file=sys.stderr)
        return BAD_INPUT
    except RookeryError as error:
        print(f"rookery: {error}", file=sys.stderr)
        if isinstance(error, EnvironmentFailed):
            print(error.user_traceback.rstrip(), file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        sys.stderr.close()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED


class _Parser(argparse.ArgumentParser):
    """Errors are one line; an abbreviated option is unknown, not guessed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see `{self.prog} --help`")


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    argv, environment = _split_environment_options(argv)
    arguments, unknown = parser.parse_known_args(argv)
    if not hasattr(arguments, "verb"):
        parser.print_help()
        raise SystemExit(OK)
    if unknown:
        known = [option for option in _OPTIONS if option.startswith("--")]
        near = nearest_names(unknown[0].partition("=")[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"unknown option {unknown[0]!r}{hint} See `rookery --help`.")
    if environment and arguments.name not in ("train", "config"):
        raise InputError(f"{environment[0]} goes with train and config show only")
    arguments.env_options = environment
    return arguments


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


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rookery",
        description="Train agents: actors play, a learner trains, every step is accounted for.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)

    def verb(name: str, function: Any, help_text: str, **extra: Any) -> argparse.ArgumentParser:
        sub = verbs.add_parser(name, help=help_text, description=help_text, **extra)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(verb=function, name=name)
        return sub

    train = verb("train", _train, "train a policy, from nothing or from a config file")
    _add_config_options(train)
    resume = verb("resume", _resume, "go on with a run from its newest checkpoint")
    resume.add_argument("run", metavar="RUN")
    evaluate = verb("eval", _eval, "play fresh episodes with a run's newest checkpoint")
    evaluate.add_argument("run", metavar="RUN")
    evaluate.add_argument("--episodes", type=_positive, default=100)
    evaluate.add_argument("--seed", type=int, default=0, help="of the evaluation, not of the run")
    evaluate.add_argument(
        "--player", default="policy", help="policy (default) or script:random, as a baseline"
    )
    plot = verb("plot", _plot, "draw learning curves as a PNG")
    plot.add_argument("runs", metavar="RUN", nargs="+")
    plot.add_argument("--out", default="curve.png")
    plot.add_argument("--metric", default="mean_return_100")

    runs = verb("runs", _runs_list, "list, show or delete runs")
    actions = runs.add_subparsers(metavar="list|show|delete", parser_class=_Parser)
    for name, function, help_text in (
        ("list", _runs_list, "every run with its state"),
        ("show", _runs_show, "one run: state, workers, balance, checkpoints"),
        ("delete", _runs_delete, "remove a run that does not run"),
    ):
        sub = actions.add_parser(name, help=help_text, description=help_text)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.set_defaults(verb=function)
        if name != "list":
            sub.add_argument("run", metavar="RUN")
    why = verb("why", _why, "name the component that is stuck, and its last error")
    why.add_argument("run", metavar="RUN")
    envs = verb("envs", _envs, "environments that can be named")
    envs.add_argument("search", nargs="?", default="")
    verb("algorithms", _algorithms, "algorithms with their options")
    config = verb("config", _config_show, "show the config that a command line stands for")
    config.add_argument("action", choices=["show"])
    config.add_argument("--schema", action="store_true", help="the JSON Schema instead")
    _add_config_options(config)

    for name, help_text in (
        ("actor", "one actor of a run, in the foreground"),
        ("learner", "the learner of a run, in the foreground"),
    ):
        worker = verb(name, _worker, help_text)
        worker.add_argument("run", metavar="RUN")
        worker.add_argument("--index", type=int, default=0)
        worker.add_argument("--incarnation", type=int, required=True)
    standby = verb("standby", _standby, "a learner that waits for its run (internal)")
    standby.add_argument("--threads", type=int, default=1)
    for sub in [*verbs.choices.values(), *actions.choices.values()]:
        _OPTIONS.update(sub._option_string_actions)
    return parser


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("environment", metavar="ENVIRONMENT", nargs="?")
    parser.add_argument("--config", metavar="FILE", help="YAML with the keys of `config show`")
    parser.add_argument("--algorithm", metavar="NAME", help="ppo (default) or impala")
    parser.add_argument("--actors", type=_integer, metavar="N", help="actor processes")
    parser.add_argument("--envs-per-actor", type=_integer, metavar="N")
    parser.add_argument("--steps", type=_integer, metavar="N", help="stop after so many steps")
    parser.add_argument("--minutes", type=float, metavar="M", help="stop after so many minutes")
    parser.add_argument(
        "--until-return", type=float, metavar="R", help="stop at this mean of 100 episodes"
    )
    parser.add_argument("--seed", type=_integer, metavar="N")
    parser.add_argument("--launcher", metavar="NAME", help="local (default) or inline")
    parser.add_argument("--bus", metavar="NAME", help="sqlite (default) or memory")
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


def _config_from(arguments: argparse.Namespace) -> Any:
    from rookery.config import assignment, build, load_yaml, parse_value

    layers: list[dict[str, Any]] = []
    if arguments.config:
        layers.append(load_yaml(arguments.config))
    if arguments.environment:
        layers.append({"environment": {"id": arguments.environment}})
    flags = {
        "algorithm.kind": arguments.algorithm,
        "actors.count": arguments.actors,
        "actors.envs_per_actor": arguments.envs_per_actor,
        "stop.steps": arguments.steps,
        "stop.minutes": arguments.minutes,
        "stop.until_return": arguments.until_return,
        "seed": arguments.seed,
        "launcher": arguments.launcher,
        "bus.kind": arguments.bus,
    }
    for key, value in flags.items():
        if value is not None:
            nested: Any = value
            for part in reversed(key.split(".")):
                nested = {part: nested}
            layers.append(nested)
    layers += [assignment(text) for text in arguments.set]
    options: dict[str, Any] = {}
    for text in arguments.env_options:
        key, _, value = text.partition("=")
        options[key] = parse_value(value)
    if options:
        layers.append({"environment": {"kwargs": options}})
    return build(*layers)


# --- verbs ---------------------------------------------------------------------------------------


def _train(arguments: argparse.Namespace, began: float) -> int:
    config = _config_from(arguments)
    standby = None
    if config.launcher == "local":
        from rookery.launchers.standby import Standby

        standby = Standby(config.learner.threads)

    from rookery.control.home import Home
    from rookery.runner import create_run

    try:
        home = Home.default()
        return _carry(home, create_run(home, config), arguments.json, began, standby)
    finally:
        if standby is not None:
            standby.close()


def _resume(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.learner.checkpoint import newest_checkpoint
    from rookery.learner.store import open_store

    home = Home.default()
    run = home.find(arguments.run)
    state = home.state(run)
    damaged: list[str] = []
    try:
        store = open_store(home.checkpoint_uri(run, home.config(state)))
        newest_checkpoint(store, lambda name, why: damaged.append(why))
    except RookeryError as error:
        raise InputError(f"run {run} cannot be resumed: {error}") from None
    for why in damaged:
        print(f"rookery: {why}; going on from the one before", file=sys.stderr)
    return _carry(home, run, arguments.json, began)


def _carry(home: Any, run: str, as_json: bool, began: float, standby: Any = None) -> int:
    from rookery.progress import Progress
    from rookery.runner import carry
    from rookery.views import train_result

    progress = Progress(run, sys.stderr if as_json else sys.stdout, home.config(home.state(run)))
    with progress:
        state = carry(home, run, progress, standby)
    if state is None:
        print(f"rookery: run {run} is owned by another process; asked it to go on", file=sys.stderr)
        return OK
    result = train_result(home, state, began)
    if as_json:
        print(json.dumps(result))
    else:
        progress.summary(result)
    codes = {"solved": OK, "finished": OK, "limited": LIMITED, "stopped": INTERRUPTED}
    return codes.get(state.status, FAILED)


def _eval(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.evaluation import evaluate_run
    from rookery.wiring import prepare_xla

    prepare_xla(1)
    home = Home.default()
    run = home.find(arguments.run)
    result = evaluate_run(home, run, arguments.episodes, arguments.seed, arguments.player)
    if arguments.json:
        print(json.dumps(result))
        return OK
    print(f"{run} at {result['env_steps']:,} steps, {result['episodes']} fresh episodes")
    for name in ("greedy", "sampled"):
        if name in result:
            found = result[name]
            print(
                f"  {name:8} return {found['mean']:.2f} ± {found['std']:.2f}"
                f"   length {found['length']:.1f}"
            )
    return OK


def _plot(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.plot import plot

    home = Home.default()
    runs = [home.find(name) for name in arguments.runs]
    points = plot(home, runs, arguments.metric, arguments.out)
    if arguments.json:
        print(json.dumps({"out": arguments.out, "metric": arguments.metric, "points": points}))
    else:
        print(f"wrote {arguments.out}")
    return OK


def _runs_list(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.views import list_rows

    rows = list_rows(Home.default())
    if arguments.json:
        print(json.dumps({"runs": rows}))
        return OK
    if not rows:
        print("no runs yet: rookery train CartPole-v1 --until-return 475")
        return OK
    _table(
        [("RUN", "ENVIRONMENT", "ALGORITHM", "STATUS", "STEPS", "RETURN", "CREATED")]
        + [
            (
                row["run"],
                row["environment"],
                row["algorithm"],
                row["status"],
                f"{row['env_steps']:,}",
                "-" if row["mean_return_100"] is None else f"{row['mean_return_100']:.1f}",
                row["created"],
            )
            for row in rows
        ]
    )
    return OK


def _runs_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.views import show, show_text

    home = Home.default()
    found = show(home, home.find(arguments.run))
    print(json.dumps(found) if arguments.json else show_text(found))
    return OK


def _runs_delete(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.runner import delete

    home = Home.default()
    run = home.find(arguments.run)
    delete(home, run)
    print(json.dumps({"run": run, "deleted": True}) if arguments.json else f"deleted {run}")
    return OK


def _why(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.views import why

    home = Home.default()
    found = why(home, home.find(arguments.run))
    if arguments.json:
        print(json.dumps(found))
        return OK
    print(found["summary"])
    if found["detail"]:
        print(found["detail"].rstrip())
    return OK


def _envs(arguments: argparse.Namespace, began: float) -> int:
    from rookery.envs.registry import search

    found = search(arguments.search)
    if arguments.json:
        rows = [{"id": e.id, "source": e.source, "description": e.description} for e in found]
        print(json.dumps({"environments": rows}))
        return OK
    if not found:
        print(f"no environment matches {arguments.search!r}; `rookery envs` lists all")
        return OK
    _table([("ENVIRONMENT", "SOURCE", "")] + [(e.id, e.source, e.description) for e in found])
    return OK


def _algorithms(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config import ALGORITHMS

    found: dict[str, Any] = {}
    for name, model in ALGORITHMS.items():
        options = []
        for key, field in model.model_fields.items():
            if key == "kind":
                continue
            extra = field.json_schema_extra
            live = isinstance(extra, dict) and bool(extra.get("live"))
            options.append(
                {
                    "key": f"algorithm.{key}",
                    "default": field.default,
                    "live": live,
                    "description": field.description or "",
                }
            )
        found[name] = {"description": (model.__doc__ or "").strip(), "options": options}
    if arguments.json:
        print(json.dumps({"algorithms": found}))
        return OK
    for name, entry in found.items():
        print(f"{name}: {entry['description']}")
        _table(
            [
                ("  " + o["key"], str(o["default"]), "live" if o["live"] else "", o["description"])
                for o in entry["options"]
            ]
        )
    print("live: may change while a run goes on")
    return OK


def _config_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config import RunConfig

    if arguments.schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=None if arguments.json else 2))
        return OK
    config = _config_from(arguments).model_dump(mode="json")
    if arguments.json:
        print(json.dumps(config))
    else:
        import yaml

        print(yaml.safe_dump(config, sort_keys=False), end="")
    return OK


def _standby(arguments: argparse.Namespace, began: float) -> int:
    from rookery import workers

    return _leave(workers.wait_for_work(arguments.threads))


def _worker(arguments: argparse.Namespace, began: float) -> int:
    from rookery import workers

    name, run = arguments.name, arguments.run
    return _leave(workers.main(name, run, arguments.index, arguments.incarnation))


def _leave(code: int) -> NoReturn:
    """Everything is written: taking XLA down in order would only cost half a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
