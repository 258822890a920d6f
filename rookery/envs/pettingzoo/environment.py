"""PettingZoo environments as the slots of one batched environment with several seats.

    env = PettingZooEnvironment("pettingzoo:connect_four_v3", slots=8)

`pettingzoo_making` makes the copies, `pettingzoo_probing` reads their seats, `pettingzoo_games`
plays one of them and `pettingzoo_replay` keeps what was played; this adapter joins them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rookery.envs import NO_OPTIONS, Arrays, Options, Picture, SeatView
from rookery.envs.action_spaces import check_legal
from rookery.envs.failures import environment_failed
from rookery.envs.pettingzoo.game import Game, StepResult, as_game
from rookery.envs.pettingzoo.make import make_game
from rookery.envs.pettingzoo.probe import Port, probe
from rookery.envs.pettingzoo.replay import Moves, episode_seed, load_moves, replay, save_moves
from rookery.envs.pettingzoo.seat_rows import SeatRows
from rookery.envs.saved_state import (
    check_header,
    from_text,
    header_text,
    load_view,
    save_view,
    to_text,
)
from rookery.errors import ConfigError, EnvironmentFailed, InputError, RookeryError

__all__ = ["PettingZooEnvironment", "probe"]


class PettingZooEnvironment:
    """`pettingzoo:NAME`, or a factory of PettingZoo environments, as a batched environment."""

    def __init__(
        self,
        id: str,
        slots: int,
        kwargs: Options = NO_OPTIONS,
        factory: Callable[..., Any] | None = None,
    ) -> None:
        if slots < 1:
            raise ConfigError(f"environment {id} needs at least 1 slot, not {slots}")
        interface = probe(id, kwargs, factory)
        self.spec = interface.spec
        self.slots = slots
        self._ports: dict[str, Port] = interface.ports
        self._encoders = {s: port.writer.encoder(slots) for s, port in self._ports.items()}
        self._games: list[Game] = []
        try:
            for _ in range(slots):
                self._games.append(as_game(make_game(id, kwargs, factory)))
        except RookeryError:
            self.close()
            raise
        self._seed = 0
        self._episodes = [0] * slots  # begun since `reset`
        self._steps = [0] * slots  # played in all
        self._moves: list[Moves] = [[] for _ in range(slots)]
        self._acting: list[list[str]] = [[] for _ in range(slots)]
        self._views: dict[str, SeatView] = {}

    def reset(self, seed: int) -> dict[str, SeatView]:
        """Begin a new episode in every slot."""
        self._seed, self._episodes = seed, [0] * self.slots
        rows = self._fresh_rows()
        for slot in range(self.slots):
            self._write(rows, slot, self._begin(slot))
        return self._show(rows, None)

    def step(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None = None
    ) -> dict[str, SeatView]:
        """Play one action per slot of every seat that has the turn there.

        A slot whose last seat has ended begins a new episode instead.
        """
        chosen = self._chosen(actions, advance)
        moving = [True] * self.slots if advance is None else advance.tolist()
        rows = self._fresh_rows()
        for slot in range(self.slots):
            if not moving[slot]:
                continue
            if acting := self._acting[slot]:
                frame = self._play(slot, {seat: chosen[seat][slot] for seat in acting})
            else:
                frame = self._begin(slot)
                for row in rows.values():
                    row.reset[slot] = True
            self._write(rows, slot, frame)
        return self._show(rows, None if advance is None else ~advance)

    def position(self, slot: int) -> str | None:
        """The board of a game of chess, in Forsyth-Edwards notation; None for other games."""
        fen = getattr(getattr(self._games[slot].env.unwrapped, "board", None), "fen", None)
        return str(fen()) if callable(fen) else None

    def _chosen(
        self, actions: dict[str, np.ndarray], advance: np.ndarray | None
    ) -> dict[str, list[Any]]:
        """What the environments are given, by seat and slot; checked where it will be played."""
        chosen = {}
        for seat, view in self._views.items():
            assert view.turn is not None
            played = view.turn if advance is None else view.turn & advance
            rows = np.flatnonzero(played)
            if not len(rows):
                continue
            encoded = self._encoders[seat](actions[seat], ~played)
            if view.mask is not None:
                head = self._ports[seat].writer.head
                check_legal(seat, head, view.mask, actions[seat], rows)
            chosen[seat] = list(encoded)
        return chosen

    def _begin(self, slot: int) -> StepResult:
        self._moves[slot] = []
        self._episodes[slot] += 1
        try:
            return self._games[slot].reset(self._slot_seed(slot))
        except Exception as error:
            raise self._failed(error, "reset", slot) from error

    def _play(self, slot: int, move: dict[str, Any]) -> StepResult:
        # An environment may change an array that it is given; the moves must stay as they were.
        self._moves[slot].append({seat: np.array(action) for seat, action in move.items()})
        try:
            frame = self._games[slot].step(move)
        except Exception as error:
            raise self._failed(error, "step", slot) from error
        self._steps[slot] += 1
        return frame

    def _slot_seed(self, slot: int) -> int:
        return episode_seed(self._seed, slot, self._episodes[slot])

    # --- views ---------------------------------------------------------------------------------

    def _fresh_rows(self) -> dict[str, SeatRows]:
        return {seat: SeatRows(port, self.slots) for seat, port in self._ports.items()}

    def _write(self, rows: dict[str, SeatRows], slot: int, frame: StepResult) -> None:
        """Put a frame into its slot's rows; seats without the turn have nothing to see."""
        self._acting[slot] = frame.acting
        game = self._games[slot]
        try:
            for seat in frame.acting:
                rows[seat].take_turn(slot, game.see(seat))
            for seat, reward in frame.rewards.items():
                rows[seat].reward[slot] = reward
            for seat in frame.terminated:
                rows[seat].terminated[slot] = True
            for seat, sight in frame.truncated.items():
                rows[seat].truncate(slot, sight)
        except Exception as error:
            raise self._failed(error, "what it gave", slot) from error

    def _show(self, rows: dict[str, SeatRows], frozen: np.ndarray | None) -> dict[str, SeatView]:
        views = {seat: row.view() for seat, row in rows.items()}
        if frozen is not None:
            for seat, view in views.items():
                _keep(view, self._views[seat], frozen)
        self._views = views
        return dict(views)

    def _failed(self, error: Exception, doing: str, slot: int) -> EnvironmentFailed:
        acting = self._acting[slot]
        seat = acting[0] if len(acting) == 1 else None
        return environment_failed(error, self.spec.id, doing, slot, self._steps[slot], seat)

    # --- states --------------------------------------------------------------------------------

    def save(self) -> Arrays:
        """Every slot's seed and moves, from which its state is made again, and the views."""
        if not self.spec.can_save:
            raise InputError(f"environment {self.spec.id} cannot save its state")
        if not self._views:
            raise RuntimeError("save before the first reset")
        seats = list(self._ports)
        state: Arrays = {
            "header": header_text(self._header()),
            "seed": to_text(self._seed),
            "episodes": np.asarray(self._episodes),
            "steps": np.asarray(self._steps),
        }
        for slot, moves in enumerate(self._moves):
            state.update({f"slot.{slot}.{n}": a for n, a in save_moves(moves, seats).items()})
        for number, view in enumerate(self._views.values()):
            state.update(save_view(view, f"view.{number}"))
        return state

    def restore(self, state: Arrays) -> dict[str, SeatView]:
        """Play every slot's moves again, in this object or in a new one."""
        check_header(state, self._header())
        self._seed = from_text(state["seed"])
        self._episodes = state["episodes"].tolist()
        self._steps = state["steps"].tolist()
        seats = list(self._ports)
        rows = self._fresh_rows()
        for slot, game in enumerate(self._games):
            prefix = f"slot.{slot}."
            arrays = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
            self._moves[slot] = load_moves(arrays, seats)
            try:
                frame = replay(game, self._slot_seed(slot), load_moves(arrays, seats))
            except Exception as error:
                raise self._failed(error, "the replay of a saved state,", slot) from error
            self._write(rows, slot, frame)
        saved = {
            seat: load_view(state, port.spec, f"view.{number}")
            for number, (seat, port) in enumerate(self._ports.items())
        }
        if not all(_same_sight(row.view(), saved[seat]) for seat, row in rows.items()):
            raise InputError(
                f"environment {self.spec.id} did not come back to the state that was saved: "
                "the same seed and actions gave other observations"
            )
        self._views = saved
        return dict(saved)

    def _header(self) -> dict[str, Any]:
        return {"id": self.spec.id, "slots": self.slots, "seats": list(self._ports)}

    def picture(self, slot: int) -> Picture | None:
        """What the game renders, if its options have a `render_mode` of rgb_array."""
        env = self._games[slot].env
        if getattr(env.unwrapped, "render_mode", None) != "rgb_array":
            return None
        rendered = env.render()
        return None if rendered is None else np.asarray(rendered, np.uint8)

    def close(self) -> None:
        """Close every copy."""
        for game in self._games:
            game.env.close()


def _keep(view: SeatView, before: SeatView, frozen: np.ndarray) -> None:
    """In frozen slots the seat sees again what it saw, and nothing has happened."""
    assert view.turn is not None and before.turn is not None
    view.turn[frozen] = before.turn[frozen]
    for path, leaf in view.observation.items():
        leaf[frozen] = before.observation[path][frozen]
    if view.mask is not None and before.mask is not None:
        view.mask[frozen] = before.mask[frozen]


def _same_sight(replayed: SeatView, saved: SeatView) -> bool:
    """Whether a seat has the same turns, and where it has one sees the same."""
    assert replayed.turn is not None and saved.turn is not None
    turn = saved.turn
    if not np.array_equal(replayed.turn, turn):
        return False
    if replayed.mask is not None:
        assert saved.mask is not None
        if not np.array_equal(replayed.mask[turn], saved.mask[turn]):
            return False
    return all(
        leaf[turn].tobytes() == saved.observation[path][turn].tobytes()
        for path, leaf in replayed.observation.items()
    )
