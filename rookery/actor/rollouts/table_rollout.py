"""A rollout at tables with several seats, stepped from Python: any player may take part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from rookery.actor.held import HeldSteps
from rookery.actor.lineup import ROUND_STEPS
from rookery.actor.loop import Admitted, Played
from rookery.actor.packing import EDGE, FINAL, STEP, Outcomes, Turns, pack
from rookery.actor.rollouts.table import Decided, Moved, Table
from rookery.actor.saved import LINEUP, from_json_array, json_array, prefixed, under
from rookery.messages.frame import Arrays
from rookery.players.factory import close_members
from rookery.worker.policies import Layout


class TableRollout:
    """Fragments from a table: one per learning policy and turn of the playing loop."""

    def __init__(
        self,
        table: Table,
        layouts: Mapping[str, Layout],
        blank: Mapping[str, Turns],
        steps: int | None,
    ) -> None:
        self.table, self.layouts = table, dict(layouts)
        self._steps = ROUND_STEPS if steps is None else steps
        self.held = HeldSteps(blank)
        deferred = any(member.deferred for member in table.lineup.members)
        self.can_save = table.env.spec.can_save and not deferred

    def restart(self, seed: int) -> None:
        self.table.restart(seed)
        self.held.drop()

    def close(self) -> None:
        self.table.close()
        close_members(self.table.lineup.members)

    def resize(self, env_steps: int) -> None:
        """How many environment steps are played from now on, at most, in every slot."""
        for policy, layout in self.layouts.items():
            beyond = layout.rows - layout.env_steps
            self.layouts[policy] = replace(layout, rows=env_steps + beyond)
        self._steps = env_steps

    def close_environment(self) -> None:
        self.table.env.close()

    def __call__(self, admitted: Admitted) -> Played:
        table, number = self.table, admitted.version.number
        table.lineup.refresh(admitted, table.sitting)
        table.begin()
        self.held.go_on(admitted.version)
        turns = {policy: [held] for policy, held in self.held.items()}
        moves: list[Moved] = []
        while not self._full(moves):
            moved = table.step(admitted.arrays)
            for policy in turns:
                turns[policy] += self._turns(policy, moved, len(moves), number)
            moves.append(moved)
        for policy in turns:
            turns[policy] += self._edges(policy, len(moves), number)
        outcomes = Outcomes(
            np.stack([m.reward for m in moves]),
            np.stack([m.terminated for m in moves]),
            np.stack([m.truncated for m in moves]),
        )
        games, episodes = table.book.take()
        steps = {}
        for policy, layout in self.layouts.items():
            steps[policy], self.held[policy] = pack(
                Turns.join(turns[policy]), outcomes, layout, number
            )
        return Played(steps, episodes, games, table.deciders.names)

    def _full(self, moves: list[Moved]) -> bool:
        """Whether another step might not fit; truncated games in turns take a row for each seat."""
        limit = self._steps
        if len(moves) >= limit:
            return True
        if not moves or self.table.env.spec.simultaneous or not self.layouts:
            return False
        resets = np.sum([m.reset for m in moves], axis=0).max()
        return bool(len(moves) + resets * (len(self.table.seats) - 1) >= limit)

    def _turns(self, policy: str, moved: Moved, time: int, number: int) -> list[Turns]:
        found = [
            _steps(self.held.blank[policy], decided, moved.earlier, time, number)
            for decided in moved.decided.get(policy, ())
        ]
        if moved.final.any():
            mine = self.table.held_by(policy, moved.sitting)
            found += self._shown(policy, FINAL, moved.final & moved.acted & mine, time, number)
        return found

    def _edges(self, policy: str, time: int, number: int) -> list[Turns]:
        mine = self.table.held_by(policy, self.table.sitting)
        return self._shown(policy, EDGE, self.table.turn & mine, time, number)

    def _shown(
        self, policy: str, kind: int, where: np.ndarray, time: int, number: int
    ) -> list[Turns]:
        """Turns that only show what is seen at these (slots, seats)."""
        rows = np.argwhere(where.T)[:, ::-1]
        if not len(rows):
            return []
        observation, mask = self.table.seen(rows)
        blank = self.held.blank[policy].zeros(len(rows))
        at = _placed(kind, rows, time, number)
        return [replace(blank, **at, observation=observation, mask=mask)]

    def save(self) -> Arrays:
        """All of it; without the environment where that can't be saved: then `restart` follows."""
        table = self.table
        state: Arrays = {"rng": json_array(table.rng.bit_generator.state)}
        state |= prefixed(LINEUP, table.lineup.save())
        if self.can_save and len(table.sitting):
            state |= prefixed("env/", table.env.save()) | prefixed("book/", table.book.save())
            state["sitting"], state["acted"] = table.sitting.copy(), table.acted.copy()
            state["unclaimed"] = table.unclaimed.copy()
            state |= prefixed("states/", table.states.save()) | table.deciders.save()
            state |= self.held.save()
        return state

    def restore(self, state: Arrays) -> None:
        table = self.table
        table.rng.bit_generator.state = from_json_array(state["rng"])
        table.lineup.restore(under(state, LINEUP))
        if self.can_save and "sitting" in state:
            table.views = table.env.restore(under(state, "env/"))
            table.book.restore(under(state, "book/"))
            table.sit(np.array(state["sitting"]))
            table.acted = np.array(state["acted"])
            table.unclaimed = np.array(state["unclaimed"])
            table.states.restore(under(state, "states/"))
            table.deciders.restore(state)
            self.held.restore(state)


def _steps(blank: Turns, decided: Decided, earlier: np.ndarray, time: int, number: int) -> Turns:
    rows, state = decided.rows, decided.state
    if blank.state and not state:  # another decided, and has none
        state = blank.zeros(len(rows)).state
    return Turns(
        **_placed(STEP, rows, time, number),
        earlier=earlier[rows[:, 0], rows[:, 1]],
        log_prob=decided.log_prob,
        action=decided.action,
        mask=decided.mask,
        observation=decided.observation,
        player=decided.player,
        state=state,
    )


def _placed(kind: int, rows: np.ndarray, time: int, number: int) -> dict[str, Any]:
    """Which turns these (slot, seat) rows are."""
    return {
        "kind": np.full(len(rows), kind, np.int8),
        "slot": rows[:, 0].astype(np.int32),
        "seat": rows[:, 1].astype(np.int32),
        "time": np.full(len(rows), time, np.int32),
        "number": np.full(len(rows), number, np.int64),
    }
