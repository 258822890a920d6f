"""The verbs that change runs through the home's own log, and those around the server.

What the same verbs do with `--server` is in `verbs_remote`; what both ask for and how they tell
the answer is here.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rookery.cli.verbs import BAD_INPUT, OK, config_from, leave, print_table
from rookery.cli.verbs import resume as carry_on
from rookery.errors import InputError, Rejected, UnknownName

if TYPE_CHECKING:
    from rookery.control.models import Answer, AuditEntry, NewToken, TokenView

SIMPLE = {
    "start": "start",
    "pause": "pause",
    "resume": "resume",
    "stop": "stop",
    "checkpoint": "save-checkpoint",
}
UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}

Wish = tuple[str, dict[str, Any]]  # an action's name and its own parameters


def wishes(arguments: argparse.Namespace) -> list[Wish]:
    """The actions that a command line stands for."""
    name: str = arguments.name
    if name in SIMPLE:
        return [(SIMPLE[name], {})]
    if name == "set":
        return [("set-hyperparameters", {"values": _numbers(arguments.values)})]
    asked = [("scale-learner", arguments.learner), ("scale-actors", arguments.actors)]
    found: list[Wish] = [(action, {"count": n}) for action, n in asked if n is not None]
    if not found:
        raise InputError("nothing to scale: say --actors N, or --learner 0 or 1")
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
    """start, pause, stop, scale, set, checkpoint: into the log of this home."""
    from rookery.client.local import ask, dry_run, is_carried
    from rookery.control.actions import ACTION
    from rookery.control.create import author
    from rookery.control.home import Home

    home = Home.default()
    run = home.find(arguments.run)
    answers = []
    for action, values in wishes(arguments):
        command = ACTION[action].make(run, values, author=author(), reason=arguments.reason)
        answers.append(dry_run(home, command) if arguments.dry_run else ask(home, command))
    code = tell(arguments, answers)
    if answers[-1].kind == "start_run" and not arguments.json and not is_carried(home, run):
        print(f"  nobody carries it yet: rookery serve, or here: rookery resume {run}")
    return code


def resume(arguments: argparse.Namespace, began: float) -> int:
    """Its owner goes on with it, if there is one; else it is carried here."""
    from rookery.control.home import Home

    home = Home.default()
    if arguments.dry_run or home.is_owned(home.find(arguments.run)):
        return steer(arguments, began)
    return carry_on(arguments, began)


def tell(arguments: argparse.Namespace, answers: Sequence[Answer]) -> int:
    """What became of the commands; a rejection is an error of one line."""
    refused = next((a for a in answers if a.outcome in ("rejected", "would_reject")), None)
    if refused is not None and refused.outcome == "rejected":
        raise Rejected(refused.why)
    effect = "; ".join(answer.effect for answer in answers if answer.effect)
    if arguments.json:
        shown = refused or answers[-1].model_copy(update={"effect": effect})
        print(json.dumps(shown.model_dump()))
        return OK if refused is None else BAD_INPUT
    if refused is not None:
        raise Rejected(f"it would be rejected: {refused.why}")
    name = answers[-1].run or "dry run"
    if any(answer.outcome == "waiting" for answer in answers):
        print(f"{name}: waits until somebody carries the run: {effect}")
    elif answers[-1].outcome == "would_accept":
        print(f"{name}: would be accepted: {effect}")
    else:
        print(f"{name}: {effect}")
    return OK


def submit(arguments: argparse.Namespace, began: float) -> int:
    from rookery.client.local import submit as send
    from rookery.control.create import author
    from rookery.control.home import Home

    home, config = Home.default(), config_from(arguments)
    start = not arguments.no_start
    answer = send(home, config, author(), arguments.reason, start, arguments.dry_run)
    code = tell(arguments, [answer])
    if start and not arguments.dry_run and not home.has_server():
        print("queued: no server runs here: rookery serve", file=_aside(arguments))
    return code


def _aside(arguments: argparse.Namespace) -> Any:
    """Where to say what is no part of the result."""
    return sys.stderr if arguments.json else sys.stdout


def runs_delete(arguments: argparse.Namespace, began: float) -> int:
    from rookery.client.local import ask, dry_run
    from rookery.control.create import author
    from rookery.control.home import Home
    from rookery.control.run_state import STOPPED
    from rookery.messages import DeleteRun, StopRun

    home = Home.default()
    run = home.find(arguments.run)
    command = DeleteRun(run=run, author=author(), reason=arguments.reason)
    if arguments.dry_run:
        return tell_deleted(arguments, dry_run(home, command))
    if home.state(run).desired != STOPPED and not home.is_owned(run):  # nothing runs any more
        ask(home, StopRun(run=run, author=author(), reason="its owner died"))
    return tell_deleted(arguments, ask(home, command))


def tell_deleted(arguments: argparse.Namespace, answer: Answer) -> int:
    if answer.outcome != "accepted":
        return tell(arguments, [answer])
    done = {**answer.model_dump(), "deleted": True}
    print(json.dumps(done) if arguments.json else f"deleted {answer.run}: {answer.effect}")
    return OK


def seats(arguments: argparse.Namespace, began: float) -> int:
    from rookery.client.local import ask, dry_run, is_carried
    from rookery.config.reading import seats_from
    from rookery.control.create import author
    from rookery.control.home import Home
    from rookery.control.seats import seats_now
    from rookery.messages import SetSeatMap

    home = Home.default()
    run = home.find(arguments.run)
    asked = seats_from(arguments.seats)
    command = SetSeatMap(run=run, seats=asked, author=author(), reason=arguments.reason)
    answer = dry_run(home, command) if arguments.dry_run else ask(home, command)
    if arguments.json and answer.outcome in ("accepted", "waiting"):
        state = home.state(run)
        whole = seats_now(state, home.config(state))
        print(json.dumps({**answer.model_dump(), "seats": whole}))
        return OK
    code = tell(arguments, [answer])
    if not is_carried(home, run):
        print(f"  once it goes on: rookery resume {run}")
    return code


# --- the audit -----------------------------------------------------------------------------------


def audit(arguments: argparse.Namespace, began: float) -> int:
    from rookery.client.local import audit as read
    from rookery.control.home import Home

    home = Home.default()
    run = home.find(arguments.run) if arguments.run else None
    return tell_audit(arguments, read(home, run))


def tell_audit(arguments: argparse.Namespace, entries: Sequence[AuditEntry]) -> int:
    newest = entries[-arguments.count :]
    if arguments.json:
        print(json.dumps({"entries": [entry.model_dump() for entry in newest]}))
        return OK
    if not newest:
        print("no command was ever sent")
        return OK
    print_table(
        [("WHEN", "RUN", "COMMAND", "BY", "OUTCOME", "REASON")]
        + [
            (
                _when(entry.time_s),
                entry.run,
                _shown(f"{entry.kind} {_own(entry)}".rstrip()),
                _shown(entry.author) or "-",
                entry.outcome + (f": {_shown(entry.why)}" if entry.why else ""),
                _shown(entry.reason),
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


def _shown(text: str) -> str:
    from rookery.client.http import one_line

    line = one_line(text)
    return line if len(line) <= 100 else f"{line[:97]}..."


def _when(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_s))


# --- tokens --------------------------------------------------------------------------------------


def tokens_create(arguments: argparse.Namespace, began: float) -> int:
    made = _store().create(arguments.scope, ttl_s(arguments.ttl), arguments.label)
    return tell_token(arguments, made)


def tokens_list(arguments: argparse.Namespace, began: float) -> int:
    return tell_tokens(arguments, _store().list())


def tokens_revoke(arguments: argparse.Namespace, began: float) -> int:
    store = _store()
    if not store.revoke(arguments.id):
        known = [token.id for token in store.list()]
        raise UnknownName("token", arguments.id, known, "Run `rookery tokens list`.")
    return tell_revoked(arguments)


def _store() -> Any:
    from rookery.control.home import Home
    from rookery.server.security.tokens import TokenStore

    return TokenStore(Home.default().path / "tokens.json")


def tell_token(arguments: argparse.Namespace, made: NewToken) -> int:
    if arguments.json:
        print(json.dumps(made.model_dump()))
        return OK
    until = "until it is revoked" if made.expires_s is None else f"until {_when(made.expires_s)}"
    print(made.token)
    print(f"scope {made.scope}, {until}, id {made.id}; shown this once", file=sys.stderr)
    return OK


def tell_tokens(arguments: argparse.Namespace, found: Sequence[TokenView]) -> int:
    if arguments.json:
        print(json.dumps({"tokens": [token.model_dump() for token in found]}))
        return OK
    rows = [("ID", "SCOPE", "LABEL", "CREATED", "EXPIRES")]
    for token in found:
        expires = "-" if token.expires_s is None else _when(token.expires_s)
        rows.append((token.id, token.scope, _shown(token.label), _when(token.created_s), expires))
    print_table(rows)
    return OK


def tell_revoked(arguments: argparse.Namespace) -> int:
    done = {"id": arguments.id, "revoked": True}
    print(json.dumps(done) if arguments.json else f"revoked {arguments.id}")
    return OK


def ttl_s(text: str | None) -> float | None:
    """`8h` in seconds; a number alone is of seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS_S else (text, "s")
    try:
        return float(number) * UNITS_S[unit]
    except ValueError:
        raise InputError(f"--ttl {text!r} is no length of time: 30m, 8h, 7d") from None


# --- the server ----------------------------------------------------------------------------------


def serve(arguments: argparse.Namespace, began: float) -> int:
    from rookery.server import serve as server

    return server.main(arguments)


def mcp(arguments: argparse.Namespace, began: float) -> int:
    from rookery.server import serve as server

    return server.mcp_main(arguments)


def job(arguments: argparse.Namespace, began: float) -> int:
    from rookery.evaluation import job as jobs

    return leave(jobs.main(arguments.run, arguments.command))
