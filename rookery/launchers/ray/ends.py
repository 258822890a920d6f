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


def explain(error: Exception, host: str) -> Ended:
    text = " ".join(str(error).split())
    node = f"node {host}" if host else "its node"  # not known of one that never began
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
    if "runtime_env" in text or "RuntimeEnv" in text:
        return Ended(1, f"its runtime_env could not be set up: {text[-300:]}", final=True)
    if "died because its node" in text or "node was terminated" in text:
        return Ended(LOST, f"its {node.removeprefix('its ')} is gone")
    if (code := _CODE.search(text)) is not None and int(code[1]):
        return Ended(int(code[1]), "")
    return Ended(LOST, f"its process on {node} ended: {_sentence(text)}")


def _sentence(text: str) -> str:
    """What Ray says of it, without names of its own things."""
    for mark in ("Worker exits with", "The actor died unexpectedly", "The actor is dead because"):
        if mark in text:
            text = text[text.index(mark) :]
            break
    return text.split(". ")[0][:200].rstrip(".")
