"""What a client is, near or far: what its methods take and give, once."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeAlias, TypeVar, overload

from rookery.client.run import ClientRun
from rookery.client.stream import PATIENCE_S, EventStream
from rookery.client.subscription import Event, StreamSubscription
from rookery.config.code import refuse_while_imported

if TYPE_CHECKING:
    from rookery.config.models import RunConfig
    from rookery.control.models import (
        Answer,
        AuditEntry,
        AuditPage,
        GroupCurves,
        GroupDetail,
        ListedRun,
    )
    from rookery.control.run_query import RunQuery

R = TypeVar("R", bound=ClientRun)
ConfigLike: TypeAlias = "Mapping[str, Any] | RunConfig | str | Path"
How = tuple[int, int, bool]  # games, seed, whether runs play by chance


class BaseClient(ABC, Generic[R]):
    """Any thread may use it; close it, or use `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    @overload
    def submit(
        self,
        config: ConfigLike,
        start: bool = ...,
        reason: str = ...,
        dry_run: Literal[False] = ...,
        idempotency_key: str | None = ...,
        name: str = ...,
        tags: Collection[str] = ...,
        notes: str = ...,
        group: str = ...,
    ) -> R: ...
    @overload
    def submit(
        self,
        config: ConfigLike,
        start: bool = ...,
        reason: str = ...,
        *,
        dry_run: Literal[True],
        idempotency_key: str | None = ...,
        name: str = ...,
        tags: Collection[str] = ...,
        notes: str = ...,
        group: str = ...,
    ) -> Answer: ...
    def submit(
        self,
        config: ConfigLike,
        start: bool = True,
        reason: str = "",
        dry_run: bool = False,
        idempotency_key: str | None = None,
        name: str = "",
        tags: Collection[str] = (),
        notes: str = "",
        group: str = "",
    ) -> R | Answer:
        """Create a run, and start it; `config`: keys as in YAML, or the path of a YAML file.

        `name`, `tags`, `notes` and `group` are for people, to find it by. One that names a `parent`
        and no environment is that run's config, with changes. The same `idempotency_key` again is
        the same run.
        """
        from rookery.control.create import labels_of

        refuse_while_imported("submit")
        how = {"start": start, "reason": reason, **labels_of(name, tags, notes, group)}
        answer = self._create(_plain(config), how, dry_run, idempotency_key)
        return answer if dry_run else self._made(answer)

    def runs(
        self,
        status: str | None = None,
        environment: str | None = None,
        *,
        search: str = "",
        tag: str = "",
        sort: str = "created",
        order: str = "",
        columns: Collection[str] = (),
        limit: int | None = None,
    ) -> list[ListedRun]:
        """Every run, newest first, or those that are asked for, as `rookery.control.run_query` has
        it: runs(search="nightly return>400", sort="learning_rate", columns=["seed"])."""
        from rookery.control.run_query import run_query

        asked = {"search": search, "tag": tag, "sort": sort, "order": order}
        wanted = {"status": status or "", "environment": environment or ""}
        return self._runs(run_query(**asked, **wanted, columns=",".join(columns)), limit)

    @abstractmethod
    def group(self, name: str) -> GroupDetail:
        """Runs that belong together, and what they came to."""

    @abstractmethod
    def group_curves(
        self, name: str, metric: str = "mean_return_100", points: int = 200
    ) -> GroupCurves:
        """One metric of all of them as one curve with a band."""

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
        return self._events(StreamSubscription(runs, kinds, after), patience_s)

    def follow(
        self,
        runs: Collection[str] = ("*",),
        kinds: Collection[str] = ("events",),
        after: Mapping[str, int] | int | None = None,
        patience_s: float = PATIENCE_S,
    ) -> EventStream:
        """The same without asyncio: `with client.follow() as stream: stream.poll(1.0)`."""
        return self._stream(StreamSubscription(runs, kinds, after), patience_s)

    def audit(self, run: str | None = None) -> list[AuditEntry]:
        """Who changed what, why, and what became of it, oldest first; of one run or of all."""
        found: list[AuditEntry] = []
        after: int | None = -1
        while after is not None:
            page = self._audit_page(run, after)
            found += page.entries
            after = page.next
        return found

    def match(
        self,
        environment: str,
        a: str,
        b: str,
        games: int = 100,
        seed: int = 0,
        sampled: bool = False,
        options: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Let two players meet, both ways round: `last`, `RUN@340`, `script:random` ...

        A server plays in the environment of the first of them that is a run, without `options`.
        """
        return self._match(environment, dict(options or {}), a, b, (games, seed, sampled))

    # --- where they differ -----------------------------------------------------------------------

    @abstractmethod
    def _create(
        self, config: dict[str, Any], how: dict[str, Any], dry_run: bool, key: str | None
    ) -> Answer: ...

    @abstractmethod
    def _made(self, answer: Answer) -> R: ...

    @abstractmethod
    def _runs(self, query: RunQuery, limit: int | None) -> list[ListedRun]: ...

    @abstractmethod
    def _events(self, wanted: StreamSubscription, patience_s: float) -> AsyncIterator[Event]: ...

    @abstractmethod
    def _stream(self, wanted: StreamSubscription, patience_s: float) -> EventStream: ...

    @abstractmethod
    def _audit_page(self, run: str | None, after: int) -> AuditPage: ...

    @abstractmethod
    def _match(
        self, environment: str, options: dict[str, Any], a: str, b: str, how: How
    ) -> dict[str, Any]: ...


def _plain(config: ConfigLike) -> dict[str, Any]:
    if isinstance(config, str | os.PathLike):
        from rookery.config.reading import load_yaml

        return load_yaml(config)
    if isinstance(config, Mapping):
        return dict(config)
    return config.model_dump(mode="json")
