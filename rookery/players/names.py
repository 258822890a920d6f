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
from urllib.parse import quote, unquote

from rookery.errors import InputError, UnknownName
from rookery.players.kinds import find_kind, listed, words

_SNAPSHOT = re.compile(r"(?P<run>[A-Za-z0-9_][A-Za-z0-9._-]*)@(?P<number>0|[1-9][0-9]{0,18})")
_RULE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # one of a kind with names of its own
_OPTION = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class PlayerName:
    """A player's name in parts; `str` gives the text that parses to the same name."""

    kind: str  # a word of `kinds`
    name: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> PlayerName:
        word, rest = _word(text)
        kind = find_kind(word)
        raw, question, query = rest.partition("?")
        name = unquote(raw) if kind.encoded else raw
        if not (kind.takes(name) or (listed(word) and _RULE.fullmatch(name))):
            raise InputError(f"player {text!r}: {kind.form}")
        options = _options(text, query) if question else {}
        if options and not kind.options:
            raise InputError(f"player {text!r}: a {word} player takes no options")
        return cls(word, name, options)

    @property
    def text(self) -> str:
        """The one way to write this name: the kind spelled out, the options in order."""
        encoded = find_kind(self.kind).encoded
        name = quote(self.name, safe="/:@+,~ ") if encoded else self.name
        prefix = "" if self.kind == "policy" else f"{self.kind}:"
        pairs = [f"{key}={quote(self.options[key], safe='/:,')}" for key in sorted(self.options)]
        return prefix + name + (f"?{'&'.join(pairs)}" if pairs else "")

    @property
    def base(self) -> str:
        """The name without its options, for messages."""
        return PlayerName(self.kind, self.name).text

    @property
    def run(self) -> tuple[str, int | None]:
        """(run, version's number) of a snapshot; of what has none, the run that it may name."""
        return self.snapshot if self.kind == "snapshot" else (self.name, None)

    @property
    def snapshot(self) -> tuple[str, int]:
        """(run, version's number) of a snapshot."""
        found = _SNAPSHOT.fullmatch(self.name)
        if self.kind != "snapshot" or found is None:
            raise InputError(f"player {self.text} is not a snapshot: write snapshot:RUN@NUMBER")
        return found["run"], int(found["number"])

    def __str__(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)


def is_snapshot(name: str) -> bool:
    return _SNAPSHOT.fullmatch(name) is not None


def _word(text: str) -> tuple[str, str]:
    """The kind and what follows it; without a colon it is a policy, or with an @ a snapshot."""
    prefix, colon, rest = text.partition(":")
    if not colon or "?" in prefix:
        return ("snapshot" if "@" in text.partition("?")[0] else "policy"), text
    known = [word for word in words() if word != "policy"]
    if prefix in known:
        return prefix, rest
    hint = "a policy is named without a colon" if prefix == "policy" else "run `rookery players`"
    raise UnknownName("kind of player", prefix, known, hint)


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
