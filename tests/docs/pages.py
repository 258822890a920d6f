"""What the pages for people show: fences of code, commands, links.

A fence in no language, or in `sh`, holds commands; `text` is a drawing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
LANGUAGES = ("", "sh", "python", "yaml", "json", "text")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.S | re.M)


class Fence(NamedTuple):
    page: str
    line: int  # of its first line, from 1
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page: str, *languages: str) -> list[Fence]:
    """In their order; of these languages, or of all."""
    text = text_of(page)
    found = [
        Fence(page, text.count("\n", 0, match.start(2)) + 1, match[1], match[2])
        for match in _FENCE.finditer(text)
    ]
    return [fence for fence in found if not languages or fence.language in languages]


def blocks(page: str, language: str) -> list[str]:
    return [fence.text for fence in fences(page, language)]


def commands(fence: Fence) -> list[str]:
    """One for each line that a person would type, continuations joined, without its comment."""
    lines = fence.text.replace("\\\n", " ").splitlines()
    return [typed for line in lines if (typed := re.sub(r"(^|\s+)#\s.*$", "", line).strip())]


def all_commands() -> Iterator[tuple[Fence, str]]:
    for page in PAGES:
        for fence in fences(page, "", "sh"):
            for command in commands(fence):
                yield fence, command


def words(command: str) -> list[str]:
    return shlex.split(command)


def prose(page: str) -> str:
    """A page without its fences."""
    return _FENCE.sub("", text_of(page))
