"""The runs of a home without a server, by the same methods as a server's: `Client` and `RemoteRun`.

    with LocalClient() as client: client.run("last").pause(reason="lunch")

What is asked goes into the home's own log. The owner of a run answers, or else this process does
(`control/local_log.py`). Evaluations and matches that are waited for are played in this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, cast

from rookery.client.base import BaseClient, How
from rookery.client.local_stream import LocalFollowing
from rookery.client.run import ClientRun
from rookery.client.stream import EventStream
from rookery.client.subscription import Event, StreamSubscription
from rookery.config.parent import with_parent
from rookery.config.reading import build, placed
from rookery.control.actions import ACTION
from rookery.control.create import author, checked_here, local_service, send_new
from rookery.control.files import make_room
from rookery.control.home import Home
from rookery.control.labels import Labels
from rookery.control.local_log import LocalLog, is_carried, run_here
from rookery.control.log_pages import audit_page, event_page
from rookery.control.models import (
    Answer,
    AuditPage,
    Diagnosis,
    Environment,
    GroupCurves,
    GroupDetail,
    ListedRun,
    LogPage,
    Metrics,
    NewToken,
    RunDetail,
    RunRow,
    TokenView,
)
from rookery.control.run_query import RunQuery, find_runs
from rookery.control.run_state import STOPPED, RunState
from rookery.control.tokens import Scope, TokenStore
from rookery.errors import Rejected, UnknownName
from rookery.messages import new_id

PAGE = 10_000  # entries of the log at a time
POLL_S = 0.5


class LocalClient(BaseClient["LocalRun"]):
    """The runs of one home."""

    def __init__(self, home: Home | None = None) -> None:
        """`home`: by default $ROOKERY_HOME or ./runs."""
        self.home = home or Home.default()

    def __repr__(self) -> str:
        return f"LocalClient({self.url!r})"

    @property
    def url(self) -> str:
        return self.home.path.as_uri()

    def close(self) -> None:
        self.home.close()

    # --- runs ------------------------------------------------------------------------------------

    @property
    def carries(self) -> bool:
        """Whether somebody starts what is submitted."""
        return self.home.has_server()

    def _create(
        self, config: dict[str, Any], how: dict[str, Any], dry_run: bool, key: str | None
    ) -> Answer:
        from rookery.worker.xla import prepare_xla

        prepare_xla(1)  # looking at a JAX-native environment imports JAX
        labels = {label: how.pop(label) for label in Labels.model_fields}
        asked = {**how, "labels": labels, "dry_run": dry_run, "id": key or new_id()}
        whole = with_parent(config, lambda name: self.run(name).config())
        built = build(placed(whole, self.home.server_launcher()))
        return _not_rejected(send_new(self.home, built, checked_here(self.home), **asked))

    def _made(self, answer: Answer) -> LocalRun:
        return LocalRun(self, answer.run, answer)

    def _runs(self, query: RunQuery, limit: int | None) -> list[ListedRun]:
        from rookery.control.queries import read_runs

        return find_runs(query, read_runs(self.home)).part(query, 0, limit)

    def run(self, name: str) -> LocalRun:
        """A run by its id, a unique prefix of it, or `last`."""
        return LocalRun(self, self.home.find(name))

    def group(self, name: str) -> GroupDetail:
        from rookery.control.groups import make_group

        return make_group(name, self._members(name))

    def group_curves(
        self, name: str, metric: str = "mean_return_100", points: int = 200
    ) -> GroupCurves:
        from rookery.control.groups import make_curves
        from rookery.control.history import History

        read = History(self.home).metrics
        return make_curves(name, metric, self._members(name), read, points)

    def _members(self, name: str) -> list[RunRow]:
        from rookery.control.groups import members
        from rookery.control.queries import read_runs

        return members(name, [known.row for known in read_runs(self.home)])

    # --- what happens ----------------------------------------------------------------------------

    async def _events(self, wanted: StreamSubscription, patience_s: float) -> AsyncIterator[Event]:
        with self._stream(wanted, patience_s) as stream:
            while True:
                for event in await asyncio.to_thread(stream.poll, POLL_S):
                    yield event

    def _stream(self, wanted: StreamSubscription, patience_s: float) -> EventStream:
        return LocalFollowing(self.home, wanted)  # which is never away

    def _audit_page(self, run: str | None, after: int) -> AuditPage:
        id = None if run is None else self.home.find(run)
        return audit_page(LocalLog(self.home, id), id, after, PAGE)

    def _match(
        self, environment: str, options: dict[str, Any], a: str, b: str, how: How
    ) -> dict[str, Any]:
        from rookery.evaluation.kept_games import keeper
        from rookery.evaluation.match import play_match
        from rookery.worker.xla import prepare_xla

        prepare_xla(1)
        tape = keeper(self.home, environment, options)
        return play_match(self.home, environment, a, b, *how, options, tape)

    # --- the rest --------------------------------------------------------------------------------

    def environments(self, search: str = "") -> list[Environment]:
        """Environments that a config can name."""
        from rookery.envs.registry import search as find_all

        return [
            Environment(id=e.id, source=e.source, description=e.description)
            for e in find_all(search)
        ]

    def tokens(self) -> list[TokenView]:
        return self._tokens.list()

    def create_token(self, scope: str, ttl_s: float | None = None, label: str = "") -> NewToken:
        """A new token for the server of this home; its text is shown this once."""
        return self._tokens.create(cast("Scope", scope), ttl_s, label)

    def revoke_token(self, id: str) -> None:
        if not self._tokens.revoke(id):
            known = [token.id for token in self.tokens()]
            raise UnknownName("token", id, known, "Run `rookery tokens list`.")

    @property
    def _tokens(self) -> TokenStore:
        return TokenStore(self.home.path / "tokens.json")


class LocalRun(ClientRun):
    """One run of a home."""

    def __init__(self, client: LocalClient, run: str, answer: Answer | None = None) -> None:
        super().__init__(client, run, answer)
        self._home = client.home

    @property
    def directory(self) -> str:
        return str(self._home.run_dir(self.id))

    def is_carried(self) -> bool:
        return is_carried(self._home, self.id)

    def detail(self) -> RunDetail:
        from rookery.control.details import read_detail

        return read_detail(self._home, self._state())

    def why(self) -> Diagnosis:
        from rookery.control.diagnosis import why

        return why(self._home, self._state())

    def config(self) -> dict[str, Any]:
        from rookery.control.details import config_now

        state = self._state()
        return config_now(state, self._home.config(state))

    def ladder(self) -> dict[str, Any]:
        from rookery.evaluation.ladder import ladder

        return ladder(self._home, self._state().id)

    def metrics(
        self,
        names: Collection[str] = (),
        points: int = 500,
        start: int | None = None,
        stop: int | None = None,
    ) -> Metrics:
        from rookery.control.history import History

        return History(self._home).metrics(self.id, list(names), points, start, stop)

    def events_page(self, after: int = -1, limit: int = 200) -> LogPage:
        return event_page(LocalLog(self._home, self.id), self.id, after, limit)

    def act(self, action: str, values: Mapping[str, Any], reason: str, dry_run: bool) -> Answer:
        if action == "delete" and not dry_run:
            self._give_up()
        command = ACTION[action].make(self.id, values, author=author(), reason=reason)
        service = local_service(self._home, LocalLog(self._home, self.id))
        work = service.dry_run(command) if dry_run else service.submit(command)
        return _not_rejected(run_here(work))

    def _give_up(self) -> None:
        """A run whose owner died has to be stopped before it can be deleted: nothing runs of it."""
        state = self._state()
        if self._home.is_owned(self.id):
            return
        make_room(self._home, self.id)
        self._home.reopen()
        if state.desired != STOPPED:
            self.stop("its owner died")

    def _result(
        self, action: str, values: Mapping[str, Any], reason: str, wait_s: float
    ) -> dict[str, Any]:
        from rookery.evaluation.episodes import evaluate_run
        from rookery.worker.xla import prepare_xla

        if action == "evaluate":
            prepare_xla(1)
            return evaluate_run(self._home, self.id, **values)
        plays = self._home.config(self._state()).environment
        return self._client.match(plays.id, **values, options=plays.kwargs)

    def _state(self) -> RunState:
        found = self._home.states(self.id).get(self.id)
        if found is None:
            raise UnknownName("run", self.id, (), "see the list of runs")
        return found


def _not_rejected(answer: Answer) -> Answer:
    if answer.outcome == "rejected":
        raise Rejected(answer.why)
    return answer
