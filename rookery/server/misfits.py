"""What does not fit a schema, as one line for REST and MCP alike.

A name or a choice that there is not comes with the nearest that there is; what else was sent is not
repeated, as it may hold a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rookery.errors import MOST_TOLD, UnknownName, nearest_names

_CHOICE = re.compile(r"'([^']*)'")


def misfits(errors: Iterable[Mapping[str, Any]], kind: str, known: Iterable[str]) -> str:
    """pydantic's errors in words; `kind`: what the `known` names are, where one is unknown."""
    known, found_all = list(known), list(errors)
    lines = []
    for found in found_all[:MOST_TOLD]:
        where = ".".join(str(part) for part in found["loc"])
        if found["type"] == "extra_forbidden" and len(found["loc"]) == 1:
            lines.append(str(UnknownName(kind, where, known)))
        else:
            lines.append(f"{where or 'body'}: {found['msg'][:1].lower()}{found['msg'][1:]}")
            lines[-1] += _nearest(found)
    if len(found_all) > MOST_TOLD:
        lines.append(f"and {len(found_all) - MOST_TOLD:,} more")
    return "; ".join(dict.fromkeys(lines))


def _nearest(found: Mapping[str, Any]) -> str:
    """Of the choices that there are, for one that there is not."""
    sent = found.get("input")
    if found["type"] not in ("literal_error", "enum") or not isinstance(sent, str):
        return ""
    choices = filter(None, _CHOICE.findall(str(found.get("ctx", {}).get("expected", ""))))
    near = nearest_names(sent, choices, 1)
    return f"; did you mean {near[0]}?" if near else ""
