"""What the verbs do with `--server`: the same, through the client and a server far or near."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from rookery.cli.steer import (
    tell,
    tell_audit,
    tell_deleted,
    tell_revoked,
    tell_token,
    tell_tokens,
    ttl_s,
    wishes,
)
from rookery.cli.verbs import (
    ENDINGS,
    FAILED,
    INTERRUPTED,
    OK,
    config_from,
    print_diagnosis,
    print_evaluation,
    print_runs,
)
from rookery.errors import InputError, Unreachable

if TYPE_CHECKING:
    from rookery.client import Client, RemoteRun
    from rookery.control.models import RunDetail

JOB_S = 24 * 3600.0  # for the result of an evaluation or a match


def _client(arguments: argparse.Namespace) -> Client:
    from rookery.client import Client

    return Client(arguments.server)


def _run(arguments: argparse.Namespace) -> RemoteRun:
    return _client(arguments).run(arguments.run)


# --- changing runs -------------------------------------------------------------------------------


def steer(arguments: argparse.Namespace, began: float) -> int:
    run = _run(arguments)
    answers = [
        run.act(action, values, arguments.reason, arguments.dry_run)
        for action, values in wishes(arguments)
    ]
    return tell(arguments, answers)


def seats(arguments: argparse.Namespace, began: float) -> int:
    from rookery.config.reading import seats_from

    asked = seats_from(arguments.seats)
    run = _run(arguments)
    answer = run.seat(asked, arguments.reason, arguments.dry_run)
    if arguments.json and not arguments.dry_run:
        print(json.dumps({**answer.model_dump(), "seats": run.detail().seats}))
        return OK
    return tell(arguments, [answer])


def submit(arguments: argparse.Namespace, began: float) -> int:
    config, start = config_from(arguments), not arguments.no_start
    client, reason = _client(arguments), arguments.reason
    if arguments.dry_run:
        return tell(arguments, [client.submit(config, start, reason, dry_run=True)])
    answer = client.submit(config, start, reason).answer
    assert answer is not None
    return tell(arguments, [answer])


def train(arguments: argparse.Namespace, began: float) -> int:
    """Submit, and watch; Ctrl-C leaves the run going."""
    from rookery.cli.follow import FollowedRun
    from rookery.cli.progress import Progress

    config = config_from(arguments)
    run = _client(arguments).submit(config)
    watch = FollowedRun(run)
    progress = Progress(run.id, sys.stderr if arguments.json else sys.stdout, config)
    try:
        with progress:
            watch.to_its_end(progress)
    except KeyboardInterrupt:
        print(
            f"rookery: {run.id} goes on: rookery stop {run.id} --server {_shown(arguments.server)}",
            file=sys.stderr,
        )
        with contextlib.suppress(Unreachable):
            if arguments.json:
                print(json.dumps(watch.result(began)))
        return INTERRUPTED
    result = watch.result(began)
    if arguments.json:
        print(json.dumps(result))
    else:
        progress.summary(_safe(result))
        print(f"  eval and runs show go with --server {_shown(arguments.server)}")
    return ENDINGS.get(result["status"], FAILED)


def _shown(url: str) -> str:
    """Without the token that it may carry."""
    return url.partition("#")[0].rstrip("/")


def _safe(data: Any) -> Any:
    """Plain data without characters that steer a terminal: others wrote it."""
    if isinstance(data, str):
        return "".join(c for c in data if c.isprintable() or c in "\n\t")
    if isinstance(data, dict):
        return {_safe(key): _safe(value) for key, value in data.items()}
    return [_safe(item) for item in data] if isinstance(data, list | tuple) else data


# --- looking at them -----------------------------------------------------------------------------


def runs_list(arguments: argparse.Namespace, began: float) -> int:
    rows: list[dict[str, Any]] = []
    for row in reversed(_client(arguments).runs()):
        created = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created_s))
        rows.append({**row.model_dump(), "created": created})
    return print_runs(rows if arguments.json else _safe(rows), arguments.json)


def runs_show(arguments: argparse.Namespace, began: float) -> int:
    from rookery.cli.text import show_text

    detail = _run(arguments).detail()
    if arguments.json:
        print(json.dumps(detail.model_dump()))
    else:
        print(show_text(_as_shown(detail, arguments.server)))
    return OK


def _as_shown(detail: RunDetail, server: str) -> dict[str, Any]:
    """With what only the home of a run knows left empty."""
    unknown = {"damaged": 0, "policies": {}, "seat_returns": {}, "league": None}
    return {**_safe(detail.model_dump()), **unknown, "directory": f"at {_shown(server)}"}


def runs_delete(arguments: argparse.Namespace, began: float) -> int:
    run = _run(arguments)
    answer = run.delete(run.id, arguments.reason, arguments.dry_run)
    return tell_deleted(arguments, answer)


def why(arguments: argparse.Namespace, began: float) -> int:
    found = _run(arguments).why().model_dump()
    return print_diagnosis(found if arguments.json else _safe(found), arguments.json)


def audit(arguments: argparse.Namespace, began: float) -> int:
    client = _client(arguments)
    run = client.run(arguments.run).id if arguments.run else None
    return tell_audit(arguments, client.audit(run))


# --- jobs ----------------------------------------------------------------------------------------


def evaluate(arguments: argparse.Namespace, began: float) -> int:
    run = _run(arguments)
    result = run.evaluate(arguments.episodes, arguments.seed, arguments.player, wait_s=JOB_S)
    return print_evaluation(_safe(result), run.id, arguments.player, arguments.json)


def match(arguments: argparse.Namespace, began: float) -> int:
    from rookery.evaluation.match import match_text

    if arguments.env_options:
        raise InputError("--env goes without --server: a server plays in a run's own environment")
    run = _run_in(arguments, _client(arguments))
    result = run.match(
        arguments.a, arguments.b, arguments.games, arguments.seed, arguments.sampled, wait_s=JOB_S
    )
    print(json.dumps(result) if arguments.json else match_text(_safe(result)))
    return OK


def _run_in(arguments: argparse.Namespace, client: Client) -> RemoteRun:
    """The run in whose environment two players meet: the first of them that is a run."""
    names = [who.partition("@")[0] for who in (arguments.a, arguments.b) if ":" not in who]
    if not names:
        raise InputError("with --server one of the two players must be a run, like last or RUN@340")
    run = client.run(names[0])
    plays = run.detail().environment
    if plays != arguments.environment:
        raise InputError(f"run {run.id} plays {plays}, not {arguments.environment}")
    return run


# --- tokens --------------------------------------------------------------------------------------


def tokens_create(arguments: argparse.Namespace, began: float) -> int:
    made = _client(arguments).create_token(arguments.scope, ttl_s(arguments.ttl), arguments.label)
    return tell_token(arguments, made)


def tokens_list(arguments: argparse.Namespace, began: float) -> int:
    return tell_tokens(arguments, _client(arguments).tokens())


def tokens_revoke(arguments: argparse.Namespace, began: float) -> int:
    _client(arguments).revoke_token(arguments.id)
    return tell_revoked(arguments)
