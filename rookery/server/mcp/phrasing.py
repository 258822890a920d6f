"""Errors in the words of the tools: an assistant has no shell to type our commands into."""

from __future__ import annotations

import re

from pydantic import BaseModel

_TOOLS = {  # what a person types -> the tool that does it
    "runs list": "list_runs",
    "runs show": "get_run",
    "runs delete": "delete_run",
    "sweep list": "list_sweeps",
    "sweep show": "get_sweep",
    "envs": "list_environments",
    "algorithms": "list_algorithms",
    "players": "list_players",
    "config show": "get_config_schema",
    "train": "create_run",
    "submit": "create_run",
    "resume": "resume_run",
    "start": "start_run",
    "pause": "pause_run",
    "stop": "stop_run",
    "set": "set_hyperparameters",
    "eval": "evaluate",
    "match": "play_match",
    "ladder": "get_ladder",
    "audit": "get_audit",
    "why": "why",
}
_SCALES = {"actor": "scale_actors", "learner": "scale_learner"}
_TYPED = re.compile(rf"`?\brookery ({'|'.join(_TOOLS)})\b( [\w.:@/-]*\w)?`?")
_SCALED = re.compile(r"`?\brookery scale \S+ --(actor|learner)s? (\d+)`?")
_SAID = ("why", "summary")  # fields of answers in which we tell what to do


def in_tools(text: str) -> str:
    """`rookery envs` becomes list_environments, and --env.KEY the config's environment.kwargs."""
    told = _SCALED.sub(lambda found: f"{_SCALES[found[1]]} with count={found[2]}", text)
    told = _TYPED.sub(lambda found: _TOOLS[found[1]], told)
    return re.sub(r"--env\.(\w+)", r"environment.kwargs.\1", told)


def said_in_tools(answer: BaseModel) -> BaseModel:
    """An answer whose advice is in the words of the tools."""
    said = {name: getattr(answer, name, None) for name in _SAID}
    told = {name: in_tools(text) for name, text in said.items() if isinstance(text, str)}
    return answer.model_copy(update=told)
