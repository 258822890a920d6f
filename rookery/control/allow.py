"""What a config from the network may name: only what the owner of the home allowed.

Whoever names code, a program, a file or a host makes a worker import, start, read or reach it, so
a name that comes from far away must match one of the owner's patterns in `rookery.yaml`. Each check
reads the text in the same way as the part that would act on it, and acts on nothing itself.

Code that is allowed is still not whatever a module has imported for itself: in a process that is
about to import it (`here=True`), `config.code` gives only what is defined there.

Which words in an environment's kwargs are names is a matter of their looks: whatever could be a
path, a module, an address, or a file that exists counts as one. A path with `..` in it is never
allowed, so that no pattern can be left by climbing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rookery.config.algorithm import AlgorithmConfig, OwnConfig
from rookery.config.code import hold
from rookery.config.models import Draw, RunConfig
from rookery.envs.family import FAMILIES
from rookery.errors import InputError, UnknownName
from rookery.players.factory import kind_of
from rookery.players.kinds import Outside
from rookery.players.names import PlayerName

if TYPE_CHECKING:
    from rookery.control.settings import Allow

_Kind = Literal["code", "binaries", "files", "hosts"]
_NOUN = {"code": "code", "binaries": "a program", "files": "a file", "hosts": "a host"}
_ADDRESS = re.compile(  # nothing that two readers could take for two different hosts
    r"(?:https?|wss?|tcp|grpc)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]+)?(?:[/?#][!-\[\]-~]*)?"
)
_HOST_PORT = re.compile(r"([^:\s]+|\[[0-9A-Fa-f:.]+\]):[0-9]+")
_DOTTED = re.compile(r"\w\.\w")
_SHOWN = 120  # characters of a name in an error
_DEEPEST = 64  # levels of kwargs


class _Named(NamedTuple):
    """What a text may be: it passes when one of the kinds allows one of the forms."""

    kinds: tuple[_Kind, ...]
    forms: tuple[str, ...]


_Rule = Callable[[str, str, _Named], str | None]  # of where it stands, the text, what it may be


def refused(config: RunConfig, allow: Allow, *, here: bool = False) -> str | None:
    """One line that says what the owner did not allow; None where all is well.

    `here`: whether this process goes on to import and to make what is named.
    """
    return next(_refusals(config, _rule(allow, here)), None)


def player_refused(text: str, allow: Allow, *, here: bool = False) -> str | None:
    """The same for one player's name; a name that is none is refused too."""
    return _player_refused(text, "player", _rule(allow, here))


def seats_refused(seats: Mapping[str, Any], allow: Allow, *, here: bool = False) -> str | None:
    """The same for a seat map, as a config or a command has it."""
    return _seats_refused(seats, _rule(allow, here))


def _player_refused(text: str, where: str, rule: _Rule) -> str | None:
    try:
        name = PlayerName.parse(text)
    except InputError as error:
        return f"{where}: {error}"
    if _outside(name) == "not said":
        return f"{where} {_shown(name.base)} is a {name.kind}, which nobody may name from elsewhere"
    named = _player(name)
    if named is not None and (why := rule(where, name.base, named)) is not None:
        return why
    return next(_words_refused(name.options, f"{where} {_shown(name.base)}", rule), None)


def _seats_refused(seats: Mapping[str, Any], rule: _Rule) -> str | None:
    for seat, chosen in seats.items():
        where = f"seats.{_shown(seat)}"
        try:
            players = list(_players(chosen))
        except (TypeError, KeyError, AttributeError):
            return f"{where} is neither a player nor a draw of players"
        for text in players:
            if (why := _player_refused(text, where, rule)) is not None:
                return why
    return None


def _refusals(config: RunConfig, rule: _Rule) -> Iterator[str]:
    environment = config.environment
    if _is_code(environment.id):
        named = _Named(("code",), (environment.id,))
        yield from _one(rule("environment.id", environment.id, named))
    yield from _words_refused(environment.kwargs, "environment.kwargs", rule)
    yield from _algorithm_refused("algorithm", config.algorithm, rule)
    for name, policy in config.policies.items():
        yield from _algorithm_refused(f"policies.{name}.algorithm", policy.algorithm, rule)
    if config.seat_map:
        named = _Named(("code",), (config.seat_map,))
        yield from _one(rule("seat_map", config.seat_map, named))
    yield from _one(_seats_refused(config.seats, rule))
    for text in config.league.reference:
        yield from _one(_player_refused(text, "league.reference", rule))
    if config.checkpoint.uri:
        yield from _one(
            rule("checkpoint.uri", config.checkpoint.uri, _store(config.checkpoint.uri))
        )


def _algorithm_refused(where: str, algorithm: AlgorithmConfig, rule: _Rule) -> Iterator[str]:
    """A user's own is code, and what is written beside it may name anything."""
    if isinstance(algorithm, OwnConfig):
        named = _Named(("code",), (algorithm.kind,))
        yield from _one(rule(f"{where}.kind", algorithm.kind, named))
        options = {k: v for k, v in algorithm.model_dump().items() if k != "kind"}
        yield from _words_refused(options, where, rule)


def _store(uri: str) -> _Named:
    """A directory by its path. Elsewhere, the whole address with its scheme: a pattern for paths
    allows no bucket."""
    if uri.startswith("file:"):
        return _Named(("files",), _paths(uri.removeprefix("file:")))
    return _Named(("files",), () if ".." in uri.split("/") else (uri,))


