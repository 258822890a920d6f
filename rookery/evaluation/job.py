"""What a job's process does: one evaluation or match that a command asked for, then its result.

`control/jobs.py` starts it; the result, or why there is none, is an event of the run.
"""

from __future__ import annotations

import os
import sys
import traceback
from typing import Any

from rookery.control.allow import player_refused
from rookery.control.context import allowed_files
from rookery.control.home import Home
from rookery.control.run_state import RunState
from rookery.errors import Forbidden, RookeryError
from rookery.messages import Evaluate, Job, JobDone, PlayMatch
from rookery.worker import LIFELINE
from rookery.worker.process import end_with_parent
from rookery.worker.xla import prepare_xla


def main(run: str, command: str) -> int:
    """Carry out one job and record what came of it; 0 also when the job itself failed."""
    if os.environ.get(LIFELINE) == "stdin":
        end_with_parent()
    home = Home.default()
    state = home.state(run)
    job = state.jobs.get(command)
    if job is None:
        print(f"rookery: run {run} has no job {command} to do", file=sys.stderr)
        return 0
    prepare_xla(1)
    home.record(_done(home, state, job))
    return 0


def _done(home: Home, state: RunState, job: Job) -> JobDone:
    try:
        return JobDone(run=state.id, command=job.id, result=_result(home, state, job))
    except RookeryError as error:
        return JobDone(run=state.id, command=job.id, error=" ".join(str(error).split()))
    except Exception as error:  # noqa: BLE001 others' code: its last words are the job's answer
        traceback.print_exc()
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return JobDone(run=state.id, command=job.id, error=text)


def _result(home: Home, state: RunState, job: Job) -> dict[str, Any]:
    allowed_files(home, state)  # its environment is made here
    players = [job.player] if isinstance(job, Evaluate) else [job.a, job.b]
    if job.origin == "network":
        for player in players:
            if why := player_refused(player, home.settings.allow, here=True):
                raise Forbidden(why)
    if isinstance(job, Evaluate):
        from rookery.evaluation.episodes import evaluate_run

        return evaluate_run(home, state.id, job.episodes, job.seed, job.player)
    assert isinstance(job, PlayMatch)
    from rookery.evaluation.kept_games import keep, taped
    from rookery.evaluation.match import Ways, play_match

    def tape(ways: Ways) -> None:
        keep(home.run_dir(state.id), taped(job.id, ways))

    world, asked = home.config(state).environment, (job.a, job.b, job.games, job.seed, job.sampled)
    return play_match(home, world.id, *asked, world.kwargs, tape)
