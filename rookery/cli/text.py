"""What verbs print of what they found: plain text for people, or one JSON object."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from rookery import output
from rookery.cli.exits import BAD_INPUT, OK
from rookery.errors import Rejected
from rookery.foreign import clean, one_line

if TYPE_CHECKING:
    from rookery.control.models import (
        Aggregate,
        Answer,
        AuditEntry,
        GroupDetail,
        NewToken,
        RunRow,
        TokenView,
    )


def say(text: str, out: TextIO | None = None) -> None:
    """Print for a person; whatever others wrote in it steers no terminal."""
    print(clean(text), file=out, flush=True)


def as_typed(text: str, server: str | None = None) -> str:
    """A bound that a message suggests to every door, as it is typed at this one."""
    told = r"run \1 \2: rookery resume \1 --steps \3" + _at(server)
    return re.sub(r"\brun (\S+) (.*), like steps=(\d+)", told, text)


def _at(server: str | None) -> str:
    return f" --server {server_shown(server)}" if server else ""


def print_json(data: Any) -> int:
    output.print_json(data)
    return OK


def print_table(rows: Sequence[Sequence[str]]) -> None:
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip())


def last_episodes(count: int) -> int:
    """Over how many of so many episodes a return is the mean."""
    return min(count, 100)


def server_shown(url: str) -> str:
    """Without the token that it may carry."""
    return url.partition("#")[0].rstrip("/")


def _short(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 100 else f"{line[:97]}..."


def _when(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


# --- runs ----------------------------------------------------------------------------------------


def print_runs(
    rows: Sequence[dict[str, Any]], as_json: bool, columns: Sequence[str], is_all: bool
) -> int:
    """`columns`: config keys that are shown too; `is_all`: whether none was filtered out."""
    if as_json:
        return print_json({"runs": rows})
    if not rows:
        first = "no runs yet: rookery train CartPole-v1 --until-return 475"
        print(first if is_all else "no run fits: rookery runs list shows all")
        return OK
    labels = [key for key in ("name", "tags", "group", "parent") if any(row[key] for row in rows)]
    heads = ("RUN", *labels, "ENVIRONMENT", "ALGORITHM", "STATUS", "STEPS", "RETURN", "CREATED")
    print_table(
        [[head.upper() for head in heads] + list(columns)]
        + [
            [
                row["run"],
                *(_short(_listed(row[key])) for key in labels),
                *(row[key] for key in ("environment", "algorithm")),
                _status(row),
                f"{row['env_steps']:,}",
                "-" if row["mean_return_100"] is None else f"{row['mean_return_100']:.1f}",
                row["created"],
                *(_short(_listed(row["config"][key])) for key in columns),
            ]
            for row in rows
        ]
    )
    for row in rows:
        if row.get("waits_for"):
            say(f"{row['run']} waits for {row['waits_for']}")
    return OK


def print_group(found: GroupDetail) -> None:
    """Its runs, and in the last lines what they came to."""
    rows = sorted(found.runs, key=lambda row: -(row.mean_return_100 or -math.inf))
    heads = ["RUN", "NAME", "ENVIRONMENT", "STATUS", "STEPS", "RETURN"]
    cells = [
        [row.run, row.name or "-", row.environment, row.status, f"{row.env_steps:,}", _figure(row)]
        for row in rows
    ]
    print_table([heads, *cells])
    for each in found.aggregates:
        say(f"{each.environment}: {aggregate_text(each)}; best {each.best}, worst {each.worst}")


def aggregate_text(found: Aggregate) -> str:
    """What several runs came to, in one line."""
    runs = f"{found.runs} run{'s' if found.runs != 1 else ''}"
    band = f"95 % within {found.low:.1f} .. {found.high:.1f}"
    return f"{runs}, mean {found.mean:.1f}, interquartile mean {found.iqm:.1f} ({band})"


def _figure(row: RunRow) -> str:
    return "-" if row.mean_return_100 is None else f"{row.mean_return_100:.1f}"


def _listed(value: Any) -> str:
    if value is None:
        return "-"
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _status(row: dict[str, Any]) -> str:
    return f"{row['status']}{', owner frozen' if row['owner_frozen'] else ''}"


def show_text(found: dict[str, Any]) -> str:
    from rookery.control.diagnosis import damaged_text

    balance_ = found["balance"]
    dropped = sum(balance_["dropped"].values())
    reasons = ", ".join(f"{why} {n:,}" for why, n in balance_["dropped"].items())
    lines = [
        f"{found['run']}  {found['environment']}  {found['algorithm']}  {_status(found)}"
        + (f" ({found['reason']})" if found["reason"] else ""),
        *([f"  waits for  {found['waits_for']}"] if found["waits_for"] else []),
        f"  steps      {found['env_steps']:,}{_pace(found)}",
        *([f"  return     {_judged(found)}"] if found["mean_return_100"] is not None else []),
        f"  balance    produced {balance_['produced']:,} = trained {balance_['trained']:,}"
        f" + dropped {dropped:,}{f' ({reasons})' if reasons else ''}"
        f" + in flight {balance_['in_flight']:,}"
        + ("" if balance_["exact"] else "   DOES NOT ADD UP"),
        f"  weights    {found['weights_version'] or '-'}",
    ]
    for key in ("name", "tags", "notes", "group", "parent"):
        if text := found.get(key):
            lines.append(f"  {key:10} {', '.join(text) if key == 'tags' else text}")
    if found.get("device"):
        lines.append(f"  learner    computes on {found['device']}")
    if found["damaged"]:
        lines.append(f"  damaged    {damaged_text(found['damaged'])}")
    for name, policy in found["policies"].items():
        mean = policy["mean_return_100"]
        shown = "-" if mean is None else f"{mean:.2f}"
        of = f"mean of the last {last_episodes(policy['episodes'])} episodes"
        lines.append(
            f"  policy     {name}: trained {policy['trained']:,} steps, return {shown} ({of})"
        )
    for seat, mean in found["seat_returns"].items():
        lines.append(f"  seat       {seat}: return {mean:.2f}")
    league = found["league"]
    if league is not None:
        lines.append(
            f"  league     {league['snapshots']} snapshots, {league['rated_games']:,} rated games; "
            f"{league['newest']} at {league['rating']:.1f} ± {1.96 * league['uncertainty']:.1f}"
        )
    for worker in found["workers"]:
        state = f"pid {worker['pid']}" if worker["alive"] else "not running"
        state += f" on {worker['host']}" if worker["alive"] and worker["host"] else ""
        if worker["waits_for"]:
            state = f"waits for {worker['waits_for']}"
        error = f"   last error: {worker['last_error']}" if worker["last_error"] else ""
        lines.append(
            f"  {worker['kind']} {worker['index']}    {state}, {worker['restarts']} restarts{error}"
        )
    lines.append(f"  checkpoints {', '.join(found['checkpoints']) or 'none yet'}")
    lines.append(f"  directory  {found['directory']}")
    return "\n".join(lines)


def _pace(found: dict[str, Any]) -> str:
    """Seconds and steps a second, by the clock of the training."""
    from rookery.control.queries import rate

    if not found["train_s"]:
        return ""
    pace = rate(found["env_steps"], found["train_s"])
    now = "" if found["steps_per_s"] is None else f" (now {found['steps_per_s']:,.0f})"
    return f" in {found['train_s']:.1f} s of training, {pace:,.0f} steps/s{now}"


def _judged(found: dict[str, Any]) -> str:
    of = f" of {found['policy']}" if found["policy"] else ""
    episodes = last_episodes(found["episodes"] or 0)
    return f"{found['mean_return_100']:.1f}{of}, mean of the last {episodes} training episodes"


def print_diagnosis(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        return print_json(found)
    say(found["summary"])
    if found["detail"]:
        say(found["detail"].rstrip())
    return OK


def print_evaluation(result: dict[str, Any], run: str, player: str, as_json: bool) -> int:
    if as_json:
        return print_json(result)
    trained = player == "policy"
    who = f"{run} at {result['env_steps']:,} steps" if trained else f"{player} in {run}"
    say(f"{who}, {result['episodes']} fresh episodes")
    for name in ("greedy", "sampled"):
        if name in result:
            found = result[name]
            whose = "   mean of all seats" if "seats" in found else ""
            say(
                f"  {name:8} return {found['mean']:.2f} ± {found['std']:.2f}"
                f"   length {found['length']:.1f}{whose}"
            )
            if found.get("cut"):
                print(f"    {found['cut']} episodes did not end: cut at {result['cut_at']:,} steps")
            for seat, each in found.get("seats", {}).items():
                say(f"    {seat:14} return {each['mean']:.2f} ± {each['std']:.2f}")
    ways = [result[name] for name in ("greedy", "sampled") if name in result]
    if any(way.get("cut") and "seats" not in way for way in ways):
        print("  its environment has no time limit: --env.max_episode_steps=N of train sets one")
    return OK


# --- changes -------------------------------------------------------------------------------------


def print_answers(arguments: argparse.Namespace, answers: Sequence[Answer]) -> int:
    """What became of the commands; one that would be rejected is an error of one line."""
    refused = next((a for a in answers if a.outcome == "would_reject"), None)
    effect = "; ".join(answer.effect for answer in answers if answer.effect)
    if arguments.json:
        shown = refused or answers[-1].model_copy(update={"effect": effect})
        print_json(shown.model_dump())
        return OK if refused is None else BAD_INPUT
    if refused is not None:
        raise Rejected(f"it would be rejected: {refused.why}")
    name = answers[-1].run or "dry run"
    if any(answer.outcome == "waiting" for answer in answers):
        say(f"{name}: waits until somebody carries the run: {effect}")
    elif answers[-1].outcome == "would_accept":
        say(f"{name}: would be accepted: {effect}")
    else:
        say(f"{name}: {effect}")
    return OK


def print_deleted(arguments: argparse.Namespace, answer: Answer) -> int:
    if answer.outcome != "accepted":
        return print_answers(arguments, [answer])
    done = {**answer.model_dump(), "deleted": True}
    if arguments.json:
        return print_json(done)
    say(f"deleted {answer.run}: {answer.effect}")
    return OK


def print_audit(arguments: argparse.Namespace, entries: Sequence[AuditEntry]) -> int:
    newest = entries[-arguments.count :]
    if arguments.json:
        return print_json({"entries": [entry.model_dump() for entry in newest]})
    if not newest:
        print("no command was ever sent")
        return OK
    print_table(
        [("WHEN", "RUN", "COMMAND", "BY", "OUTCOME", "REASON")]
        + [
            (
                _when(entry.time_s),
                entry.run,
                _short(f"{entry.kind} {_own(entry)}".rstrip()),
                _short(entry.author) or "-",
                entry.outcome + (f": {_short(entry.why)}" if entry.why else ""),
                _short(entry.reason),
            )
            for entry in newest
        ]
    )
    return OK


def _own(entry: AuditEntry) -> str:
    """A command's own fields in a few words; a config is too long for a line."""
    if entry.kind == "create_run":
        return str((entry.data.get("config") or {}).get("environment", {}).get("id", ""))
    return " ".join(f"{key}={json.dumps(value)}" for key, value in entry.data.items())


# --- tokens --------------------------------------------------------------------------------------


def print_token(arguments: argparse.Namespace, made: NewToken) -> int:
    if arguments.json:
        return print_json(made.model_dump())
    until = "until it is revoked" if made.expires_s is None else f"until {_when(made.expires_s)}"
    print(made.token)
    print(f"scope {made.scope}, {until}, id {made.id}; shown this once", file=sys.stderr)
    return OK


def print_tokens(arguments: argparse.Namespace, found: Sequence[TokenView]) -> int:
    if arguments.json:
        return print_json({"tokens": [token.model_dump() for token in found]})
    rows = [("ID", "SCOPE", "LABEL", "CREATED", "EXPIRES")]
    for token in found:
        expires = "-" if token.expires_s is None else _when(token.expires_s)
        rows.append((token.id, token.scope, _short(token.label), _when(token.created_s), expires))
    print_table(rows)
    return OK


def print_revoked(arguments: argparse.Namespace) -> int:
    if arguments.json:
        return print_json({"id": arguments.id, "revoked": True})
    print(f"revoked {arguments.id}")
    return OK
