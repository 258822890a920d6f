"""Where the number of actors follows the learner (`actors.count: auto`): looks at the run, and asks
for more or fewer by the same command as a person would."""

from __future__ import annotations

import time

from rookery.bus import Bus
from rookery.control.autoscale import AUTHOR, AutoActors, Look
from rookery.control.evidence import newest_actors
from rookery.control.home import Home
from rookery.control.queries import newest_training
from rookery.control.run_state import RUNNING, RunState
from rookery.messages import JOINED_FROM, ScaleActors

LOOK_S = 1.0


class Scaler:
    """Of one run, for its owner."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._auto: AutoActors | None = None
        self._look_at = 0.0

    def step(self, state: RunState, bus: Bus | None) -> None:
        now = time.monotonic()
        if not state.follows_learner or state.desired != RUNNING:
            self._auto = None  # what was measured before a pause says nothing
            return
        if bus is None or now < self._look_at:
            return
        self._look_at = now + LOOK_S
        self._auto = self._auto or AutoActors(state.max_actors, state.actors_wanted)
        metrics = newest_training(bus, state.id)
        said = newest_actors(bus, state, living=True)
        ours = {name for name, worker in state.workers.items() if worker.index < JOINED_FROM}
        playing = [m for name, m in said.items() if name in ours and m.agent_steps]
        if metrics is None or not metrics.updates or not playing:
            return
        waiting = sum(actor.waiting_share for actor in playing) / len(playing)
        wanted = self._auto.look(Look(now, len(playing), metrics.env_steps, waiting))
        if wanted is not None:
            reason = (
                f"actors wait {waiting:.0%} of their time, and the learner trains "
                f"{metrics.recent_steps_per_s:,.0f} steps/s"
            )
            self._home.send(ScaleActors(run=state.id, count=wanted, author=AUTHOR, reason=reason))
