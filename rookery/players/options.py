"""The options that a player's name may carry: what each takes, its default, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rookery.errors import InputError, UnknownName
from rookery.players.names import PlayerName


@dataclass(frozen=True)
class PlayerOption:
    """One option, as `rookery players` shows it."""

    name: str
    default: str  # as it would be written; empty: not set, and read as None
    description: str
    takes: str  # in words: "a whole number from 0 to 20"
    read: Callable[[str], Any]  # raises ValueError


def whole(name: str, default: str, description: str, low: int, high: int) -> PlayerOption:
    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(text)
        return int(text)

    return PlayerOption(name, default, description, f"a whole number from {low} to {high}", read)


def seconds(name: str, default: str, description: str, high: float = 86400.0) -> PlayerOption:
    def read(text: str) -> float:
        value = float(text)
        if not 0.0 < value <= high:  # also refuses NaN
            raise ValueError(text)
        return value

    return PlayerOption(name, default, description, f"seconds, above 0 and up to {high:g}", read)


def flag(name: str, default: str, description: str) -> PlayerOption:
    return one_of(name, default, description, {"true": True, "false": False})


def choice(name: str, default: str, description: str, values: Sequence[str]) -> PlayerOption:
    return one_of(name, default, description, {value: value for value in values})


def one_of(name: str, default: str, description: str, values: dict[str, Any]) -> PlayerOption:
    def read(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return PlayerOption(name, default, description, " or ".join(values), read)


def read_options(name: PlayerName, options: Sequence[PlayerOption]) -> dict[str, Any]:
    """Every option's value, those that the name leaves out by their defaults."""
    known = {option.name: option for option in options}
    for key in name.options:
        if key not in known:
            has = f"it takes {', '.join(known)}" if known else "it takes none"
            raise UnknownName(f"option of {name.base}", key, known, has)
    return {
        option.name: _read(name, option, name.options.get(option.name, option.default))
        for option in options
    }


def _read(name: PlayerName, option: PlayerOption, text: str) -> Any:
    if not text and option.name not in name.options:
        return None
    try:
        return option.read(text)
    except ValueError as error:
        raise InputError(
            f"option {option.name} of {name.base} is {text!r}: it takes {option.takes}"
        ) from error
