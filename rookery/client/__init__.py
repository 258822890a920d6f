"""Runs from Python, near and far: submit, steer, watch.

    client = Client()                                       # the server of this home, or
    client = Client("https://lab.example.org", token)       # $ROOKERY_SERVER and $ROOKERY_TOKEN
    run = client.submit({"environment": {"id": "CartPole-v1"}})
    run.set(learning_rate=1e-4, reason="it diverges")
    async for event in run.events(): print(event.kind, event.data)

`LocalClient` (`client/local.py`) has the same methods for the runs of a home without a server, and
`open_client` picks the one or the other.

Every change takes `reason` and `dry_run`, and answers what it does. It acts once, however often a
broken connection makes it be sent. What the server refuses is an error of one line.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from rookery.client.address import find_address
from rookery.client.base import BaseClient, How
from rookery.client.http import Http
from rookery.client.remote import RemoteRun, run_path
from rookery.client.run import ClientRun
from rookery.client.stream import EventStream, Following, events
from rookery.client.subscription import Event, StreamSubscription
from rookery.errors import InputError

if TYPE_CHECKING:
    from rookery.client.local import LocalClient
    from rookery.control.models import (
        Answer,
        AuditPage,
        Environment,
        GroupCurves,
        GroupDetail,
        ListedRun,
        NewToken,
        TokenView,
    )
    from rookery.control.run_query import RunQuery

__all__ = ["AnyClient", "Client", "ClientRun", "Event", "RemoteRun", "open_client"]

PAGE = 200  # entries
MATCH_S = 24 * 3600.0  # for the result of a match


class Client(BaseClient[RemoteRun]):
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

    @property
    def url(self) -> str:
        return self._address.url

    def close(self) -> None:
        self.http.close()

    # --- runs ------------------------------------------------------------------------------------

    @property
    def carries(self) -> bool:
        """Whether somebody starts what is submitted."""
        return True

    def _create(
        self, config: dict[str, Any], how: dict[str, Any], dry_run: bool, key: str | None
    ) -> Answer:
        from rookery.control.models import Answer

        body = {"config": config, **how}
        return self.http.change(Answer, "POST", "/runs", body, {"dry_run": dry_run}, key)

    def _made(self, answer: Answer) -> RemoteRun:
        return RemoteRun(self, answer.run, answer)

    def _runs(self, query: RunQuery, limit: int | None) -> list[ListedRun]:
        from rookery.control.models import RunPage

        rows: list[ListedRun] = []
        asked = query.model_dump(exclude_defaults=True)
        while limit is None or len(rows) < limit:
            asked["limit"] = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = self.http.read(RunPage, "/runs", asked)
            rows += page.runs
            if page.next is None:
                break
            asked["cursor"] = page.next
        return rows

    def run(self, name: str) -> RemoteRun:
        """A run by its id, a unique prefix of it, or `last`."""
        from rookery.control.models import RunDetail

        return RemoteRun(self, self.http.read(RunDetail, run_path(name)).run)

    def group(self, name: str) -> GroupDetail:
        from rookery.control.models import GroupDetail

        return self.http.read(GroupDetail, _group_path(name))

    def group_curves(
        self, name: str, metric: str = "mean_return_100", points: int = 200
    ) -> GroupCurves:
        from rookery.control.models import GroupCurves

        query = {"metric": metric, "points": points}
        return self.http.read(GroupCurves, _group_path(name, "/metrics"), query)

    # --- what happens ----------------------------------------------------------------------------

    def _events(self, wanted: StreamSubscription, patience_s: float) -> AsyncIterator[Event]:
        return events(self._address, wanted, patience_s)

    def _stream(self, wanted: StreamSubscription, patience_s: float) -> EventStream:
        return Following(self._address, wanted, patience_s)

    def _audit_page(self, run: str | None, after: int) -> AuditPage:
        from rookery.control.models import AuditPage

        path = "/audit" if run is None else run_path(run, "/audit")
        return self.http.read(AuditPage, path, {"after": after, "limit": PAGE})

    def _match(
        self, environment: str, options: dict[str, Any], a: str, b: str, how: How
    ) -> dict[str, Any]:
        if options:
            raise InputError(
                "--env goes without --server: a server plays in a run's own environment"
            )
        names = [who.partition("@")[0] for who in (a, b) if ":" not in who]
        if not names:
            raise InputError(
                "with --server one of the two players must be a run, like last or RUN@340"
            )
        run = self.run(names[0])
        plays = run.detail().environment
        if plays != environment:
            raise InputError(f"run {run.id} plays {plays}, not {environment}")
        return run.match(a, b, *how, wait_s=MATCH_S)

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


def _group_path(name: str, rest: str = "") -> str:
    return f"/groups/{quote(name, safe='')}{rest}"


AnyClient: TypeAlias = "Client | LocalClient"


def open_client(server: str | None = None) -> AnyClient:
    """Near or far: of the server that is named, or, without one, of this home itself."""
    if server:
        return Client(server)
    from rookery.client.local import LocalClient

    return LocalClient()
