"""What one copy of a PettingZoo environment tells, before any is played.

Every seat has spaces of its own, and a mask where its observation or its info has one. States are
saved as the actions that led to them; a short rehearsal on two copies shows whether that is exact.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from rookery.envs import Options
from rookery.envs.action_spaces import (
    MASK,
    ActionWriter,
    MaskSource,
    find_mask,
    flat_mask,
    write_space,
)
from rookery.envs.failures import environment_failed
from rookery.envs.gymnasium.probe import check_observation
from rookery.envs.observation_spaces import LeafReader, read_space
from rookery.envs.pettingzoo.game import Game, Sight, StepResult, as_game
from rookery.envs.pettingzoo.make import make_game
from rookery.errors import InputError
from rookery.spaces import EnvironmentSpec, SeatSpec

_OBSERVATION = "observation"  # the key beside the mask, by PettingZoo's custom
_REHEARSED_STEPS = 40


@dataclass(frozen=True, slots=True)
class Port:
    """How one seat's observations are read and its actions written."""

    spec: SeatSpec
    readers: tuple[LeafReader, ...]
    writer: ActionWriter
    mask_source: MaskSource

    @property
    def mask_width(self) -> int:
        """How many booleans a mask has."""
        return self.writer.mask_width or 0

    def mask_of(self, sight: Sight) -> np.ndarray | None:
        """The legal actions, or None when the environment says nothing of them."""
        if self.mask_source == "none":
            return None
        source = sight.info if self.mask_source == "info" else sight.observation
        return flat_mask(source[MASK], self.mask_width) if MASK in source else None


@dataclass(frozen=True, slots=True)
class GameInterface:
    """The environment's spec and the port of each of its seats."""

    spec: EnvironmentSpec
    ports: dict[str, Port]


def probe(id: str, kwargs: Options, factory: Callable[..., Any] | None = None) -> GameInterface:
    """Make one copy and read its seats; then rehearse whether its states can be saved."""
    env = make_game(id, kwargs, factory)
    try:
        game = as_game(env)
        ports = _ports(id, game)
        limit = getattr(env.unwrapped, "max_cycles", None)
        parallel = isinstance(env, ParallelEnv)
        spec = EnvironmentSpec(
            id,
            {seat: port.spec for seat, port in ports.items()},
            can_save=_rehearse(game, ports, lambda: make_game(id, kwargs, factory)),
            max_episode_steps=limit if parallel and isinstance(limit, int) else None,
            simultaneous=parallel,
        )
        return GameInterface(spec, ports)
    finally:
        env.close()


def _ports(id: str, game: Game) -> dict[str, Port]:
    seats = list(getattr(game.env, "possible_agents", []))
    if not seats:
        raise InputError(f"environment {id} has no possible_agents, which name its seats")
    if strange := next((seat for seat in seats if not isinstance(seat, str)), None):
        raise InputError(f"environment {id} has an agent {strange!r}, which is not a string")
    try:
        frame = game.reset(0)
        sights = {seat: game.see(seat) for seat in frame.acting}
    except Exception as error:
        raise environment_failed(error, id, "reset", 0, 0, seat=None) from error
    ports = {}
    with warnings.catch_warnings():
        # "Your environment should override the observation_space function": it works all the same.
        warnings.simplefilter("ignore", UserWarning)
        for seat in seats:
            observed = game.env.observation_space(seat)
            played = game.env.action_space(seat)
            ports[seat] = _port(f"{id}: seat {seat}:", observed, played, sights.get(seat), sights)
    return ports


def _port(
    where: str, observed: Any, played: Any, sight: Sight | None, sights: dict[str, Sight]
) -> Port:
    """One seat's port; a seat that is not there at the reset masks in its info if others do."""
    writer = write_space(played, f"{where} the action space")
    infos = [sight.info] if sight else [other.info for other in sights.values()]
    source = find_mask(observed, next((i for i in infos if MASK in i), {}), writer)
    readers = _readers(observed, source, f"{where} the observation space")
    if not readers:
        raise InputError(f"{where} the observation space has nothing to observe")
    spec = SeatSpec(tuple(reader.leaf for reader in readers), writer.head, source != "none")
    port = Port(spec, readers, writer, source)
    if sight is not None:
        check_observation(where.removesuffix(":"), readers, sight.observation, ())
        try:
            port.mask_of(sight)
        except ValueError as error:
            raise InputError(f"{where} {error}") from error
    return port


