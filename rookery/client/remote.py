"""One run of a server, over HTTP."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rookery.client.run import ClientRun, wait_for
from rookery.client.subscription import Event
from rookery.errors import RookeryError, TimedOut
from rookery.foreign import one_line

if TYPE_CHECKING:
    from rookery.client import Client
    from rookery.control.models import Answer, Diagnosis, LogPage, Metrics, RunDetail


class RemoteRun(ClientRun):
    """One run of a server."""

    def __init__(self, client: Client, run: str, answer: Answer | None = None) -> None:
        super().__init__(client, run, answer)
        self._http = client.http

    @property
    def directory(self) -> str:
        """Where its files are."""
        return f"at {self._client.url}"

    def is_carried(self) -> bool:
        """Whether somebody sees to it now, or will at once."""
        return self._client.carries

    def detail(self) -> RunDetail:
        from rookery.control.models import RunDetail

        return self._http.read(RunDetail, self._path())

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

    def act(self, action: str, values: Mapping[str, Any], reason: str, dry_run: bool) -> Answer:
        from rookery.control.models import Answer

        body, query = {**values, "reason": reason}, {"dry_run": dry_run}
        return self._http.change(Answer, "POST", self._path(f"/{action}"), body, query)

    def _result(
        self, action: str, values: Mapping[str, Any], reason: str, wait_s: float
    ) -> dict[str, Any]:
        deadline = time.monotonic() + wait_s
        with self.follow(kinds=("events",)) as stream:  # before it is asked for
            command = self.act(action, values, reason, dry_run=False).command
            done = wait_for(stream, deadline, lambda e: _is_done(e, command))
        if done is None:
            raise TimedOut(f"no result of {action} of {self.id} after {wait_s:g} s: it goes on")
        if done.data["error"]:
            raise RookeryError(f"{action} of {self.id} failed: {one_line(done.data['error'])}")
        result: dict[str, Any] = done.data["result"]
        return result

    def _path(self, rest: str = "") -> str:
        return run_path(self.id, rest)


def run_path(name: str, rest: str = "") -> str:
    return f"/runs/{quote(name, safe='')}{rest}"


def _is_done(event: Event, command: str) -> bool:
    return event.kind == "job_done" and event.data.get("command") == command