def _is_code(environment_id: str) -> bool:
    """Whether making the environment imports what its id says, as envs/registry.py reads it."""
    prefix, colon, rest = environment_id.partition(":")
    if f"{prefix}:" in FAMILIES:  # their ids are looked up in a list, never imported
        return ":" in rest
    return bool(colon)


# --- players -------------------------------------------------------------------------------------


def _players(chosen: Any) -> Iterator[str]:
    """The texts of the players that a seat may have."""
    if isinstance(chosen, str):
        yield chosen
        return
    drawn = chosen.model_dump() if isinstance(chosen, Draw) else chosen
    for option in drawn["draw"]:
        match option.get("player"), option.get("league"):
            case str(player), None:
                yield player
            case None, str(policy):
                yield f"league:{policy}"
            case _:
                raise TypeError("neither a player nor a league")


def _player(name: PlayerName) -> _Named | None:
    """What it names outside the run; None for a policy, a league, a snapshot and our own rules."""
    match _outside(name):
        case "code":
            return _Named(("code",), (name.name,))
        case "binaries":
            return _Named(("binaries",), (name.name, *_program(name.name)))
        case "files":
            return _Named(("files",), _paths(name.name))
        case _:
            return None


def _outside(name: PlayerName) -> Outside:
    """As its kind says; a name that nothing stands for names nothing, and is refused when made."""
    try:
        return kind_of(name).outside
    except UnknownName:
        return "nothing"


def _program(engine: str) -> tuple[str, ...]:
    """Where an engine is on this machine, if it is here."""
    from rookery.players.engine import find_engine

    try:
        path = find_engine(engine)
    except InputError:
        return ()
    return (path, os.path.realpath(path))


# --- words in kwargs -----------------------------------------------------------------------------


def _words_refused(value: Any, where: str, rule: _Rule, level: int = 0) -> Iterator[str]:
    """Of every text in a value of JSON, however deep; the names of options are texts too."""
    if level > _DEEPEST:
        yield f"{where.partition('.')[0]} are nested deeper than {_DEEPEST} levels"
    elif isinstance(value, str):
        named = _word(value, os.path.lexists)
        if named is not None:
            yield from _one(rule(where, value, named))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _words_refused(str(key), f"{where}, key", rule, level + 1)
            yield from _words_refused(part, f"{where}.{_shown(str(key))}", rule, level + 1)
    elif isinstance(value, Sequence):
        for i, part in enumerate(value):
            yield from _words_refused(part, f"{where}[{i}]", rule, level + 1)
    elif value is not None and not isinstance(value, bool | int | float):
        yield f"{where} is a {type(value).__name__}, which is no value of JSON"


def _word(text: str, exists: Callable[[str], bool]) -> _Named | None:
    """What a plain word could name, or None for one that names nothing."""
    if "\0" in text:
        return _Named(("files",), ())
    if "://" in text:
        address = _ADDRESS.fullmatch(text)
        return _Named(("hosts",), (_bare(address[1]),) if address else ())
    if "/" in text or "\\" in text or text.startswith(("~", ".")):
        return _Named(("files",), _paths(text))
    if found := _HOST_PORT.fullmatch(text):
        return _Named(("hosts",), (_bare(found[1]),))
    if ":" in text:
        return _Named(("code", "hosts"), (text,))
    if text.lower() == "localhost":
        return _Named(("hosts",), (text.lower(),))
    if _DOTTED.search(text) and not _is_number(text):
        return _Named(("files", "code", "hosts"), _paths(text))
    return _Named(("files",), _paths(text)) if text and exists(text) else None


def _bare(host: str) -> str:
    return host.strip("[]").lower()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- patterns ------------------------------------------------------------------------------------


def _paths(text: str) -> tuple[str, ...]:
    """The forms of a path that patterns are held against; none for one that climbs."""
    if ".." in text.replace("\\", "/").split("/"):
        return ()
    if text.startswith("~"):
        return (text, os.path.normpath(os.path.expanduser(text)))
    return (text, os.path.abspath(text))


def _rule(allow: Allow, here: bool) -> _Rule:
    def rule(where: str, text: str, named: _Named) -> str | None:
        why = _judge(where, text, named, allow)
        if why is None and here and "code" in named.kinds:
            for form in named.forms:
                hold(form)
        return why

    return rule


def _judge(where: str, text: str, named: _Named, allow: Allow) -> str | None:
    for kind in named.kinds:
        patterns: tuple[str, ...] = getattr(allow, kind)
        if any(fnmatchcase(form, pattern) for form in named.forms for pattern in patterns):
            return None
    nouns = " or ".join(_NOUN[kind] for kind in named.kinds)
    if not named.forms:
        return f"{where} {_shown(text)} names {nouns} in a way that hides which: write it plainly"
    return (
        f"{where} {_shown(text)} names {nouns}, which the owner of this server has not allowed: "
        f"add it to allow.{named.kinds[0]} in rookery.yaml"
    )


def _shown(text: str) -> str:
    """A name as it can stand in one line."""
    short = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return short if short.isprintable() else repr(short)


def _one(why: str | None) -> Iterator[str]:
    if why is not None:
        yield why
