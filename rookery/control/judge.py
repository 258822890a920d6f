"""What can be said of a command before its run's owner hears of it: values are checked once, here.

Values out of range, players that are none, and what the home's owner did not allow to those who
come by network: refused here, so that nothing of it ever stands in the log.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from rookery.config.live import effective
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.control.bounds import named, stop_after, why_not_further
from rookery.control.effects import effect
from rookery.control.evaluations import check_evaluated, check_match
from rookery.control.files import measure
from rookery.control.home import Home
from rookery.control.queries import is_busy
from rookery.control.run_state import RunState
from rookery.control.seats import seats_after
from rookery.control.settings import Allow
from rookery.errors import ConfigError, Forbidden, MessageError, Rejected
from rookery.messages import (
    MAX_JSON_BYTES,
    Command,
    DeleteRun,
    Evaluate,
    Origin,
    PlayMatch,
    ResumeRun,
    SetHyperparameters,
    SetSeatMap,
    StartRun,
    decode_json,
    encode_json,
)


class Judge:
    """Judges for one home, by its owner's allow-list."""

    def __init__(self, home: Home, allow: Allow) -> None:
        self._home, self._allow = home, allow

    def judged(self, state: RunState, command: Command) -> Command:
        """The command as it is to be sent; raises what is known to be wrong with it."""
        match command:
            case StartRun() | ResumeRun():
                self._check_bounds(state, command)
            case SetHyperparameters(values=values):
                effective(self._home.config(state), {**state.hyperparameters, **values})
            case SetSeatMap(seats=asked):
                if command.origin == "network":
                    from rookery.control.allow import seats_refused  # numpy: the shell needs none

                    _forbid(seats_refused(asked, self._allow))
                whole = seats_after(state, self._home.config(state), asked)
                return msgspec.structs.replace(command, seats=whole)
            case Evaluate(player=player):
                self._check_players(command, player)
                check_evaluated(player, len(self._home.spec(state).seats))
            case PlayMatch(a=a, b=b):
                self._check_players(command, a, b)
                spec = self._home.spec(state)
                check_match(spec.id, len(spec.seats))
        return command

    def check_config(self, config: RunConfig, origin: Origin) -> None:
        if origin == "network":
            from rookery.control.allow import refused

            _forbid(refused(config, self._allow))

    def effect(self, state: RunState, command: Command) -> str:
        """What it does, in one line. Looks at the run's files before they are removed: slow."""
        deletes = isinstance(command, DeleteRun)
        files = measure(self._home.run_dir(state.id)) if deletes else None
        is_owned = self._home.is_owned(state.id) if is_busy(state) else True
        return effect(state, self._home.config(state), command, files, is_owned)

    def _check_bounds(self, state: RunState, command: Command) -> None:
        why = why_not_further(state, command)
        if why is not None:
            raise Rejected(why)
        if asked := named(command):
            config = self._home.config(state).model_dump(mode="json")
            validate({**config, "stop": stop_after(state, asked)})

    def _check_players(self, command: Command, *players: str) -> None:
        from rookery.control.allow import player_refused
        from rookery.players.factory import kind_of
        from rookery.players.names import PlayerName

        for player in players:
            kind_of(PlayerName.parse(player))
            if command.origin == "network":
                _forbid(player_refused(player, self._allow))


def runs_named(command: Command) -> Iterator[tuple[str, str]]:
    """Runs that a command lets play, by the parameter that names each."""
    if isinstance(command, PlayMatch):
        from rookery.players.names import PlayerName

        for where, player in (("a", command.a), ("b", command.b)):
            name = PlayerName.parse(player)
            if name.kind in ("policy", "snapshot"):
                yield where, name.run[0]


def check_size(command: Command) -> None:
    """Refuse what no reader of the log would take."""
    try:
        written = encode_json(command)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"a value cannot be written down: {error}") from None
    if len(written) > MAX_JSON_BYTES:
        raise ConfigError(f"a command of {len(written):,} bytes is over {MAX_JSON_BYTES:,}")
    try:
        decode_json(written, Command)  # ranges, which only readers look at
    except MessageError as error:
        raise ConfigError(f"a value is out of range: {error}") from None


def _forbid(why: str | None) -> None:
    if why is not None:
        raise Forbidden(why)
