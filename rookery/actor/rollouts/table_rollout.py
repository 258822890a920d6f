"""A rollout at tables with several seats, stepped from Python: any player may take part."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from rookery.actor.experience import Played
from rookery.actor.lineup import ROUND_STEPS
from rookery.actor.loop import Admitted
from rookery.actor.packing import EDGE, FINAL, STEP, Outcomes, Turns, pack
from rookery.actor.rollouts.table import Moved, Table
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
        self._blank = dict(blank)
        self.held: dict[str, Turns] = dict(blank)
        deferred = any(member.deferred for member in table.lineup.members)
        self.can_save = table.env.spec.can_save and not deferred

    def restart(self, seed: int) -> None:
        self.table.restart(seed)
        self.held = dict(self._blank)

    def close(self) -> None:
        self.table.close()
        close_members(self.table.lineup.members)

    def __call__(self, admitted: Admitted) -> Played:
        table, number = self.table, admitted.version.number
        table.lineup.refresh(admitted, table.sitting)
        table.begin()
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
        experience = {}
        for policy, layout in self.layouts.items():
            experience[policy], self.held[policy] = pack(
                Turns.join(turns[policy]), outcomes, layout, number, episodes[policy]
            )
        return Played(experience, games)

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
        found = []
        if policy in moved.decided:
            rows, observation, mask, decision = moved.decided[policy]
            found.append(
                _turns(
                    self._blank[policy],
                    STEP,
                    rows,
                    time,
                    number,
                    observation,
                    mask,
                    earlier=moved.earlier[rows[:, 0], rows[:, 1]],
                    log_prob=decision.log_prob,
                    action=decision.action,
                )
            )
        if moved.truncated.any():
            mine = np.array([m.policy == policy for m in self.table.lineup.members])
            final = np.argwhere((moved.truncated & moved.acted & mine[moved.sitting]).T)[:, ::-1]
            if len(final):
                seen, mask = self.table.seen(final)
                found.append(_turns(self._blank[policy], FINAL, final, time, number, seen, mask))
        return found

    def _edges(self, policy: str, time: int, number: int) -> list[Turns]:
        mine = np.array([m.policy == policy for m in self.table.lineup.members])
        rows = np.argwhere((self.table.turn & mine[self.table.sitting]).T)[:, ::-1]
        if not len(rows):
            return []
        observation, mask = self.table.seen(rows)
        return [_turns(self._blank[policy], EDGE, rows, time, number, observation, mask)]

    def save(self) -> Arrays:
        """All of it; without the environment where that can't be saved: then `restart` follows."""
        table = self.table
        state: Arrays = {"rng": _json_array(table.rng.bit_generator.state)}
        state |= {f"lineup/{n}": a for n, a in table.lineup.save().items()}
        if self.can_save and len(table.sitting):
            state |= {f"env/{n}": a for n, a in table.env.save().items()}
            state |= {f"book/{n}": a for n, a in table.book.save().items()}
            state["sitting"], state["acted"] = table.sitting.copy(), table.acted.copy()
            state["unclaimed"] = table.unclaimed.copy()
            for policy, held in self.held.items():
                state |= {f"held/{policy}/{n}": a for n, a in held.arrays().items()}
        return state

    def restore(self, state: Arrays) -> None:
        table = self.table
        table.rng.bit_generator.state = json.loads(state["rng"].tobytes())
        table.lineup.restore(_under(state, "lineup/"))
        if self.can_save and "sitting" in state:
            table.views = table.env.restore(_under(state, "env/"))
            table.book.restore(_under(state, "book/"))
            table.sit(np.array(state["sitting"]))
            table.acted = np.array(state["acted"])
            table.unclaimed = np.array(state["unclaimed"])
            for policy in self.held:
                self.held[policy] = Turns.from_arrays(_under(state, f"held/{policy}/"))


def _turns(
    blank: Turns,
    kind: int,
    rows: np.ndarray,
    time: int,
    number: int,
    observation: Arrays,
    mask: np.ndarray | None,
    earlier: np.ndarray | None = None,
    log_prob: Any = None,
    action: Any = None,
) -> Turns:
    count = len(rows)
    return Turns(
        kind=np.full(count, kind, np.int8),
        slot=rows[:, 0].astype(np.int32),
        seat=rows[:, 1].astype(np.int32),
        time=np.full(count, time, np.int32),
        earlier=np.zeros(count) if earlier is None else earlier,
        number=np.full(count, number, np.int64),
        log_prob=np.zeros(count, np.float32) if log_prob is None else log_prob,
        action=(
            np.zeros((count, *blank.action.shape[1:]), blank.action.dtype)
            if action is None
            else action
        ),
        mask=mask,
        observation=observation,
    )


def _json_array(value: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def _under(state: Arrays, prefix: str) -> Arrays:
    return {n.removeprefix(prefix): a for n, a in state.items() if n.startswith(prefix)}
