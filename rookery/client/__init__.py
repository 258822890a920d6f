"""A server's runs from Python: submit, steer, watch.

    client = Client()                                       # the server of this home, or
    client = Client("https://lab.example.org", token)       # $ROOKERY_SERVER and $ROOKERY_TOKEN
    run = client.submit({"environment": {"id": "CartPole-v1"}})
    run.set(learning_rate=1e-4, reason="it diverges")
    async for event in run.events(): print(event.kind, event.data)

Every change takes `reason` and `dry_run`, and answers what it does. It acts once, however often a
broken connection makes it be sent. What the server refuses is an error of one line.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload
from urllib.parse import quote

from rookery.client.address import find_address
from rookery.client.http import Http
from rookery.client.run import RemoteRun, run_path
from rookery.client.stream import PATIENCE_S, Following, events
from rookery.client.subscription import Event, StreamSubscription

if TYPE_CHECKING:
    from rookery.config.models import RunConfig
    from rookery.control.models import Answer, AuditEntry, Environment, NewToken, RunRow, TokenView

__all__ = ["Client", "Event", "RemoteRun"]

PAGE = 200  # entries


class Client:
    """One server. Any thread may use it; close it, or use `with`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        insecure: bool = False,
    ) -> None:
        """`url` may carry `#token=...`. `insecure`: send the token unencrypted over a network."""
        self._address = find_address(url, token, insecure)
        self.http = Http(self._address, timeout_s)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return self._address.url

    def close(self) -> None:
        self.http.close()

    # --- runs ------------------------------------------------------------------------------------

    @overload
    def submit(
        self,
        config: Mapping[str, Any] | RunConfig | str | Path,
        start: bool = ...,
        reason: str = ...,
        dry_run: Literal[False] = ...,
        idempotency_key: str | None = ...,
    ) -> RemoteRun: ...
    @overload
    def submit(
        self,
        config: Mapping[str, Any] | RunConfig | str | Path,
        start: bool = ...,
        reason: str = ...,
        *,
        dry_run: Literal[True],
        idempotency_key: str | None = ...,
    ) -> Answer: ...
    def submit(
        self,
        config: Mapping[str, Any] | RunConfig | str | Path,
        start: bool = True,
        reason: str = "",
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> RemoteRun | Answer:
        """Create a run, and start it; `config`: keys as in YAML, or the path of a YAML file.

        The same `idempotency_key` again is the same run.
        """
        from rookery.control.models import Answer

        body = {"config": _plain_config(config), "start": start, "reason": reason}
        query = {"dry_run": dry_run}
        answer = self.http.change(Answer, "POST", "/runs", body, query, idempotency_key)
        return answer if dry_run else RemoteRun(self, answer.run, answer)

    def runs(self, status: str | None = None, environment: str | None = None) -> list[RunRow]:
        """Every run, newest first."""
        from rookery.control.models import RunPage

        rows: list[RunRow] = []
        query: dict[str, Any] = {"limit": PAGE, "status": status, "environment": environment}
        while True:
            page = self.http.read(RunPage, "/runs", query)
            rows += page.runs
            if page.next is None:
                return rows
            query["cursor"] = page.next

    def run(self, name: str) -> RemoteRun:
        """A run by its id, a unique prefix of it, or `last`."""
        from rookery.control.models import RunDetail

        return RemoteRun(self, self.http.read(RunDetail, run_path(name)).run)

    # --- what happens ----------------------------------------------------------------------------

    def events(
        self,
        runs: Collection[str] = ("*",),
        kinds: Collection[str] = ("events",),
        after: Mapping[str, int] | int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> AsyncIterator[Event]:
        """What happens to the runs with these ids, "*": to all, without a gap or a double.

        Kinds are events, commands, metrics and actors. `after`: the seq to go on after, by channel;
        -1: from the beginning; None: from now on.
        """
        return events(self._address, StreamSubscription(runs, kinds, after), patience_s)

    def follow(
        self,
        runs: Collection[str] = ("*",),
        kinds: Collection[str] = ("events",),
        after: Mapping[str, int] | int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Following:
        """The same without asyncio: `with client.follow() as stream: stream.poll(1.0)`."""
        return Following(self._address, StreamSubscription(runs, kinds, after), patience_s)

    def audit(self, run: str | None = None) -> list[AuditEntry]:
        """Who changed what, why, and what became of it, oldest first; of one run or of all."""
        from rookery.control.models import AuditPage

        found: list[AuditEntry] = []
        path = "/audit" if run is None else run_path(run, "/audit")
        after: int | None = -1
        while after is not None:
            page = self.http.read(AuditPage, path, {"after": after, "limit": PAGE})
            found += page.entries
            after = page.next
        return found

    # --- the rest --------------------------------------------------------------------------------

    def environments(self, search: str = "") -> list[Environment]:
        """Environments that a config can name."""
        from rookery.control.models import Environments

        found: list[Environment] = []
        while True:
            query = {"search": search, "limit": PAGE, "offset": len(found)}
            page = self.http.read(Environments, "/environments", query)
            found += page.environments
            if not page.environments or len(found) >= page.total:
                return found

    def tokens(self) -> list[TokenView]:
        from rookery.control.models import TokenList

        return self.http.read(TokenList, "/tokens").tokens

    def create_token(self, scope: str, ttl_s: float | None = None, label: str = "") -> NewToken:
        """A new token; its text is shown this once."""
        from rookery.control.models import NewToken

        body = {"scope": scope, "ttl_s": ttl_s, "label": label}
        return NewToken.model_validate(self.http.once("POST", "/tokens", body))

    def revoke_token(self, id: str) -> None:
        self.http.once("DELETE", f"/tokens/{quote(id, safe='')}")


def _plain_config(config: Mapping[str, Any] | RunConfig | str | Path) -> dict[str, Any]:
    if isinstance(config, str | os.PathLike):
        from rookery.config.reading import load_yaml

        return load_yaml(config)
    if isinstance(config, Mapping):
        return dict(config)
    return config.model_dump(mode="json")
