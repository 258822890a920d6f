"""What a player is called, wherever one is named: in a config, on the command line, in a message.

    main                                    the policy `main` of this run
    league:main                             whom the league of `main` picks
    snapshot:RUN@340, or RUN@340            version 340 of the weights of a run
    script:random                           a rule
    script:minimax?depth=2                  a rule with an option
    script:my_package.rules:choose          your own function
    engine:stockfish?level=1&time=0.05      a program that plays
    onnx:exported.onnx?greedy=true          a network from a file

A name is read here and never acted on, so a name from far away can be checked before anything is
imported, opened or started. Values of options, and the path of a file, are percent-encoded as in an
address where they hold a character that means something here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args
from urllib.parse import quote, unquote

from rookery.errors import InputError, UnknownName

Kind = Literal["policy", "league", "snapshot", "script", "engine", "onnx"]

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_SNAPSHOT = re.compile(r"(?P<run>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<number>0|[1-9][0-9]{0,18})")
_SCRIPT = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_OPTION = re.compile(r"[a-z][a-z0-9_]*")
_KINDS_WITH_OPTIONS = ("script", "engine", "onnx")
_FORMS = {
    "policy": "a policy's name is of letters, digits and . _ -",
    "league": "write league:POLICY",
    "snapshot": "write snapshot:RUN@NUMBER",
    "script": "write script:NAME, or script:package.module:function for your own",
    "engine": "write engine:NAME",
    "onnx": "write onnx:PATH",
}


@dataclass(frozen=True)
class PlayerName:
    """A player's name in parts; `str` gives the text that parses to the same name."""

    kind: Kind
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> PlayerName:
        kind, rest = _kind(text)
        raw, question, query = rest.partition("?")
        name = unquote(raw) if kind == "onnx" else raw
        if not _fits(kind, name):
            raise InputError(f"player {text!r}: {_FORMS[kind]}")
        options = _options(text, query) if question else {}
        if options and kind not in _KINDS_WITH_OPTIONS:
            raise InputError(f"player {text!r}: a {kind} player takes no options")
        return cls(kind, name, options)

    @property
    def text(self) -> str:
        """The one way to write this name: the kind spelled out, the options in order."""
        name = quote(self.name, safe="/:@+,~ ") if self.kind == "onnx" else self.name
        prefix = "" if self.kind == "policy" else f"{self.kind}:"
        pairs = [f"{key}={quote(self.options[key], safe='/:,')}" for key in sorted(self.options)]
        return prefix + name + (f"?{'&'.join(pairs)}" if pairs else "")

    @property
    def base(self) -> str:
        """The name without its options, for messages."""
        return PlayerName(self.kind, self.name).text

    @property
    def snapshot(self) -> tuple[str, int]:
        """(run, version's number) of a snapshot."""
        found = _SNAPSHOT.fullmatch(self.name)
        if self.kind != "snapshot" or found is None:
            raise InputError(f"player {self.text} is not a snapshot: {_FORMS['snapshot']}")
        return found["run"], int(found["number"])

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)


def _kind(text: str) -> tuple[Kind, str]:
    """The kind and what follows it; without a colon it is a policy, or with an @ a snapshot."""
    prefix, colon, rest = text.partition(":")
    if not colon or "?" in prefix:
        return ("snapshot" if "@" in text.partition("?")[0] else "policy"), text
    for kind in get_args(Kind):
        if kind == prefix and kind != "policy":
            return kind, rest
    known = [kind for kind in get_args(Kind) if kind != "policy"]
    hint = "a policy is named without a colon" if prefix == "policy" else "run `rookery players`"
    raise UnknownName("kind of player", prefix, known, hint)


def _fits(kind: Kind, name: str) -> bool:
    match kind:
        case "policy" | "league" | "engine":
            return _WORD.fullmatch(name) is not None
        case "snapshot":
            return _SNAPSHOT.fullmatch(name) is not None
        case "script":
            return bool(_SCRIPT.fullmatch(name) or _FUNCTION.fullmatch(name))
        case "onnx":
            return bool(name) and name.isprintable()


def _options(text: str, query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in query.split("&"):
        key, equals, value = pair.partition("=")
        if not equals or not _OPTION.fullmatch(key):
            raise InputError(f"player {text!r}: {pair!r} is no option: write NAME=VALUE")
        if key in found:
            raise InputError(f"player {text!r}: option {key!r} is given twice")
        found[key] = unquote(value)
    return found
