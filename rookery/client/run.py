"""One run: what it is, what happens to it, and what can be done to it; of a home or of a server."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, overload

from rookery.client.stream import PATIENCE_S, EventStream
from rookery.client.subscription import Event
from rookery.errors import InputError, RookeryError, ServerFailed, TimedOut, Unreachable
from rookery.foreign import one_line

if TYPE_CHECKING:
    from rookery.client import AnyClient
    from rookery.control.models import (
        Answer,
        AuditEntry,
        RunDetail,
        RunRow,
    )

ENDED = ("solved", "finished", "limited", "stopped", "failed")
LOOK_S = 5.0  # how often a run is looked at anew while nothing is heard of it


class ClientRun(ABC):
    """What can be asked of a run and done to it, wherever it lives."""

    def __init__(self, client: AnyClient, run: str, answer: Answer | None = None) -> None:
        self.id = run
        self.answer = answer  # to what created it, if we did
        self._client = client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r} at {self._client.url})"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def row(self) -> RunRow:
        """As it is now."""
        return self.detail()

    @abstractmethod
    def detail(self) -> RunDetail: ...

    def look(self) -> RunDetail | None:
        """The same; None while the server is away."""
        try:
            return self.detail()
        except (Unreachable, ServerFailed):
            return None

    def audit(self) -> list[AuditEntry]:
        """Who changed what, why, and what became of it, oldest first."""
        return self._client.audit(self.id)

    # --- what happens to it ----------------------------------------------------------------------

    def events(
        self,
        kinds: Collection[str] = ("events", "metrics"),
        after: Mapping[str, int] | int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> AsyncIterator[Event]:
        """What happens to it from now on, or `after` a seq; see Client.events."""
        return self._client.events([self.id], kinds, after, patience_s)

    def follow(
        self,
        kinds: Collection[str] = ("events", "metrics"),
        after: Mapping[str, int] | int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> EventStream:
        """The same without asyncio; see Client.follow."""
        return self._client.follow([self.id], kinds, after, patience_s)

    def wait(
        self,
        status: str | Collection[str] | None = None,
        steps: int | None = None,
        timeout_s: float = 600.0,
    ) -> RunDetail:
        """Wait for a status, or so many environment steps; without either, for its end.

        Raises TimedOut, and RookeryError for a run that ended otherwise.
        """
        wanted = (status,) if isinstance(status, str) else tuple(status or ())
        if not wanted and steps is None:
            wanted = ENDED
        deadline = time.monotonic() + timeout_s
        with self.follow() as stream:  # before the first look, so that nothing is missed
            detail = self.detail()
            while not _is_there(detail, wanted, steps):
                if detail.status in ENDED:
                    why = one_line(detail.reason)
                    raise RookeryError(f"run {self.id} is {detail.status}: {why}")
                if time.monotonic() >= deadline:
                    raise TimedOut(
                        f"run {self.id} is {detail.status} at {detail.env_steps:,} steps "
                        f"after {timeout_s:g} s"
                    )
                soon = min(deadline, time.monotonic() + LOOK_S)
                wait_for(stream, soon, lambda e: _matters(e, steps))
                detail = self.look() or detail
            return detail

    # --- changing it -----------------------------------------------------------------------------

    def start(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Start it; one that stopped goes on from its newest checkpoint."""
        return self.act("start", {}, reason, dry_run)

    def pause(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Hold playing and training; the workers stay in memory."""
        return self.act("pause", {}, reason, dry_run)

    def resume(
        self,
        reason: str = "",
        dry_run: bool = False,
        steps: int | None = None,
        minutes: float | None = None,
        until_return: float | None = None,
    ) -> Answer:
        """Go on with a run that is paused or has stopped, or, with a new bound, has reached its
        own; bounds count from its beginning."""
        asked = {"steps": steps, "minutes": minutes, "until_return": until_return}
        return self.act("resume", given(asked), reason, dry_run)

    def stop(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Stop it after a checkpoint, and end its workers."""
        return self.act("stop", {}, reason, dry_run)

    def checkpoint(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Save a checkpoint now."""
        return self.act("save-checkpoint", {}, reason, dry_run)

    def scale(
        self,
        actors: int | None = None,
        learner: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Answer:
        """Change how many actors play; `learner`: how many train together, 0 takes all away.

        Both are two commands: the answer is the second one's, with what both do.
        """
        answers = [
            self.act(action, {"count": count}, reason, dry_run)
            for action, count in (("scale-learner", learner), ("scale-actors", actors))
            if count is not None
        ]
        if not answers:
            raise InputError("nothing to scale: name actors or learner")
        *_, last = answers
        return last.model_copy(update={"effect": "; ".join(answer.effect for answer in answers)})

    def set(
        self,
        values: Mapping[str, float] | None = None,
        reason: str = "",
        dry_run: bool = False,
        **short: float,
    ) -> Answer:
        """Change hyperparameters while it runs: set(learning_rate=1e-4), or by full config key."""
        asked = {**(values or {}), **short}
        full = {key if "." in key else f"algorithm.{key}": value for key, value in asked.items()}
        return self.act("set-hyperparameters", {"values": full}, reason, dry_run)

    def seat(
        self,
        seats: Mapping[str, Any] | None = None,
        reason: str = "",
        dry_run: bool = False,
        **named: Any,
    ) -> Answer:
        """Seat other players from each slot's next episode on: seat(player_1="script:random")."""
        asked = {**(seats or {}), **named}
        return self.act("set-seat-map", {"seats": asked}, reason, dry_run)

    def label(
        self,
        name: str | None = None,
        tags: Collection[str] | None = None,
        notes: str | None = None,
        group: str | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> Answer:
        """Give it a name, tags, notes or a group; what is left out stays as it is."""
        words = None if tags is None else list(tags)
        asked = {"name": name, "tags": words, "notes": notes, "group": group}
        return self.act("label", given(asked), reason, dry_run)

    def delete(self, confirm: str, reason: str = "", dry_run: bool = False) -> Answer:
        """Forget it and remove its files for good; `confirm` is its whole id."""
        if confirm != self.id:
            raise InputError(f"to delete {self.id} say so: delete(confirm={self.id!r})")
        return self.act("delete", {}, reason, dry_run)

    @abstractmethod
    def act(self, action: str, values: Mapping[str, Any], reason: str, dry_run: bool) -> Answer:
        """Do what `control/actions.py` names to it; Rejected if its owner says no."""

    # --- jobs ------------------------------------------------------------------------------------

    @overload
    def evaluate(
        self,
        episodes: int = ...,
        seed: int = ...,
        player: str = ...,
        reason: str = ...,
        dry_run: bool = ...,
        wait_s: None = ...,
    ) -> Answer: ...
    @overload
    def evaluate(
        self,
        episodes: int = ...,
        seed: int = ...,
        player: str = ...,
        reason: str = ...,
        dry_run: bool = ...,
        *,
        wait_s: float,
    ) -> dict[str, Any]: ...
    def evaluate(
        self,
        episodes: int = 100,
        seed: int = 0,
        player: str = "policy",
        reason: str = "",
        dry_run: bool = False,
        wait_s: float | None = None,
    ) -> Answer | dict[str, Any]:
        """Play fresh episodes with the newest checkpoint; with `wait_s` wait for the result."""
        values = {"episodes": episodes, "seed": seed, "player": player}
        return self._job("evaluate", values, reason, dry_run, wait_s)

    @overload
    def match(
        self,
        a: str,
        b: str,
        games: int = ...,
        seed: int = ...,
        sampled: bool = ...,
        reason: str = ...,
        dry_run: bool = ...,
        wait_s: None = ...,
    ) -> Answer: ...
    @overload
    def match(
        self,
        a: str,
        b: str,
        games: int = ...,
        seed: int = ...,
        sampled: bool = ...,
        reason: str = ...,
        dry_run: bool = ...,
        *,
        wait_s: float,
    ) -> dict[str, Any]: ...
    def match(
        self,
        a: str,
        b: str,
        games: int = 100,
        seed: int = 0,
        sampled: bool = False,
        reason: str = "",
        dry_run: bool = False,
        wait_s: float | None = None,
    ) -> Answer | dict[str, Any]:
        """Let two players meet in its environment; with `wait_s` wait for the result."""
        values = {"a": a, "b": b, "games": games, "seed": seed, "sampled": sampled}
        return self._job("play-match", values, reason, dry_run, wait_s)

    def _job(
        self,
        action: str,
        values: Mapping[str, Any],
        reason: str,
        dry_run: bool,
        wait_s: float | None,
    ) -> Answer | dict[str, Any]:
        if wait_s is None or dry_run:
            return self.act(action, values, reason, dry_run)
        return self._result(action, values, reason, wait_s)

    @abstractmethod
    def _result(
        self, action: str, values: Mapping[str, Any], reason: str, wait_s: float
    ) -> dict[str, Any]:
        """What came out of a job."""


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Those that were not left out."""
    return {name: value for name, value in values.items() if value is not None}


def wait_for(
    stream: EventStream, deadline: float, matters: Callable[[Event], bool]
) -> Event | None:
    """The first event that matters; None when the time is over."""
    while (left_s := deadline - time.monotonic()) > 0:
        for event in stream.poll(left_s):
            if matters(event):
                return event
    return None


def _is_there(detail: RunDetail, wanted: Collection[str], steps: int | None) -> bool:
    return detail.status in wanted or (steps is not None and detail.env_steps >= steps)


def _matters(event: Event, steps: int | None) -> bool:
    """Whether a run may look different now to one who waits."""
    if event.channel == "events":
        return True
    return steps is not None and event.data.get("env_steps", 0) >= steps
