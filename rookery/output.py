"""This process's output, kept apart from what the code of others prints in it.

    keep_stdout()                   # from now on standard output is ours alone
    print_json({"run": "a-1"})      # there
    with printing_to(log): ...      # environments and players print into a file

They print from Python, from C and from programs that they start, while they are imported and after
all is over. So it is the descriptors that are changed, and not Python's streams.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, TextIO

_ours: dict[str, TextIO] = {}  # stdout, once kept; stderr, while others print to a file


def keep_stdout() -> TextIO:
    """Standard output for whoever asks; what anybody else writes there goes to standard error."""
    kept = _ours["stdout"] = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def print_json(data: Any, indent: int | None = None) -> None:
    """The one object of `--json`."""
    print(json.dumps(data, indent=indent), file=_ours.get("stdout", sys.stdout), flush=True)


def say_aloud(text: str) -> None:
    """On standard error, also while others print into a file."""
    print(text, file=_ours.get("stderr", sys.stderr), flush=True)


def own_place(stream: TextIO) -> TextIO:
    """Where a stream writes to now, whatever others do to this process's descriptors later."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):  # a text in memory has none
        return stream
    return os.fdopen(os.dup(number), "w", encoding="utf-8")


@contextmanager
def printing_to(path: Path) -> Iterator[None]:
    """Whatever is written to standard output and error meanwhile goes to the end of a file."""
    _flush()
    before = os.dup(1), os.dup(2)
    _ours["stderr"] = os.fdopen(before[1], "w", encoding="utf-8", closefd=False)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        # not whoever draws a progress line and has put itself before them
        with redirect_stdout(sys.__stdout__), redirect_stderr(sys.__stderr__):
            yield
    finally:
        _flush()
        del _ours["stderr"]
        for number, kept in enumerate(before, 1):
            os.dup2(kept, number)
            os.close(kept)


def _flush() -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()
