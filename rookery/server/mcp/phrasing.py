"""Errors in the words of the tools: an assistant has no shell to type our commands into."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel

from rookery.server.mcp.untrusted import is_untrusted

_TOOLS = {  # what a person types -> the tool that does it
    "runs list": "list_runs",
    "runs show": "get_run",
    "runs delete": "delete_run",
    "sweep list": "list_sweeps",
    "sweep show": "get_sweep",
    "sweep resume": "its owner can resume it",
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
    "label": "label_run",
    "scale": "scale_actors",
    "seats": "set_seat_map",
    "checkpoint": "save_checkpoint",
    "fork": "create_run with parent of",
    "serve": "one that its owner starts",
    "bus topics": "its owner's list of topics",
}
_SCALES = {"actor": "scale_actors", "learner": "scale_learner"}
_TYPED = re.compile(rf"`?\brookery ({'|'.join(_TOOLS)})\b( [\w.:@/-]*\w)?`?")
_SCALED = re.compile(r"`?\brookery scale \S+ --(actor|learner)s? (\d+)`?")
_SAID = ("why", "summary", "detail", "last_error")  # where we tell what to do beside others' text


def in_tools(text: str) -> str:
    """`rookery envs` becomes list_environments, and --env.KEY the config's environment.kwargs."""
    told = _SCALED.sub(lambda found: f"{_SCALES[found[1]]} with count={found[2]}", text)
    told = _TYPED.sub(lambda found: _TOOLS[found[1]], told)
    return re.sub(r"--env\.(\w+)", r"environment.kwargs.\1", told)


def said_in_tools(answer: BaseModel) -> BaseModel:
    """An answer whose advice is in the words of the tools; what others wrote stays as it is."""
    told = {
        name: _told(getattr(answer, name), name in _SAID or not is_untrusted(field))
        for name, field in type(answer).model_fields.items()
        if name in answer.__dict__
    }
    return answer.model_copy(update=told)


def _told(value: Any, is_ours: bool) -> Any:
    if isinstance(value, BaseModel):
        return said_in_tools(value)
    if isinstance(value, str):
        return in_tools(value) if is_ours and "rookery " in value else value
    if isinstance(value, list):
        return [_told(each, is_ours) for each in value]
    return value
