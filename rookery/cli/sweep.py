"""Sweeps: beginning, watching, stopping and going on with them, and what they found."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rookery.cli.config import layers_from
from rookery.cli.exits import FAILED, INTERRUPTED, OK
from rookery.cli.options import number, positive
from rookery.cli.text import print_json, print_table, say
from rookery.cli.waiting import waiting
from rookery.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rookery.tuning.sweep import Sweep

WORDS = ("list", "show", "stop", "resume", "plot")
SETTINGS = ("trials", "seeds", "sampler", "scheduler", "generations", "burn_in", "episodes", "jobs")
SHOWN = 10  # trials, unless all are asked for


def second_word(argv: Sequence[str]) -> Sequence[str]:
    """`sweep CartPole-v1` begins a new one."""
    if argv[:1] == ["sweep"] and (len(argv) == 1 or argv[1] not in (*WORDS, "new")):
        return ["sweep", "new", *argv[1:]]
    return argv


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Without defaults: a file may say them, and what was said counts."""
    parser.add_argument(
        "--search",
        nargs="+",
        default=[],
        metavar="KEY=VALUES",
        help="a|b|c, 1..10, log:1e-5..1e-2, int:1..8, logint:8..512, '... if KEY=a'",
    )
    parser.add_argument("--trials", type=positive, metavar="N", help="to try; default: 20")
    parser.add_argument("--seeds", type=positive, metavar="N", help="runs of each; default: 1")
    parser.add_argument("--sampler", metavar="NAME", help="who proposes: tpe (default), random")
    parser.add_argument(
        "--scheduler", metavar="NAME", help="ends bad runs: none (default), median, asha, pbt"
    )
    parser.add_argument(
        "--generations", type=positive, metavar="N", help="of a population (pbt); default: 10"
    )
    text = "of a population's steps before anybody is compared; default: 0.25"
    parser.add_argument("--burn-in", type=number, metavar="SHARE", help=text)
    parser.add_argument(
        "--episodes", type=positive, metavar="N", help="that judge each run; default: 100"
    )
    parser.add_argument("--jobs", type=positive, metavar="N", help="runs at a time")


