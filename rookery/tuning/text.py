"""The one way in which a search space is written, on a command line, in YAML and in Python.

    algorithm.learning_rate=log:1e-5..1e-2        a range by its logarithm
    algorithm.gamma=0.9..0.999                    a range
    algorithm.epochs=int:1..10                    whole numbers; logint: by their logarithm
    network.hidden=[64,64]|[256,256]              a choice
    algorithm.clip=0.1..0.3 if algorithm.kind=ppo only where the other is that, or ppo|...

In YAML each is a pair, and a choice may be a list:

    algorithm.learning_rate: log:1e-5..1e-2
    network.hidden: [[64, 64], [256, 256]]
    algorithm.clip if algorithm.kind=ppo: 0.1..0.3

`write` gives back what `read` takes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rookery.config.reading import parse_value
from rookery.errors import ConfigError
from rookery.tuning.space import Choice, Condition, Dimension, Domain, Range, Search

FORMS = "a|b|c, 1..10, log:1e-5..1e-2 or int:1..8"
_RANGE = re.compile(r"(?:(log|int|logint):)?\s*([^\s|\[\]{}\"']+?)\s*\.\.\s*([^\s|\[\]{}\"']+)")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.:/+-]*")
_CLOSING = {"[": "]", "{": "}"}


def read_lines(lines: Iterable[str]) -> Search:
    """As on a command line: KEY=DOMAIN, or KEY=DOMAIN if KEY=OPTION."""
    return Search(tuple(read_dimension(line) for line in lines))


def read_mapping(pairs: Mapping[str, Any]) -> Search:
    """As in YAML and in Python: KEY, or KEY if KEY=OPTION, -> a text or a list of options."""
    return Search(tuple(_of_pair(str(key), value) for key, value in pairs.items()))


def read_dimension(line: str) -> Dimension:
    key, equals, rest = line.partition("=")
    if not equals or not key.strip(". ") or " if " in key:
        raise ConfigError(f"{line!r} is not of the form KEY=VALUES: values are {FORMS}")
    domain, condition = _split_condition(rest)
    return _dimension(key, domain, condition)


def write_line(dimension: Dimension) -> str:
    return f"{dimension.key}={write_domain(dimension.domain)}{_if(dimension)}"


def write_mapping(search: Search) -> dict[str, str]:
    return {d.key + _if(d): write_domain(d.domain) for d in search.dimensions}


def write_condition(dimension: Dimension) -> str:
    """KEY=OPTION or KEY=a|b; empty: it always applies."""
    if dimension.condition is None:
        return ""
    options = "|".join(write_value(option) for option in dimension.condition.options)
    return f"{dimension.condition.key}={options}"


def write_domain(domain: Domain) -> str:
    if isinstance(domain, Choice):
        return "|".join(write_value(option) for option in domain.options)
    kind = {
        (False, False): "",
        (True, False): "log:",
        (False, True): "int:",
        (True, True): "logint:",
    }[domain.log, domain.integer]
    return f"{kind}{json.dumps(domain.low)}..{json.dumps(domain.high)}"


def write_value(value: Any) -> str:
    """As short as it is read back the same."""
    if isinstance(value, str) and _PLAIN.fullmatch(value) and ".." not in value:
        read = read_value(value)
        if isinstance(read, str) and read == value and not re.match(r"(log|int|logint):", value):
            return value
    return json.dumps(value)


def read_value(text: str) -> Any:
    """JSON, or else as YAML reads it."""
    text = text.strip()
    try:
        value = json.loads(text)
    except ValueError:
        value = _plain(parse_value(text))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{text} is not a number to search")
    return value


def _of_pair(key: str, value: Any) -> Dimension:
    key, _, condition = key.partition(" if ")
    return _dimension(key, value, condition)


def _dimension(key: str, domain: Any, condition: str) -> Dimension:
    key = key.strip()
    try:
        return Dimension(key, _read_domain(domain), _read_condition(condition))
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from None


def _read_domain(value: Any) -> Domain:
    if isinstance(value, list | tuple):
        return Choice(tuple(_plain(option) for option in value))
    if not isinstance(value, str):
        raise ConfigError(f"{value!r} leaves nothing to search: write {FORMS}")
    found = _RANGE.fullmatch(value.strip())
    if found is not None:
        return _read_range(*found.groups())
    options = [read_value(part) for part in split_options(value)]
    if len(options) < 2:
        raise ConfigError(f"{value!r} leaves nothing to search: write {FORMS}")
    return Choice(tuple(options))


def _read_range(kind: str | None, low: str, high: str) -> Range:
    kind = kind or ""
    integer = kind.endswith("int")
    ends = []
    for text in (low, high):
        value = read_value(text)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{text!r} is no number: a range looks like 1..10 or log:1e-5..1e-2")
        if integer and value != int(value):
            raise ConfigError(f"{kind}: goes from one whole number to another, not {text}")
        ends.append(int(value) if integer else float(value))
    return Range(ends[0], ends[1], kind.startswith("log"), integer)


def _split_condition(text: str) -> tuple[str, str]:
    """The domain, and what stands behind the last ` if ` that is not quoted."""
    outside = set(_outside(text)) if " if " in text else set()
    places = [m.start() for m in re.finditer(" if ", text) if m.start() in outside]
    return (text[: places[-1]], text[places[-1] + 4 :]) if places else (text, "")


def _read_condition(text: str) -> Condition | None:
    if not text:
        return None
    key, equals, options = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"the condition {text!r} is not of the form KEY=OPTION")
    return Condition(key.strip(), tuple(read_value(part) for part in split_options(options)))


def _if(dimension: Dimension) -> str:
    return f" if {write_condition(dimension)}" if dimension.condition is not None else ""


def split_options(text: str) -> list[str]:
    """At every | that is neither quoted nor within brackets."""
    parts, begin = [], 0
    for place in _outside(text):
        if text[place] == "|":
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def _outside(text: str) -> list[int]:
    """The places that are neither quoted nor within brackets."""
    found, brackets, quote, skip = list[int](), list[str](), "", False
    for place, letter in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = letter == "\\" and quote == '"'
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in _CLOSING:
            brackets.append(_CLOSING[letter])
        elif brackets:
            if letter == brackets[-1]:
                brackets.pop()
        else:
            found.append(place)
    return found


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    return str(value)