def _readers(space: Any, source: MaskSource, where: str) -> tuple[LeafReader, ...]:
    """The leaves, without the mask; what remains under "observation" alone is the lone leaf."""
    if not isinstance(space, spaces.Dict):
        return tuple(map(_as_bytes, read_space(space, where)))
    kept = {k: s for k, s in space.spaces.items() if source != "observation" or k != MASK}
    if list(kept) != [_OBSERVATION]:
        return tuple(map(_as_bytes, read_space(spaces.Dict(kept), where)))
    inner = read_space(kept[_OBSERVATION], where)
    return tuple(_as_bytes(dataclasses.replace(r, keys=(_OBSERVATION, *r.keys))) for r in inner)


def _as_bytes(reader: LeafReader) -> LeafReader:
    """Boards of int8 without negative numbers travel as uint8, as Pgx's boolean boards do.

    A network sees the same leaf then, whichever library plays the game.
    """
    if reader.leaf.dtype != "int8" or reader.leaf.low < 0:
        return reader
    return dataclasses.replace(reader, leaf=msgspec.structs.replace(reader.leaf, dtype="uint8"))


# --- can it be saved? --------------------------------------------------------------------------


def _rehearse(game: Game, ports: dict[str, Port], make: Callable[[], Any]) -> bool:
    """Whether a fresh copy, given the same seed and actions, gives the very same frames.

    The first copy plays an episode before it, so that what an episode leaves behind shows too.
    """
    fresh = None
    try:
        _play(game, ports, 1, [])
        moves: list[dict[str, Any]] = []
        played = _play(game, ports, 2, moves)
        fresh = as_game(make())
        replayed = [_told(fresh, fresh.reset(2), ports)]
        replayed += [_told(fresh, fresh.step(actions), ports) for actions in moves]
        return played == replayed
    except Exception:  # noqa: BLE001 (a failure is told when a run plays it, with slot and step)
        return False
    finally:
        if fresh is not None:
            fresh.env.close()


def _play(game: Game, ports: dict[str, Port], seed: int, moves: list[dict[str, Any]]) -> list[Any]:
    """Random legal play; fills `moves` and returns what was told at every step."""
    rng = np.random.default_rng(seed)
    frame = game.reset(seed)
    told = [_told(game, frame, ports)]
    while frame.acting and len(moves) < _REHEARSED_STEPS:
        actions = {}
        for seat in frame.acting:
            port = ports[seat]
            actions[seat] = random_action(port, port.mask_of(game.see(seat)), rng)
        moves.append(actions)
        frame = game.step(actions)
        told.append(_told(game, frame, ports))
    return told


def random_action(port: Port, mask: np.ndarray | None, rng: np.random.Generator) -> Any:
    """A legal action as the environment wants it."""
    encode = port.writer.encoder(1)
    if port.writer.mask_width is None:
        chosen = rng.uniform(-1, 1, (1, *port.writer.shape))
    else:
        sizes = getattr(port.writer.head, "sizes", (port.writer.mask_width,))
        legal = np.ones(port.writer.mask_width, bool) if mask is None else mask
        parts = np.split(legal, np.cumsum(sizes)[:-1])
        picks = [rng.choice(np.flatnonzero(part)) for part in parts]
        chosen = np.asarray(picks).reshape(1, *port.writer.shape)
    return encode(chosen, np.zeros(1, bool))[0]


def _told(game: Game, frame: StepResult, ports: dict[str, Port]) -> Any:
    """Everything a frame tells, in a form that can be compared."""
    seen = {seat: game.see(seat) for seat in frame.acting} | frame.truncated
    rows = {
        seat: [cast(Any, r.read_rows([sight.observation])).tobytes() for r in ports[seat].readers]
        for seat, sight in seen.items()
    }
    masks = {
        seat: np.packbits(m).tobytes()
        for seat in frame.acting
        if (m := ports[seat].mask_of(seen[seat])) is not None
    }
    rewards = {seat: float(reward) for seat, reward in frame.rewards.items()}
    return frame.acting, rewards, frame.terminated, sorted(frame.truncated), rows, masks
