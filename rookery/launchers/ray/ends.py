"""Why a worker ended, from what Ray says of it: one line for a person, and an exit code."""

from __future__ import annotations

import re
from typing import NamedTuple

LOST = -9  # of one whose node or process died: nobody knows how


class Ended(NamedTuple):
    code: int
    reason: str = ""
    final: bool = False  # another try can't help


_MISSING = re.compile(r"No module named '?([\w.]+)'?")
_CODE = re.compile(r"exit code (\d+)")
_PLACE = re.compile(r"\bip[=:] ?([\w.:]*\w)|\[Node ([\w.:]+)\]")  # in Ray's own words
_UNPREPARED = "Failed to set up runtime env"
_RAISED = re.compile(r"^[\w.]+(?:Error|Exception): ", re.MULTILINE)
_MOST = 300  # characters of Ray's own


def explain(error: Exception, host: str) -> Ended:
    """`host`: its node's address; empty of one that never began, unless Ray says it."""
    text = " ".join(str(error).split())
    if not host and (place := _PLACE.search(text)) is not None:
        host = place[1] or place[2]
    node = f"node {host}" if host else "its node"
    if text.startswith(_UNPREPARED):
        where = f" on {node}" if host else ""
        why = f"its runtime_env could not be set up{where}: {_cause(str(error))}"
        return Ended(1, why, final=True)
    if (missing := _MISSING.search(text)) is not None:
        module = missing[1]
        return Ended(
            1,
            f"{node} has no {module}: install it there, or name a runtime_env for it under ray in "
            "rookery.yaml, or use an image that has it",
            final=module.partition(".")[0] == "rookery",
        )
    if "memory" in text and ("OOM" in text or "running low" in text):
        return Ended(LOST, f"{node} ran out of memory, and Ray ended it")
    if "not schedulable" in text:
        return Ended(LOST, f"no node could take it: {text[:_MOST]}")
    if "died because its node" in text or "node was terminated" in text:
        return Ended(LOST, f"its {node.removeprefix('its ')} is gone")
    if (code := _CODE.search(text)) is not None and int(code[1]):
        return Ended(int(code[1]), "")
    return Ended(LOST, f"its process on {node} ended: {_sentence(text)}")


def _cause(text: str) -> str:
    """What was raised last, and the last words, in what Ray says of a runtime_env."""
    raised = [found.start() for found in _RAISED.finditer(text)]
    said = " ".join(text[raised[-1] if raised else 0 :].split())
    said = said.removeprefix("Failed to set up runtime environment. ")
    half = _MOST // 2
    return said if len(said) <= _MOST else f"{said[:half]} ... {said[-half:]}"


def _sentence(text: str) -> str:
    """What Ray says of it, without names of its own things."""
    for mark in ("Worker exits with", "The actor died unexpectedly", "The actor is dead because"):
        if mark in text:
            text = text[text.index(mark) :]
            break
    return text.split(". ")[0][:200].rstrip(".")
