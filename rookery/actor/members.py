"""The factory: makes the members of a lineup by the names that seat maps use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rookery.actor.lineup import Member
from rookery.algorithms.networks import Network
from rookery.checkpoints.policies import FindRun, load_policy
from rookery.config.models import RunConfig
from rookery.config.reading import validate
from rookery.errors import InputError
from rookery.messages import SeatsChanged
from rookery.players.factory import compilable, make_player
from rookery.players.names import PlayerName
from rookery.players.policy import PolicyPlayer, draw_jax
from rookery.players.seat_map import Seating, SeatMap
from rookery.spaces import SeatSpec


@dataclass
class PlayerFactory:
    """Makes members by the names that seat maps use."""

    config: RunConfig
    seating: Seating
    find: FindRun
    xp: Any = np

    def members(self, text: str, spec: SeatSpec, seat: str) -> list[Member]:
        name = PlayerName.parse(text)
        if name.kind == "policy":
            return [Member(text, self.policy(name.name), name.name, policy=name.name)]
        if name.kind == "league":
            count = self.config.actors.opponents_per_actor
            return [Member(text, self.policy(name.name, "snapshot")) for _ in range(count)]
        if name.kind == "snapshot":
            run, number = name.snapshot
            frozen = load_policy(self.find(run), number)
            frozen.check_plays(seat, spec)
            sitter = PolicyPlayer(frozen.network, self.xp, self._draw, kind="snapshot")
            return [Member(text, sitter, frozen.name, frozen.arrays)]
        return [Member(text, make_player(name, spec, self.seating.spec.id, self.xp), text)]

    def policy(self, name: str, kind: str = "policy") -> PolicyPlayer:
        network = Network(self.seating.spaces[name], self.config.all_policies[name].network)
        return PolicyPlayer(network, self.xp, self._draw, kind=kind)

    @property
    def _draw(self) -> Any:
        return None if self.xp is np else draw_jax

    def all_members(self, seating: Seating, known: Sequence[Member] = ()) -> list[Member]:
        """The members that a seat map names, but for those that are known."""
        found: list[Member] = []
        policies = [p for p in self.config.all_policies if p in seating.live]
        ordered = [*policies, *(t for t in seating.map.options if t not in policies)]
        for text in ordered:
            for spec, seats in self.spaces(seating, text).items():
                if any(member.text == text and member.seats & seats for member in known):
                    continue
                named = self.members(text, spec, list(seating.spec.seats)[min(seats)])
                for member in named:
                    member.seats = frozenset(seats)
                found += named
        return found

    def spaces(self, seating: Seating, text: str) -> dict[SeatSpec, set[int]]:
        """The distinct spaces of the seats where a player may sit, each with all seats of them."""
        seats = seating.spec.seats
        wanted = {seats[seat] for seat in seats if text in seating.map.options_of(seat)}
        return {
            spec: {number for number, other in enumerate(seats.values()) if other == spec}
            for spec in seats.values()
            if spec in wanted
        }

    def reseat(
        self, changed: SeatsChanged, known: Sequence[Member]
    ) -> tuple[SeatMap, list[Member]]:
        seating = reseated(self.config, self.seating, changed.seats)
        return seating.map, self.all_members(seating, known)


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
    if is_compiled(seating) and not is_compiled(new):
        raise InputError(
            "this run is one compiled call and can only take players that are JAX functions: "
            "policies, snapshots, league and scripts"
        )
    return new


def is_compiled(seating: Seating) -> bool:
    names = [PlayerName.parse(text) for text in seating.map.options]
    plain = all(n.kind in ("policy", "league", "snapshot") or compilable(n) for n in names)
    return seating.spec.compiled and plain and not seating.map.is_function


def close_members(members: Sequence[Member]) -> None:
    """End what late players have started."""
    for member in members:
        if member.deferred:
            member.player.close()  # type: ignore[union-attr]
