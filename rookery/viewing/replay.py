"""A kept game, shown again move by move: nobody plays, the environment repeats what was done.

It begins where the game began, in the same slot of as many, so that chance repeats itself too; the
other slots stay as they are. An environment that does something else all the same is found out by
whose turn it is, or by what each seat got at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery.control.home import Home
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import EnvironmentFailed, InputError, MaskError
from rookery.evaluation.kept_games import kept_game
from rookery.players.action_names import action_name
from rookery.players.actions import blank_actions
from rookery.spaces import Categorical
from rookery.viewing import Action, Frame, SeatFrame, Watch, Watching
from rookery.viewing.pictures import make_drawn, show
from rookery.viewing.seats import Sitting

FPS = 1.0
CLOSE = 1e-3  # of totals that are the same


class Replay:
    """One game; `next` goes on to its end and stays there, `seek` goes anywhere."""

    def __init__(self, home: Home, watch: Watch) -> None:
        state = home.state(home.find(watch.run))
        self._watch, self._run = watch, state.id
        self._tape = kept_game(home.run_dir(state.id), watch.game)
        sitting = Sitting(home, state, watch)
        self.spec, world = sitting.spec, sitting.config.environment
        sitting.close()
        self._seats = list(self.spec.seats)
        self._env: BatchedEnvironment = make_drawn(
            world.id, world.kwargs, self.spec, self._tape.slots
        )
        self._steps = self._wind()  # what cannot be shown is said before anything is
        self._step = -1  # the first frame is the beginning

    @property
    def watching(self) -> Watching:
        return Watching(
            run=self._run,
            environment=self.spec.id,
            weights=self._watch.game,
            sampled=False,
            fps=self._watch.fps or FPS,
            seats=self._seats,
            choices=[],
            steps=self._steps,
        )

    def restart(self) -> None:
        self._step = -1

    def next(self) -> Frame:
        return self.seek(self._step + 1)

    def seek(self, step: int) -> Frame:
        step = min(step, self._steps)
        if step < self._step or self._step < 0:
            self._begin()
        while self._step < step:
            self._play()
        return self._frame()

    def close(self) -> None:
        self._env.close()

    # --- repeating -------------------------------------------------------------------------------

    def _wind(self) -> int:
        """To the end, once, to see that it is the same game; how many steps it has."""
        self._begin()
        try:
            while self._at < len(self._tape.moves):
                self._play()
        except (EnvironmentFailed, MaskError):  # a move that was legal then is not now
            raise self._differs() from None
        if not np.allclose(self._totals, self._tape.totals, atol=CLOSE):
            raise self._differs()
        return self._step

    def _begin(self) -> None:
        self._views = self._env.reset(self._tape.seed)
        self._step, self._at = 0, 0
        self._totals = np.zeros(len(self._seats))

    def _play(self) -> None:
        actions = {n: blank_actions(seat, self._env.slots) for n, seat in self.spec.seats.items()}
        for name, action in self._announced().items():
            actions[name][self._tape.slot] = action
            self._at += 1
        advance = np.arange(self._env.slots) == self._tape.slot
        self._views = self._env.step(actions, advance)
        self._totals += [float(self._views[seat].reward[self._tape.slot]) for seat in self._seats]
        self._step += 1

    def _announced(self) -> dict[str, Any]:
        """What each seat that is to act did then."""
        acting = [number for number, seat in enumerate(self._seats) if self._acts(seat)]
        moves = self._tape.moves[self._at : self._at + len(acting)]
        if moves and [number for number, _ in moves] != acting:
            raise self._differs()
        return {self._seats[number]: action for number, action in moves}

    def _acts(self, seat: str) -> bool:
        view, slot = self._views[seat], self._tape.slot
        over = view.terminated[slot] or view.truncated[slot]
        return bool(not over if view.turn is None else view.turn[slot])

    def _differs(self) -> InputError:
        return InputError(
            f"game {self._watch.game} cannot be shown again: {self.spec.id} does not repeat itself"
        )

    # --- showing ---------------------------------------------------------------------------------

    def _frame(self) -> Frame:
        announced, over = self._announced(), self._step == self._steps
        shown = show(self._env, self._seen_by(next(iter(announced), "")), self._tape.slot)
        return Frame(
            episode=1,
            step=self._step,
            weights=self._watch.game,
            env_steps=0,
            picture=shown.address,
            no_picture=shown.why,
            over=over,
            ended="terminated" if over else "",
            seats={seat: self._seat_frame(seat, announced) for seat in self._seats},
        )

    def _seen_by(self, seat: str) -> SeatView:
        return self._views[seat or self._seats[0]]

    def _seat_frame(self, seat: str, announced: dict[str, Any]) -> SeatFrame:
        number, action = self._seats.index(seat), announced.get(seat)
        return SeatFrame(
            player=self._tape.players[number],
            turn=seat in announced,
            reward=float(self._views[seat].reward[self._tape.slot]) if self._step else 0.0,
            returned=float(self._totals[number]),
            value=None,
            action=_plain(action),
            heads=[],
            move=self._named(seat, action),
        )

    def _named(self, seat: str, action: Any) -> str:
        if action is None or not isinstance(self.spec.seats[seat].action, Categorical):
            return ""
        position = getattr(self._env, "position", lambda slot: None)(self._tape.slot)
        return action_name(self.spec.id, position, action)


def _plain(action: Any) -> Action:
    if action is None or isinstance(action, int):
        return action
    return [float(part) for part in np.asarray(action).reshape(-1)]