def sweep_new(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.tuning.sweep import begin

    base, settings = _asked(arguments)
    with waiting("looking at the search space, the environment and its players"):
        from rookery.worker.xla import prepare_xla

        prepare_xla(1)  # looking at a JAX-native environment imports JAX
        sweep = begin(Home.default(), base, settings)
    return _carry(sweep, arguments.json)


def _asked(arguments: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """The config of every run, and how to search: the file's, and the options over it."""
    from rookery.config.reading import load_yaml, merged_layers
    from rookery.tuning.spec import read_settings
    from rookery.tuning.text import read_lines, write_mapping

    file = load_yaml(arguments.config) if arguments.config else {}
    settings = file.pop("sweep", {})
    if not isinstance(settings, dict):
        raise ConfigError(f"sweep: {settings!r} is not a mapping; see docs/tuning.md")
    given = {name: getattr(arguments, name) for name in SETTINGS}
    settings |= {name: value for name, value in given.items() if value is not None}
    if arguments.search:
        settings["search"] = write_mapping(read_lines(arguments.search))
    return merged_layers(file, *layers_from(arguments)), read_settings(settings)


def _carry(sweep: Sweep, as_json: bool) -> int:
    from rookery.cli.sweep_progress import SweepProgress

    try:
        with SweepProgress(sweep.id, sys.stderr if as_json else sys.stdout) as progress:
            status = sweep.carry(progress)
    except KeyboardInterrupt:
        status = "interrupted"
    found = sweep.show()
    if as_json:
        print_json(found)
    else:
        _print(found, SHOWN)
    if status != "finished":
        say(f"rookery: {sweep.id} is {status}: rookery sweep resume {sweep.id}", sys.stderr)
        return INTERRUPTED
    return OK if found["best"] is not None else FAILED


def _found(arguments: argparse.Namespace) -> Sweep:
    from rookery.control.home import Home
    from rookery.tuning.sweep import find

    return find(Home.default(), arguments.sweep)


def sweep_resume(arguments: argparse.Namespace, began: float) -> int:
    sweep = _found(arguments)
    if sweep.status == "finished":
        raise InputError(f"sweep {sweep.id} has finished: rookery sweep show {sweep.id}")
    from rookery.worker.xla import prepare_xla

    prepare_xla(1)
    return _carry(sweep, arguments.json)


def sweep_stop(arguments: argparse.Namespace, began: float) -> int:
    sweep = _found(arguments)
    if sweep.status == "finished":
        raise InputError(f"sweep {sweep.id} has finished: rookery sweep show {sweep.id}")
    sweep.stop()
    if arguments.json:
        return print_json({"sweep": sweep.id, "stopping": True})
    say(f"{sweep.id} stops, each run after a checkpoint; to go on: rookery sweep resume {sweep.id}")
    return OK


def sweep_list(arguments: argparse.Namespace, began: float) -> int:
    from rookery.control.home import Home
    from rookery.tuning.spec import SweepFiles
    from rookery.tuning.sweep import all_sweeps

    home = Home.default()
    found = [sweep.show() for sweep in reversed(all_sweeps(home))]
    for error in SweepFiles(home).damaged:
        say(f"rookery: {error}", sys.stderr)
    if arguments.json:
        return print_json({"sweeps": found})
    if not found:
        say("no sweeps yet: rookery sweep CartPole-v1 --search algorithm.gamma=0.9..0.999")
        return OK
    rows = [["SWEEP", "ENVIRONMENT", "STATUS", "TRIALS", "BEST", "BEGAN"]]
    for each in found:
        done = sum(row["status"] in ("done", "pruned", "failed") for row in each["table"])
        began_at = time.strftime("%Y-%m-%d %H:%M", time.localtime(each["created_s"]))
        best = "-" if each["best"] is None else f"{each['best']['value']:.1f}"
        rows.append(
            [
                *(each["sweep"], each["environment"], each["status"]),
                *(f"{done}/{each['trials']}", best, began_at),
            ]
        )
    print_table(rows)
    return OK


def sweep_show(arguments: argparse.Namespace, began: float) -> int:
    sweep = _found(arguments)
    found = sweep.show()
    if arguments.best:
        from pathlib import Path

        try:
            Path(arguments.best).write_text(sweep.best_yaml(), encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot write {arguments.best!r}: {error.strerror}") from None
    if arguments.json:
        return print_json(found)
    _print(found, None)
    return OK


def sweep_plot(arguments: argparse.Namespace, began: float) -> int:
    sweep = _found(arguments)
    sweep.plot(arguments.out)
    if arguments.json:
        return print_json({"sweep": sweep.id, "out": arguments.out})
    say(f"wrote {arguments.out}")
    return OK


def _print(found: dict[str, Any], most: int | None) -> None:
    """The table, the best, and what to try next."""
    from rookery.tuning.conductor import shown

    table = found["table"]
    counts = [f"{n} {name}" for name in _statuses(table) if (n := _count(table, name))]
    say(f"{found['sweep']}: {found['environment']}, {found['status']}, {', '.join(counts)}")
    if table:
        is_bred = found["scheduler"] == "pbt"
        rows = [["TRIAL", "STATUS", "RETURN", "STEPS", *(["LINEAGE"] * is_bred), "VALUES"]]
        rows += [
            [
                *(str(row["trial"]), row["status"], _number(row["value"]), f"{row['env_steps']:,}"),
                *([_lineage(row["stages"])] if is_bred else []),
                shown(row["values"]) + (f"  ({row['why']})" if row["why"] else ""),
            ]
            for row in table[:most]
        ]
        print_table(rows)
        if most is not None and len(table) > most:
            say(f"and {len(table) - most} more: rookery sweep show {found['sweep']}")
    if found["importance"]:
        told = [f"{key} {share:.0%}" for key, share in found["importance"].items()]
        say(f"what matters: {', '.join(told)}")
    best = found["best"]
    if best is not None:
        say(f"best: trial {best['trial']} with a return of {best['value']:.1f} (greedy episodes)")
        say(f"  try: rookery train --config {best['file']}")
        say(f"       rookery sweep plot {found['sweep']}")


def _lineage(stages: Sequence[dict[str, Any]]) -> str:
    """The member that it was in each generation, as often as it became another: 3>0@4>0@9."""
    found = [str(stages[0]["member"])]
    for stage in stages[1:]:
        if stage["parent"]:
            found.append(f"{stage['member']}@{stage['generation']}")
    return ">".join(found)


def _statuses(table: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["status"] for row in table))


def _count(table: Sequence[dict[str, Any]], status: str) -> int:
    return sum(row["status"] == status for row in table)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
