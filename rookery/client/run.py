"""One run of a server: what it is, what happens to it, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, overload
from urllib.parse import quote

from rookery.client.http import one_line
from rookery.client.stream import PATIENCE_S, Following
from rookery.client.subscription import Event
from rookery.errors import InputError, RookeryError, ServerFailed, TimedOut, Unreachable

if TYPE_CHECKING:
    from rookery.client import Client
    from rookery.control.models import (
        Answer,
        AuditEntry,
        Diagnosis,
        LogPage,
        Metrics,
        RunDetail,
        RunRow,
    )

ENDED = ("solved", "finished", "limited", "stopped", "failed")
LOOK_S = 5.0  # how often a run is looked at anew while nothing is heard of it


class RemoteRun:
    """One run of a server."""

    def __init__(self, client: Client, run: str, answer: Answer | None = None) -> None:
        self.id = run
        self.answer = answer  # to what created it, if we did
        self._client, self._http = client, client.http

    def __repr__(self) -> str:
        return f"RemoteRun({self.id!r} at {self._client.url})"

    # --- what it is ------------------------------------------------------------------------------

    @property
    def row(self) -> RunRow:
        """As it is now."""
        return self.detail()

    def detail(self) -> RunDetail:
        from rookery.control.models import RunDetail

        return self._http.read(RunDetail, self._path())

    def look(self) -> RunDetail | None:
        """The same; None while the server is away."""
        try:
            return self.detail()
        except (Unreachable, ServerFailed):
            return None

    def why(self) -> Diagnosis:
        """What is stuck, and its last words."""
        from rookery.control.models import Diagnosis

        return self._http.read(Diagnosis, self._path("/why"))

    def config(self) -> dict[str, Any]:
        """Its config, with everything that was changed since."""
        found: dict[str, Any] = self._http.plain(self._path("/config"))
        return found

    def ladder(self) -> dict[str, Any]:
        """Ratings of everyone who played in its league."""
        found: dict[str, Any] = self._http.plain(self._path("/ladder"))
        return found

    def metrics(
        self,
        names: Collection[str] = (),
        points: int = 500,
        start: int | None = None,
        stop: int | None = None,
    ) -> Metrics:
        """Metrics over time, thinned to so many points; `start` and `stop` in env_steps."""
        from rookery.control.models import Metrics

        query = {"names": ",".join(names), "points": points, "start": start, "stop": stop}
        return self._http.read(Metrics, self._path("/metrics"), query)

    def events_page(self, after: int = -1, limit: int = 200) -> LogPage:
        """What happened after a seq, oldest first."""
        from rookery.control.models import LogPage

        return self._http.read(LogPage, self._path("/events"), {"after": after, "limit": limit})

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
    ) -> Following:
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
                _until(stream, soon, lambda e: _matters(e, steps))
                detail = self.look() or detail
            return detail

    # --- changing it -----------------------------------------------------------------------------

    def start(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Start it; one that stopped goes on from its newest checkpoint."""
        return self.act("start", {}, reason, dry_run)

    def pause(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Hold playing and training; the workers stay in memory."""
        return self.act("pause", {}, reason, dry_run)

    def resume(self, reason: str = "", dry_run: bool = False) -> Answer:
        """Go on with a run that is paused or has stopped."""
        return self.act("resume", {}, reason, dry_run)

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
        """Change how many actors play; `learner` 0 takes the learner away, 1 brings it back.

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

    def delete(self, confirm: str, reason: str = "", dry_run: bool = False) -> Answer:
        """Forget it and remove its files for good; `confirm` is its whole id."""
        from rookery.control.models import Answer

        if confirm != self.id:
            raise InputError(f"to delete {self.id} say so: delete(confirm={self.id!r})")
        query = {"reason": reason, "dry_run": dry_run}
        return self._http.change(Answer, "DELETE", self._path(), query=query)

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
        deadline = time.monotonic() + wait_s
        with self.follow(kinds=("events",)) as stream:  # before it is asked for
            command = self.act(action, values, reason, dry_run).command
            done = _until(stream, deadline, lambda e: _is_done(e, command))
        if done is None:
            raise TimedOut(f"no result of {action} of {self.id} after {wait_s:g} s: it goes on")
        if done.data["error"]:
            raise RookeryError(f"{action} of {self.id} failed: {one_line(done.data['error'])}")
        result: dict[str, Any] = done.data["result"]
        return result

    def act(self, action: str, values: Mapping[str, Any], reason: str, dry_run: bool) -> Answer:
        from rookery.control.models import Answer

        body, query = {**values, "reason": reason}, {"dry_run": dry_run}
        return self._http.change(Answer, "POST", self._path(f"/{action}"), body, query)

    def _path(self, rest: str = "") -> str:
        return run_path(self.id, rest)


def run_path(name: str, rest: str = "") -> str:
    return f"/runs/{quote(name, safe='')}{rest}"


def _until(stream: Following, deadline: float, matters: Callable[[Event], bool]) -> Event | None:
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


def _is_done(event: Event, command: str) -> bool:
    return event.kind == "job_done" and event.data.get("command") == command
