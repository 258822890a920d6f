"""Experience from outside: whoever cannot wait for a credit sends what it has, as walk-ins.

    sender = WalkInSender(bus, run, "lab-robot", seats=["player_0"])
    sender.send("main", lanes, version)      # lanes: trajectories, each a list of rows

A row says by whom it was decided and with which weights. Whether it is trained is for the learner
to say: there must be room, and it must not be too old.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rookery.actor.transport import message_of
from rookery.bus import Bus
from rookery.errors import InputError
from rookery.messages import WALK_IN, WeightsVersion, new_id
from rookery.messages.fragment import Episode, Fragment, FragmentHeader
from rookery.messages.frame import Arrays
from rookery.messages.steps import LONG_AGO, POLICY, Steps


class Seen(NamedTuple):
    """What a seat sees at its turn."""

    observation: Arrays  # leaf -> its array
    mask: np.ndarray | None = None


class Row(NamedTuple):
    """One decision and what came of it."""

    seen: Seen
    action: Any  # as the policy stores it
    reward: float
    number: int  # of the weights that acted; of another decider: the newest it could have known
    log_prob: float = math.nan  # unknown; only a policy's own is believed
    terminated: bool = False
    truncated: bool = False
    player: str = POLICY
    seat: int = 0


class Lane(NamedTuple):
    """One seat's rows, one after the other, and what it saw after the last of them."""

    rows: Sequence[Row]
    after: Seen


class WalkInSender:
    """Numbers one sender's walk-ins, so that none is counted twice or lost unseen."""

    def __init__(self, bus: Bus, run: str, name: str, seats: Sequence[str]) -> None:
        self._bus, self._run, self._seats = bus, run, tuple(seats)
        self.sender = f"{WALK_IN}{name}.{new_id()[:8]}"  # another one for each life
        self.sequence = 0
        self.agent_steps = 0

    def send(
        self,
        policy: str,
        lanes: Sequence[Lane],
        version: WeightsVersion,
        episodes: tuple[Episode, ...] = (),
    ) -> Fragment:
        """Rows of any weights up to `version`, as many in each lane."""
        players = tuple(dict.fromkeys([POLICY, *(r.player for lane in lanes for r in lane.rows)]))
        steps = steps_of(lanes, version.number, players)
        header = FragmentHeader(
            run=self._run,
            policy=policy,
            actor=self.sender,
            sequence=self.sequence,
            first_step=self.agent_steps,
            steps=steps.valid.size,
            version=version,
            seats=self._seats,
            players=players,
            episodes=episodes,
        )
        fragment = Fragment(header, steps)
        self._bus.publish([message_of(fragment)])
        self.sequence += 1
        self.agent_steps += header.steps
        return fragment


def steps_of(lanes: Sequence[Lane], number: int, players: Sequence[str]) -> Steps:
    """Lanes side by side; `number` is that of the newest weights among them."""
    if not lanes or len({len(lane.rows) for lane in lanes}) != 1 or not lanes[0].rows:
        raise InputError("a walk-in needs lanes of rows, as many in each")
    if any(row.truncated for lane in lanes for row in lane.rows[:-1]):
        raise InputError("a truncated row ends its lane: what was seen after it must follow")
    table = [[lane.rows[t] for lane in lanes] for t in range(len(lanes[0].rows))]
    seen = [[row.seen for row in rows] for rows in table] + [[lane.after for lane in lanes]]

    def field(name: str, dtype: type) -> np.ndarray:
        return np.array([[getattr(row, name) for row in rows] for rows in table], dtype)

    player = np.array([[players.index(row.player) for row in rows] for rows in table], np.uint8)
    log_prob = field("log_prob", np.float32)
    log_prob[player != players.index(POLICY)] = np.nan
    flags = np.ones(player.shape, np.bool_)
    return Steps(
        observation={
            leaf: np.stack([np.stack([one.observation[leaf] for one in row]) for row in seen])
            for leaf in seen[0][0].observation
        },
        action=np.stack([np.stack([np.asarray(row.action) for row in rows]) for rows in table]),
        reward=field("reward", np.float32),
        terminated=field("terminated", np.bool_),
        truncated=field("truncated", np.bool_),
        valid=flags,
        log_prob=log_prob,
        seat=field("seat", np.uint8),
        player=player,
        behind=np.clip(number - field("number", np.int64), 0, LONG_AGO).astype(np.uint8),
        mask=None
        if seen[0][0].mask is None
        else np.array([[one.mask for one in row] for row in seen], np.bool_),
    )
