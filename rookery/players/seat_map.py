"""The seat map: which player takes which seat, drawn when an episode begins and fixed to its end.

    seating = Seating.of(config, spec)              # checks everything that names a seat or player
    chosen = seating.map.draw(rng, first_episode, count)        # (count, seats) option numbers

Rules name seats exactly or by pattern (`red_*`; an exact name wins, then the first pattern). A
function `(seat, episode) -> player` may stand in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from rookery.config.models import Draw, RunConfig
from rookery.config.reading import validate
from rookery.errors import InputError, UnknownName
from rookery.players.factory import compilable
from rookery.players.function import import_function
from rookery.players.names import PlayerName
from rookery.spaces import EnvironmentSpec, SeatSpec

SeatFunction = Callable[[str, int], str]
_TRIED_EPISODES = 64  # of a function, to see whom it may seat


class SeatMap:
    """Draws players for episodes. `options` are all the players it may name."""

    def __init__(
        self,
        seats: Sequence[str],
        rules: Mapping[str, Sequence[tuple[str, float]]],
        function: SeatFunction | None = None,
    ) -> None:
        self.seats = tuple(seats)
        self._function = function
        if function is None:
            texts = [text for seat in self.seats for text, _ in rules[seat]]
        else:
            texts = [self._ask(s, e) for e in range(_TRIED_EPISODES) for s in self.seats]
        self.options: tuple[str, ...] = tuple(dict.fromkeys(texts))
        self._number = {text: i for i, text in enumerate(self.options)}
        self._rules = []
        for seat in self.seats if function is None else ():
            weights = np.array([weight for _, weight in rules[seat]])
            numbers = np.array([self._number[text] for text, _ in rules[seat]])
            self._rules.append((numbers, np.cumsum(weights) / weights.sum()))

    @property
    def is_function(self) -> bool:
        return self._function is not None

    def options_of(self, seat: str) -> tuple[str, ...]:
        """The players that may be seated there."""
        if self._function is not None:
            return tuple(
                dict.fromkeys(self._ask(seat, episode) for episode in range(_TRIED_EPISODES))
            )
        numbers, _ = self._rules[self.seats.index(seat)]
        return tuple(self.options[i] for i in dict.fromkeys(numbers.tolist()))

    def draw(self, rng: np.random.Generator, first_episode: int, count: int) -> np.ndarray:
        """(count, seats) numbers into `options`, for that many episodes."""
        if self._function is not None:
            return np.array(
                [
                    [self._known(seat, first_episode + i) for seat in self.seats]
                    for i in range(count)
                ],
                np.int32,
            ).reshape(count, len(self.seats))
        chance = rng.random((count, len(self.seats)))
        drawn = [
            numbers[np.searchsorted(shares, chance[:, i], side="right").clip(max=len(numbers) - 1)]
            for i, (numbers, shares) in enumerate(self._rules)
        ]
        return np.stack(drawn, axis=1).astype(np.int32)

    def _known(self, seat: str, episode: int) -> int:
        text = self._ask(seat, episode)
        if text not in self._number:
            raise InputError(
                f"seat_map put {text!r} in seat {seat!r} at episode {episode}, which it had not "
                f"named in its first {_TRIED_EPISODES} episodes: name every player early"
            )
        return self._number[text]

    def _ask(self, seat: str, episode: int) -> str:
        assert self._function is not None
        try:
            text = self._function(seat, episode)
        except Exception as error:
            raise InputError(
                f"seat_map raised {type(error).__name__} for seat {seat!r}, episode {episode}: "
                f"{' '.join(str(error).split())}"
            ) from error
        if not isinstance(text, str) or not text:
            raise InputError(
                f"seat_map gave {text!r} for seat {seat!r}, episode {episode}: it must name a "
                "player, like 'main' or 'script:random'"
            )
        return PlayerName.parse(text).text


@dataclass(frozen=True)
class Seating:
    """A checked seat map: who may sit where, with which spaces."""

    spec: EnvironmentSpec
    map: SeatMap
    live: dict[str, tuple[int, ...]]  # policy -> numbers of the seats that it may hold
    spaces: dict[str, SeatSpec]  # policy -> the spaces of its seats

    @classmethod
    def of(
        cls, config: RunConfig, spec: EnvironmentSpec, function: SeatFunction | None = None
    ) -> Seating:
        if function is None and config.seat_map:
            function = import_function("seat_map", config.seat_map)
        rules = {} if function is not None else _rules(config, spec)
        seat_map = SeatMap(tuple(spec.seats), rules, function)
        held: dict[str, list[int]] = {}  # by the policy or by a snapshot of it
        live: dict[str, list[int]] = {}
        for number, seat in enumerate(spec.seats):
            for text in seat_map.options_of(seat):
                name = PlayerName.parse(text)
                if name.kind not in ("policy", "league"):
                    continue
                if name.name not in config.all_policies:
                    known = ", ".join(config.all_policies)
                    hint = f"Seat {seat}: the policies are {known}; other players have a kind, "
                    hint += "like script:random."
                    raise UnknownName("policy", name.name, config.all_policies, hint)
                if name.kind == "policy":
                    live.setdefault(name.name, []).append(number)
                if number not in held.setdefault(name.name, []):
                    held[name.name].append(number)
        _check_policies(config, live, held)
        spaces = {p: _one_space(spec, p, numbers) for p, numbers in held.items()}
        return cls(spec, seat_map, {p: tuple(n) for p, n in live.items()}, spaces)

    @property
    def has_league(self) -> bool:
        """Whether snapshots are taken and rated: where seats meet in turns, or one is named."""
        named = any(text.startswith("league:") for text in self.map.options)
        return len(self.spec.seats) > 1 and (named or not self.spec.simultaneous)

    @property
    def is_compiled(self) -> bool:
        """Whether its rollouts are: everybody who may sit down is a JAX function."""
        plain = all(compilable(PlayerName.parse(text)) for text in self.map.options)
        return self.spec.compiled and plain and not self.map.is_function

    def spaces_of(self, text: str) -> dict[SeatSpec, frozenset[int]]:
        """The distinct spaces of the seats where a player may sit, each with all seats of them."""
        seats = self.spec.seats
        wanted = {seats[seat] for seat in seats if text in self.map.options_of(seat)}
        return {
            spec: frozenset(number for number, other in enumerate(seats.values()) if other == spec)
            for spec in seats.values()
            if spec in wanted
        }

    @property
    def others(self) -> list[str]:
        """Players that are neither policies nor leagues."""
        kinds = ("policy", "league")
        return [text for text in self.map.options if PlayerName.parse(text).kind not in kinds]


def reseated(config: RunConfig, seating: Seating, seats: Mapping[str, Any]) -> Seating:
    """The seating with other players in the seats; what a change of seats may not do is refused."""
    new = Seating.of(
        validate({**config.model_dump(), "seats": seats, "seat_map": ""}), seating.spec
    )
    for policy in config.learning:
        if not set(new.live.get(policy, ())) <= set(seating.live[policy]):
            raise InputError(
                f"policy {policy!r} cannot move to a seat it did not have when the run began: its "
                "fragments are laid out for those"
            )
    if new.has_league and not seating.has_league:
        raise InputError(
            "this run has no league: nobody was drawn from one when it began, so no snapshots are "
            "taken; begin a new run with league:POLICY in a seat"
        )
    if seating.is_compiled and not new.is_compiled:
        raise InputError(
            "this run is one compiled call and can only take players that are JAX functions: "
            "policies, snapshots, league and scripts"
        )
    return new


def _rules(config: RunConfig, spec: EnvironmentSpec) -> dict[str, list[tuple[str, float]]]:
    seats = tuple(spec.seats)
    written = dict(config.seats) or {"*": next(iter(config.all_policies))}
    for pattern in written:
        if not any(fnmatchcase(seat, pattern) for seat in seats):
            raise UnknownName("seat", pattern, seats, f"Seats of {spec.id}: {', '.join(seats)}.")
    rules = {}
    for seat in seats:
        found = seat if seat in written else _first(written, seat)
        if found is None:
            raise InputError(
                f"seat {seat!r} has no player: add it to seats, like {seat}=main or '*'=main"
            )
        sitter = written[found]
        drawn = [(o.text, o.weight) for o in sitter.draw] if isinstance(sitter, Draw) else []
        options = drawn or [(str(sitter), 1.0)]
        rules[seat] = [(PlayerName.parse(text).text, weight) for text, weight in options]
    return rules


def _first(patterns: Mapping[str, object], seat: str) -> str | None:
    return next((pattern for pattern in patterns if fnmatchcase(seat, pattern)), None)


def _check_policies(
    config: RunConfig, live: Mapping[str, object], held: Mapping[str, object]
) -> None:
    policies = config.all_policies
    for name in config.train:
        if name not in policies:
            raise UnknownName("policy", name, policies, "(in train)")
    for name, policy in policies.items():
        if name in config.learning and name not in live:
            raise InputError(
                f"policy {name!r} learns but sits in no seat: give it one in seats, or leave it "
                "out of policies and train"
            )
        if name not in held:
            raise InputError(
                f"policy {name!r} neither learns nor plays: give it a seat or remove it"
            )
        if policy.target is not None and policy.target not in policies:
            raise UnknownName("policy", policy.target, policies, f"(target of {name})")


def _one_space(spec: EnvironmentSpec, policy: str, numbers: Sequence[int]) -> SeatSpec:
    seats = list(spec.seats)
    first = spec.seats[seats[numbers[0]]]
    for number in numbers[1:]:
        if spec.seats[seats[number]] != first:
            raise InputError(
                f"policy {policy!r} cannot play both {seats[numbers[0]]!r} and "
                f"{seats[number]!r}: their spaces differ; give each a policy of its own"
            )
    return first
