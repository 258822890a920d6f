"""What does not fit a schema, in words: one line, for configs, settings and what a door is sent.

    misfits(error.errors(), unknown_of("argument", tool.takes.model_fields))

A choice that there is not comes with the nearest that there is. What was sent is repeated only
where it was typed here: what comes over a network may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rookery.errors import MOST_TOLD, UnknownName, nearest_names

Place = tuple[int | str, ...]

_CHOICE = re.compile(r"'([^']*)'")
_NOTHING = "'', "  # as a choice: whoever leaves it out means it


def misfits(
    errors: Iterable[Mapping[str, Any]],
    unknown: Callable[[Place], str],
    repeat: bool = False,
    whole: str = "",
) -> str:
    """pydantic's errors in words; `unknown`: of a key that there is not, by its place; `whole`: the
    name of what is wrong where it is no single key."""
    found = list(errors)
    lines = [_line(detail, unknown, repeat, whole) for detail in found[:MOST_TOLD]]
    if len(found) > MOST_TOLD:
        lines.append(f"and {len(found) - MOST_TOLD:,} more")
    return "; ".join(dict.fromkeys(lines))


def unknown_of(kind: str, known: Iterable[str]) -> Callable[[Place], str]:
    """The words for a key that is none of those that are known at the top."""
    names = list(known)
    return lambda place: str(
        UnknownName(kind, ".".join(map(str, place)), names if len(place) == 1 else ())
    )


def _line(
    detail: Mapping[str, Any],
    unknown: Callable[[Place], str],
    repeat: bool,
    whole: str,
) -> str:
    place, given = detail["loc"], detail.get("input")
    if detail["type"] == "extra_forbidden":
        return unknown(place)
    if detail["type"] == "value_error" and repeat:  # ours, which says where
        return str(detail["ctx"]["error"])
    message = str(detail["msg"]).replace(_NOTHING, "", 1)
    line = f"{'.'.join(map(str, place)) or whole}: {message[:1].lower()}{message[1:]}"
    if repeat and isinstance(given, str | int | float | None):
        line += f" (got {given!r})"
    return line + _nearest(detail)


def _nearest(detail: Mapping[str, Any]) -> str:
    """Of the choices that there are, for one that there is not."""
    sent = detail.get("input")
    if detail["type"] not in ("literal_error", "enum") or not isinstance(sent, str):
        return ""
    choices = filter(None, _CHOICE.findall(str(detail.get("ctx", {}).get("expected", ""))))
    near = nearest_names(sent, choices, 1)
    return f"; did you mean {near[0]}?" if near else ""
