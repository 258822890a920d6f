"""A run's evaluations and matches: what may be asked for, and what came of it over time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from rookery.control.log_messages import Message
from rookery.control.log_pages import PORTION, LogView, find_answers
from rookery.control.models import Evaluation, Evaluations
from rookery.errors import InputError, UnknownName
from rookery.messages import CommandRejected, Evaluate, JobDone, decode_json

MOST = 1000  # that one answer tells, the newest
ALONE = ("policy", "script:random")  # who can be evaluated in an environment of one seat


def check_evaluated(player: str, seats: int) -> None:
    """Raise if it cannot be evaluated where there are so many seats."""
    if seats == 1 and player not in ALONE:
        raise UnknownName("player", player, ALONE, f"With one seat: {' or '.join(ALONE)}.")


def check_match(environment: str, seats: int) -> None:
    """Raise if two cannot meet there."""
    if seats < 2:
        raise InputError(
            f"{environment} has one seat, and a match needs two: `rookery eval RUN` plays it"
        )


def evaluations(log: LogView, run: str) -> Evaluations:
    """Reads the run's part of the log, so it is slow."""
    asked = [
        decode_json(message.payload, Evaluate)
        for message in _all(log, "commands", run)
        if message.kind == "evaluate"
    ][-MOST:]
    answers = find_answers(log, asked)
    came = {
        done.command: done
        for message in _all(log, "events", run)
        if message.kind == "job_done" and (done := decode_json(message.payload, JobDone))
    }
    kept = [each for each in asked if not isinstance(answers.get(each.id), CommandRejected)]
    return Evaluations(evaluations=[_told(each, came.get(each.id)) for each in kept])


def _told(asked: Evaluate, came: JobDone | None) -> Evaluation:
    return Evaluation(
        command=asked.id,
        author=asked.author,
        asked_s=asked.time_s,
        player=asked.player,
        episodes=asked.episodes,
        seed=asked.seed,
        done_s=came.time_s if came else None,
        error=came.error if came else "",
        result=came.result if came else {},
    )


def _all(log: LogView, channel: Literal["events", "commands"], run: str) -> Iterator[Message]:
    after = -1
    while found := log.log(channel, run, after, PORTION):
        yield from found
        after = found[-1].seq
