"""What each verb of the command line does: a thin translation into the package and back to text.

Heavy imports happen inside the verbs. A verb takes the parsed arguments and the time at which the
command began, and returns the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rookery.errors import InputError, RookeryError

OK, FAILED, BAD_INPUT, LIMITED, INTERRUPTED = 0, 1, 2, 3, 130
ENDINGS = {"solved": OK, "finished": OK, "limited": LIMITED, "stopped": INTERRUPTED}


def config_from(arguments: argparse.Namespace) -> Any:
    from rookery.config.reading import assignment, build, load_yaml, seats_from, self_play

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
        "bus.kind": _bus_kind(arguments.bus),
    }
    for key, value in flags.items():
        if value is not None:
            nested: Any = value
            for part in reversed(key.split(".")):
                nested = {part: nested}
            layers.append(nested)
    if arguments.self_play:
        layers.append(self_play())
    if arguments.seats:
        layers.append({"seats": seats_from(arguments.seats)})
    layers += [assignment(text) for text in arguments.set]
    options = _environment_options(arguments)
    if options:
        layers.append({"environment": {"kwargs": options}})
    return build(*layers)


def _bus_kind(asked: str | None) -> str | None:
    """A URI says where the cluster is; what the config holds of it is that there is one."""
    uri = asked or os.environ.get("ROOKERY_BUS")
    return uri.partition(":")[0] if uri else None


def _environment_options(arguments: argparse.Namespace) -> dict[str, Any]:
    from rookery.config.reading import parse_value

    pairs = (text.partition("=") for text in arguments.env_options)
    return {key: parse_value(value) for key, _, value in pairs}


def train(arguments: argparse.Namespace, began: float) -> int:
    from rookery.launchers.standby import Standby

    standby = None if arguments.launcher == "inline" else Standby()  # before anything slow
    try:
        config = config_from(arguments)
        if standby is not None and (config.launcher == "inline" or config.learner.threads != 1):
            standby.close()

        from rookery.control.create import create_run
        from rookery.control.home import Home

        home = Home.default()
        return _carry(home, create_run(home, config), arguments.json, began, standby)
    finally:
        if standby is not None:
            standby.close()


def resume(arguments: argparse.Namespace, began: float) -> int:
    from rookery.checkpoints.checkpoint import newest_checkpoint
    from rookery.checkpoints.store import open_store
    from rookery.control.home import Home
    from rookery.learner.manifest import LearnerManifest

    home = Home.default()
    run = home.find(arguments.run)
    state = home.state(run)
    damaged: list[str] = []
    try:
        store = open_store(home.files_of(state).checkpoints)
        newest_checkpoint(store, LearnerManifest, lambda name, why: damaged.append(why))
    except RookeryError as error:
        raise InputError(f"run {run} cannot be resumed: {error}") from None
    for why in damaged:
        print(f"rookery: {why}; going on from the one before", file=sys.stderr)
    return _carry(home, run, arguments.json, began)


def replay(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.create import author
    from rookery.control.home import Home
    from rookery.control.replay import replay_run

    home = Home.default()
    run = home.find(arguments.run)
    parts = [part for part in arguments.from_offset.split(",") if part]
    if not all(part.isdigit() for part in parts):
        raise InputError(f"--from-offset {arguments.from_offset!r}: one number for each partition")
    start = tuple(map(int, parts))
    made = replay_run(home, run, arguments.into, start, arguments.passes, arguments.seed, author())
    return _carry(home, made, arguments.json, began)


def _carry(home: Any, run: str, as_json: bool, began: float, standby: Any = None) -> int:
    from rookery.cli.progress import Progress
    from rookery.control.carry import carry
    from rookery.control.queries import train_result

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
    return ENDINGS.get(state.status, FAILED)


def evaluate(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.evaluation.episodes import evaluate_run
    from rookery.worker.xla import prepare_xla

    prepare_xla(1)
    home = Home.default()
    run = home.find(arguments.run)
    result = evaluate_run(home, run, arguments.episodes, arguments.seed, arguments.player)
    return print_evaluation(result, run, arguments.player, arguments.json)


def print_evaluation(result: dict[str, Any], run: str, player: str, as_json: bool) -> int:
    if as_json:
        print(json.dumps(result))
        return OK
    trained = player == "policy"
    who = f"{run} at {result['env_steps']:,} steps" if trained else f"{player} in {run}"
    print(f"{who}, {result['episodes']} fresh episodes")
    for name in ("greedy", "sampled"):
        if name in result:
            found = result[name]
            whose = "   mean of all seats" if "seats" in found else ""
            print(
                f"  {name:8} return {found['mean']:.2f} ± {found['std']:.2f}"
                f"   length {found['length']:.1f}{whose}"
            )
            for seat, each in found.get("seats", {}).items():
                print(f"    {seat:14} return {each['mean']:.2f} ± {each['std']:.2f}")
    return OK


def match(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.evaluation.match import match_text, play_match
    from rookery.worker.xla import prepare_xla

    prepare_xla(1)
    result = play_match(
        Home.default(),
        arguments.environment,
        arguments.a,
        arguments.b,
        arguments.games,
        arguments.seed,
        arguments.sampled,
        _environment_options(arguments),
    )
    print(json.dumps(result) if arguments.json else match_text(result))
    return OK


def ladder(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.evaluation.ladder import ladder as read_ladder
    from rookery.evaluation.ladder import ladder_text

    home = Home.default()
    found = read_ladder(home, home.find(arguments.run))
    print(json.dumps(found) if arguments.json else ladder_text(found, arguments.payoff))
    return OK


def plot(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli.plot import plot as draw
    from rookery.control.home import Home

    home = Home.default()
    runs = [home.find(name) for name in arguments.runs]
    points = draw(home, runs, arguments.metric, arguments.out)
    if arguments.json:
        print(json.dumps({"out": arguments.out, "metric": arguments.metric, "points": points}))
    else:
        print(f"wrote {arguments.out}")
    return OK


def runs_list(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.control.queries import list_rows

    return print_runs(list_rows(Home.default()), arguments.json)


def print_runs(rows: Sequence[dict[str, Any]], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"runs": rows}))
        return OK
    if not rows:
        print("no runs yet: rookery train CartPole-v1 --until-return 475")
        return OK
    print_table(
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


def runs_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli.text import show_text
    from rookery.control.home import Home
    from rookery.control.queries import show

    home = Home.default()
    found = show(home, home.find(arguments.run))
    print(json.dumps(found) if arguments.json else show_text(found))
    return OK


def why(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.diagnosis import why as diagnose
    from rookery.control.home import Home

    home = Home.default()
    return print_diagnosis(diagnose(home, home.find(arguments.run)), arguments.json)


def print_diagnosis(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print(json.dumps(found))
        return OK
    print(found["summary"])
    if found["detail"]:
        print(found["detail"].rstrip())
    return OK


def envs(arguments: argparse.Namespace, began: float) -> int:
    from rookery.envs.registry import search

    found = search(arguments.search)
    if arguments.json:
        rows = [{"id": e.id, "source": e.source, "description": e.description} for e in found]
        print(json.dumps({"environments": rows}))
        return OK
    if not found:
        print(f"no environment matches {arguments.search!r}; `rookery envs` lists all")
        return OK
    print_table([("ENVIRONMENT", "SOURCE", "")] + [(e.id, e.source, e.description) for e in found])
    return OK


def algorithms(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control import catalogue

    found = catalogue.algorithms()
    if arguments.json:
        print(json.dumps({"algorithms": found}))
        return OK
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
        print(json.dumps({"players": found}))
        return OK
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


def config_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config.models import RunConfig

    if arguments.schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=None if arguments.json else 2))
        return OK
    config = config_from(arguments).model_dump(mode="json")
    if arguments.json:
        print(json.dumps(config))
    else:
        import yaml

        print(yaml.safe_dump(config, sort_keys=False), end="")
    return OK


def standby(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli import workers

    return leave(workers.wait_for_work(arguments.threads))


def prepare(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control import check
    from rookery.worker.process import end_with_parent

    return leave(check.serve_one(end_with_parent))


def viewer(arguments: argparse.Namespace, began: float) -> int:
    from rookery.viewing import viewer

    return leave(viewer.main())


def worker(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli import workers

    name, run = arguments.name, arguments.run
    if arguments.incarnation is None:
        return leave(workers.join(name, run))
    return leave(workers.main(name, run, arguments.index, arguments.incarnation))


def leave(code: int) -> NoReturn:
    """Everything is written: taking XLA down in order would only cost half a second."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())
