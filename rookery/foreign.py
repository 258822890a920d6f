"""Text that others wrote: environments, players, models, whoever named a run or gave a reason.

    print(clean(error))             # on a terminal
    Response(clean_json(answer))    # for a page

An escape sequence moves a terminal's cursor and rewrites what stands above; a bidirectional control
makes a page show `nimda` for `admin`. What steers is left out, here and nowhere else; what can be
read stays, in any language.
"""

from __future__ import annotations

import json
import re
from typing import Any

_STEERS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # whole sequences: colours, the cursor ...
    r"|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)"  # ... titles, links
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # controls but tab and newline
    r"|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"  # directions and other ends of lines
    r"|[\ud800-\udfff\U000e0000-\U000e007f]"  # halves of characters, and tags that nobody sees
)
_ESCAPE = re.compile(r"\\[ubfr]")  # in JSON: of some control, maybe


def clean(data: Any) -> Any:
    """A text, or plain data however deep, without what steers whoever shows it."""
    if isinstance(data, str):
        return data if data.isprintable() else _STEERS.sub("", data)
    if isinstance(data, dict):
        return {clean(key): clean(value) for key, value in data.items()}
    return [clean(item) for item in data] if isinstance(data, list | tuple) else data


def one_line(text: str) -> str:
    """The same, with all that is between words one space."""
    return " ".join(str(clean(text)).split())


def clean_json(text: str) -> str:
    """The same for JSON, which is read only if there may be something in it."""
    if not _ESCAPE.search(text) and (text.isascii() or not _STEERS.search(text)):
        return text
    return json.dumps(clean(json.loads(text)), ensure_ascii=False, separators=(",", ":"))
