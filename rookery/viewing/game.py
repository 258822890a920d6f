"""One game at a time, played move by move for whoever watches."""

from __future__ import annotations

from typing import Any

import numpy as np

from rookery import seeds
from rookery.actor.rollouts.table import blank_actions
from rookery.control.home import Home
from rookery.envs import BatchedEnvironment, SeatView
from rookery.players import Decision, Question
from rookery.spaces import Categorical
from rookery.viewing import Action, ChoiceHead, Frame, NumberHead, SeatFrame, Watch, Watching
from rookery.viewing.action_names import action_names
from rookery.viewing.pictures import make_drawn, show
from rookery.viewing.seats import Sitter, Sitting
from rookery.viewing.thoughts import Thought, think

VIDEO_FPS, ALL_AT_ONCE_FPS, TURNS_FPS = 30.0, 10.0, 2.0
LATE_S = 120.0  # for a player that thinks


class Viewing:
    """A run's environment with players in its seats; `next` plays on."""

    def __init__(self, home: Home, watch: Watch) -> None:
        state = home.state(home.find(watch.run))
        self._watch, self._run = watch, state.id
        self._sitting = Sitting(home, state, watch)
        self.spec = self._sitting.spec
        self._sitters: dict[str, Sitter] = self._sitting.seat_all()  # what is wrong shows here
        world = self._sitting.config.environment
        self._env: BatchedEnvironment = make_drawn(world.id, world.kwargs)
        self._names = action_names(world.id)
        self._episode, self._step, self._over = 0, 0, True
        self._views: dict[str, SeatView] = {}
        self._decisions: dict[str, Decision] = {}  # of the seats that are to act
        self._rng = np.random.default_rng()

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
        self._sitting.close()
        self._env.close()

    # --- playing ---------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._sitters = self._sitting.seat_all()
        self._episode += 1
        seed = self._watch.seed
        if seed is None:
            seed = int(np.random.default_rng().integers(2**31))
        self._rng = seeds.generator(seed, "viewing", self._episode, 1)
        self._views = self._env.reset(seeds.number(seed, "viewing", self._episode, 0))
        self._step, self._over, self._ended = 0, False, ""
        self._returns = dict.fromkeys(self.spec.seats, 0.0)

    def _play(self) -> None:
        actions = {seat: blank_actions(spec, 1) for seat, spec in self.spec.seats.items()}
        for seat in self._acting():
            sitter = self._sitters[seat]
            if seat in self._decisions:
                actions[seat][:] = self._decisions[seat].to_environment
            else:
                actions[seat][:] = self._ask(seat, sitter)
        self._views = self._env.step(actions)
        self._step += 1
        for seat, view in self._views.items():
            self._returns[seat] += float(view.reward[0])
            if view.terminated[0] or view.truncated[0]:
                self._ended = "terminated" if view.terminated[0] else "truncated"
        self._over = not self._acting()

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

    def _ask(self, seat: str, sitter: Sitter) -> int:
        """A player that thinks; the frame is shown meanwhile."""
        view, env = self._views[seat], self._env
        question = Question(
            seat,
            {leaf: x[0] for leaf, x in view.observation.items()},
            None if view.mask is None else view.mask[0],
            env.position(0) if hasattr(env, "position") else None,
        )
        player: Any = sitter.player
        return int(player.ask(question).result(LATE_S).action)

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
        heads: list[ChoiceHead | NumberHead] = []
        thought, action = Thought(heads, None), None
        if acts and not hasattr(sitter.player, "ask"):
            decision = self._decide(sitter, view)
            self._decisions[seat] = decision
            action = self._told(seat, decision)
            if sitter.network is not None and sitter.arrays is not None:
                seen = view.observation, view.mask
                thought = think(sitter.network, sitter.arrays, *seen, decision, self._names)
        return SeatFrame(
            player=sitter.name,
            turn=acts,
            reward=float(view.reward[0]) if self._step else 0.0,
            returned=self._returns[seat],
            value=thought.value,
            action=action,
            heads=thought.heads,
        )

    def _decide(self, sitter: Sitter, view: SeatView) -> Decision:
        player: Any = sitter.player
        decision: Decision = player.act(
            sitter.arrays or {}, view.observation, view.mask, player.initial_state(1), self._rng
        )
        return decision

    def _told(self, seat: str, decision: Decision) -> Action:
        space = self.spec.seats[seat].action
        played = np.asarray(decision.to_environment)[0]
        if isinstance(space, Categorical):
            return int(played)
        return [float(x) for x in played.reshape(-1)]
