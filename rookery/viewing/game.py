"""One game at a time, played move by move for whoever watches."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rookery import seeds
from rookery.actor.episodes import GameBook
from rookery.actor.rollouts.questions import Questions
from rookery.actor.rollouts.table import Moved
from rookery.control.home import Home
from rookery.envs import BatchedEnvironment, SeatView
from rookery.errors import InputError
from rookery.players import Decision, Ending
from rookery.players.action_names import action_names
from rookery.players.member import Member
from rookery.players.policy import PolicyPlayer
from rookery.spaces import Categorical
from rookery.viewing import Action, ChoiceHead, Frame, NumberHead, SeatFrame, Watch, Watching
from rookery.viewing.pictures import make_drawn, show
from rookery.viewing.seats import Sitting
from rookery.viewing.thoughts import Thought, think

VIDEO_FPS, ALL_AT_ONCE_FPS, TURNS_FPS = 30.0, 10.0, 2.0
THINKING_S = 120.0  # at most, for a player that thinks
_MOVES = np.zeros(1, np.bool_)  # the one slot doesn't wait


class Viewing:
    """A run's environment with players in its seats; `next` plays on."""

    def __init__(self, home: Home, watch: Watch) -> None:
        state = home.state(home.find(watch.run))
        self._watch, self._run = watch, state.id
        self._sitting = Sitting(home, state, watch)
        self.spec = self._sitting.spec
        self._sitters: dict[str, Member] = self._sitting.seat_all()  # what is wrong shows here
        world = self._sitting.config.environment
        self._env: BatchedEnvironment = make_drawn(world.id, world.kwargs, self.spec)
        self._names = action_names(world.id)
        self._episode, self._step, self._over = 0, 0, True
        self._views: dict[str, SeatView] = {}
        self._decisions: dict[str, Decision] = {}  # of the seats that are to act
        self._rng = np.random.default_rng()
        self._open_table()

    @property
    def watching(self) -> Watching:
        watch = self._watch
        return Watching(
            run=self._run,
            environment=self.spec.id,
            weights=watch.weights,
            sampled=watch.sampled,
            fps=watch.fps or self._pace,
            seats=list(self.spec.seats),
            choices=self._sitting.choices(),
        )

    @property
    def _pace(self) -> float:
        """Board games are for thinking along, the rest is a film."""
        if not self.spec.simultaneous:
            return TURNS_FPS
        return VIDEO_FPS if len(self.spec.seats) == 1 else ALL_AT_ONCE_FPS

    def restart(self) -> None:
        """Let the next frame be the beginning of another episode."""
        self._over = True

    def next(self) -> Frame:
        """The next moment: after the moves that the last one announced, or a new episode."""
        if self._over:
            self._begin()
        else:
            self._play()
        return self._frame()

    def close(self) -> None:
        self._questions.break_off("closed", self._book)
        self._sitting.close()
        self._env.close()

    # --- playing ---------------------------------------------------------------------------------

    def _open_table(self) -> None:
        """For one episode: what its deferred players are asked, and what each seat gets."""
        members = list(self._sitters.values())
        self._questions = Questions(self.spec, 1, members, f"watched.{self._episode}")
        self._questions.begin(np.arange(1), np.arange(len(members))[None])
        self._book = GameBook(tuple(self.spec.seats), 1, members)

    def _begin(self) -> None:
        self._questions.break_off("restarted", self._book)
        self._sitters = self._sitting.seat_all()
        self._episode += 1
        self._open_table()
        seed = self._watch.seed
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        self._rng = seeds.generator(seed, "viewing", self._episode, 1)
        self._views = self._env.reset(seeds.number(seed, "viewing", self._episode, 0))
        self._step, self._over = 0, False
        self._ended: Ending = "terminated"

    def _play(self) -> None:
        seats, acting = self.spec.seats, self._acting()
        moved = Moved.begin(seats.values(), np.array([[seat in acting for seat in seats]]))
        self._wait(moved.turn)
        for (_, number), answer in self._questions.take(_MOVES).items():
            moved.actions[number][0] = answer.action
        for number, seat in enumerate(seats):
            if seat in self._decisions:
                moved.actions[number][:] = self._decisions[seat].to_environment
        self._questions.note(self._env, moved)
        self._views = self._env.step(dict(zip(seats, moved.actions, strict=True)))
        self._step += 1
        self._settle(moved)

    def _wait(self, turn: np.ndarray) -> None:
        """For players that think; the frame is shown meanwhile."""
        until = time.monotonic() + THINKING_S
        while self._questions.ask(self._env, self._views, turn).any():
            if time.monotonic() > until:
                raise InputError(f"a player has not moved for {THINKING_S:g} s")

    def _settle(self, moved: Moved) -> None:
        moved.see([self._views[seat] for seat in self.spec.seats])
        self._questions.settle(moved, self._book)
        self._book.totals += moved.reward
        if moved.terminated.any() or moved.truncated.any():
            self._ended = "terminated" if moved.terminated.any() else "truncated"
        self._over = not self._acting()
        if self._over:
            self._questions.break_off(self._ended, self._book)

    def _acting(self) -> list[str]:
        """The seats that are to act; nobody: the episode is over."""
        return [
            seat
            for seat, view in self._views.items()
            if (
                view.turn[0]
                if view.turn is not None
                else not (view.terminated[0] or view.truncated[0])
            )
        ]

    # --- showing ---------------------------------------------------------------------------------

    def _frame(self) -> Frame:
        acting = [] if self._over else self._acting()
        self._decisions = {}
        seats = {seat: self._seat_frame(seat, seat in acting) for seat in self.spec.seats}
        shown = show(self._env, self._views[acting[0] if acting else next(iter(self._views))])
        return Frame(
            episode=self._episode,
            step=self._step,
            weights=self._sitting.weights,
            env_steps=self._sitting.env_steps,
            picture=shown.address,
            no_picture=shown.why,
            over=self._over,
            ended=self._ended if self._over else "",
            seats=seats,
        )

    def _seat_frame(self, seat: str, acts: bool) -> SeatFrame:
        sitter, view = self._sitters[seat], self._views[seat]
        player, number = sitter.player, list(self.spec.seats).index(seat)
        heads: list[ChoiceHead | NumberHead] = []
        thought, action = Thought(heads, None), None
        if acts and not sitter.deferred:
            decision = self._decide(sitter, view)
            self._decisions[seat] = decision
            action = self._told(seat, decision)
            if isinstance(player, PolicyPlayer):
                seen = view.observation, view.mask
                thought = think(player.network, sitter.arrays, *seen, decision, self._names)
        return SeatFrame(
            player=sitter.name,
            turn=acts,
            reward=float(view.reward[0]) if self._step else 0.0,
            returned=float(self._book.totals[0, number]),
            value=thought.value,
            action=action,
            heads=thought.heads,
        )

    def _decide(self, sitter: Member, view: SeatView) -> Decision:
        player: Any = sitter.player
        decision: Decision = player.act(
            sitter.arrays, view.observation, view.mask, player.initial_state(1), self._rng
        )
        return decision

    def _told(self, seat: str, decision: Decision) -> Action:
        space = self.spec.seats[seat].action
        played = np.asarray(decision.to_environment)[0]
        if isinstance(space, Categorical):
            return int(played)
        return [float(x) for x in played.reshape(-1)]
