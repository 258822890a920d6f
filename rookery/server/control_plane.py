"""The plane: what REST, the stream, MCP and Prometheus ask, and the one way in for commands.

    run = plane.find("last")
    plane.row(run), plane.events(run, after=-1, limit=200)          # from memory: cheap
    await to_thread.run_sync(plane.detail, run)                     # slow: touches bus or disk
    await plane.submit(PauseRun(run=run, author="ann"))             # appended, and its answer

Whatever is asked that cannot be is an InputError of one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from anyio import to_thread

from rookery.config.parent import with_parent
from rookery.config.reading import LOCAL, build, placed
from rookery.control.details import config_now, make_detail
from rookery.control.diagnosis import why
from rookery.control.evaluations import evaluations
from rookery.control.find import find_run
from rookery.control.groups import make_curves, make_group, members
from rookery.control.history import History
from rookery.control.home import Home
from rookery.control.known_run import KnownRun
from rookery.control.log_pages import audit_page, event_page
from rookery.control.models import (
    Answer,
    Artifacts,
    AuditPage,
    Diagnosis,
    Environment,
    EnvironmentDetail,
    Environments,
    Evaluations,
    GroupCurves,
    GroupDetail,
    KeptMatches,
    LogLines,
    LogPage,
    Metrics,
    Nodes,
    NodeWorker,
    RunDetail,
    RunPage,
    RunRow,
    SweepDetail,
    Sweeps,
    Use,
)
from rookery.control.run_query import Found, RunQuery, find_runs
from rookery.control.run_state import ACTIVE, DELETED, RunState
from rookery.control.service import ANSWER_S, Service
from rookery.control.settings import Settings
from rookery.errors import InputError, UnknownName
from rookery.messages import JOINED_FROM, Command, Origin
from rookery.server.feed.memo import Memo
from rookery.server.http.artifacts import find_artifact, list_artifacts
from rookery.server.http.environments import Describer, seat_spaces
from rookery.server.http.logs import read_log
from rookery.server.nodes import AskNodes, NodeLook
from rookery.server.run_rows import Rows
from rookery.server.sandbox import Busy, Sandbox
from rookery.server.sweeps import SweepLook
from rookery.server.use import UseMeter

if TYPE_CHECKING:
    from rookery.server.feed.follower import Follower


WARM_RUNS, WARM_S = 16, 60.0
YOUNG_S = 0.25  # how old an answer may be that others got too


class Queue(Protocol):
    """What is asked of the fleet that carries runs in this process."""

    @property
    def queue(self) -> list[str]: ...


class ControlPlane:
    """One per process. Used from its event loop, and from threads where a method is slow."""

    def __init__(
        self,
        home: Home,
        follower: Follower,
        settings: Settings,
        *,
        fleet: Queue | None = None,
        sandbox: Sandbox | None = None,
        ask_nodes: AskNodes | None = None,
    ) -> None:
        """`fleet`: whoever carries runs in this process; None: commands wait for other owners.
        `ask_nodes`: those of the cluster that it places workers on; None: on this machine."""
        self.home, self.follower, self.settings = home, follower, settings
        self._fleet = fleet
        self._rows = Rows(follower)
        self._ordered: tuple[Mapping[str, RunState], list[KnownRun]] = ({}, [])
        self._history = History(home)
        self._details: Memo[RunDetail] = Memo(YOUNG_S)
        self._series: Memo[Metrics] = Memo(YOUNG_S)
        self._environments: list[Environment] | None = None
        self._use = UseMeter()
        self._nodes = NodeLook(ask_nodes)
        self._sweeps = SweepLook(home, follower)
        sandbox = sandbox or Sandbox(home.environment)
        self._describer = Describer(settings.allow, sandbox)
        carries = fleet is not None
        self._service = Service(home, follower, sandbox.check, settings.allow, carries)

    def warm(self) -> None:
        """Read the metrics of the newest runs, once the log is known: a million points take a
        second, which nobody should wait for who opens the first page. Slow."""
        if self.home.cluster is None and self.follower.ready.wait(WARM_S):
            self._history.warm([state.id for state in self._states()[-WARM_RUNS:]])

    # --- runs ------------------------------------------------------------------------------------

    def find(self, name: str) -> str:
        """A run's id from an id, a unique prefix of one, or `last`."""
        states = self._all()
        if (known := states.get(name)) is not None and known.desired != DELETED:
            return name
        return find_run(name, {state.id: state.name for state in self._states()})

    def rows(self) -> list[RunRow]:
        """Every run, oldest first."""
        return [self._rows.of(state) for state in self._states()]

    def row(self, run: str) -> RunRow:
        return self._rows.of(self._state(run))

    def page(self, query: RunQuery, limit: int, cursor: str = "", offset: int = 0) -> RunPage:
        """Runs as the query asks for them; `cursor` is the last page's `next`."""
        known = self._known()
        found = find_runs(query, known)
        begin = self._begin(query, found, cursor) + offset
        runs, end = found.part(query, begin, limit), begin + limit
        more = runs and end < len(found.placed)
        return RunPage.model_construct(
            runs=runs,
            next=_cursor(runs[-1], None if query.is_newest_first else end) if more else None,
            total=found.total,
            home_total=len(known),
            groups=found.groups,
        )

    def group(self, name: str) -> GroupDetail:
        """Runs that belong together, told as one."""
        return make_group(name, members(name, self.rows()))

    def group_curves(self, name: str, metric: str, points: int) -> GroupCurves:
        """Slow."""
        return make_curves(name, metric, members(name, self.rows()), self._history.metrics, points)

    def sweeps(self, limit: int) -> Sweeps:
        """Searches for a good config, the newest first. Slow."""
        self._all()
        return self._sweeps.list(limit)

    def sweep(self, name: str, limit: int) -> SweepDetail:
        """What one has found so far, by its id, a unique prefix of one, or `last`. Slow."""
        self._all()
        return self._sweeps.show(name, limit)

    def detail(self, run: str) -> RunDetail:
        """At most YOUNG_S old. Slow."""
        state = self._state(run)
        row = self._rows.of(state)
        queue = self._fleet.queue if self._fleet is not None else []
        actors = self.follower.actor_metrics(run)
        return self._details.get(
            run, (state, row), lambda: make_detail(self.home, state, row, actors, queue)
        )

    def config(self, run: str) -> dict[str, Any]:
        """The run's config as it is now."""
        state = self._state(run)
        return config_now(state, self.home.config(state))

    def why(self, run: str) -> Diagnosis:
        """What is stuck. Slow."""
        return why(self.home, self._state(run))

    def ladder(self, run: str) -> dict[str, Any]:
        """Slow."""
        from rookery.evaluation.ladder import ladder

        return ladder(self.home, self._state(run).id)

    def metrics(
        self, run: str, names: Sequence[str], points: int, start: int | None, stop: int | None
    ) -> Metrics:
        """At most YOUNG_S old. Slow."""
        state = self._state(run)
        return self._series.get(
            (run, tuple(names), points, start, stop),
            (state, self.follower.training(run)),
            lambda: self._history.metrics(run, names, points, start, stop),
        )

    def artifacts(self, run: str) -> Artifacts:
        """Slow."""
        return list_artifacts(self.home.run_dir(self._state(run).id))

    def artifact_path(self, run: str, path: str) -> Path:
        """Slow."""
        return find_artifact(self.home.run_dir(self._state(run).id), path)

    def log_lines(self, run: str, file: str, after: int, limit: int, search: str) -> LogLines:
        """Of one of the run's workers. Slow."""
        return read_log(self.artifact_path(run, f"logs/{file}"), after, limit, search)

    def use(self, run: str) -> Use:
        """What the run's workers and the machine take. Slow."""
        return self._use.of(self.detail(run).workers)

    def nodes(self) -> Nodes:
        """Where the runs of this server live. Slow."""
        if self._fleet is None and self.home.server_launcher() != LOCAL:
            why = "only the server that carries the runs is on its cluster: ask that one"
            return Nodes(launcher=self.home.server_launcher(), nodes=[], trouble=why)
        return self._nodes.look(self._at_work())

    def evaluations(self, run: str) -> Evaluations:
        """Slow."""
        return evaluations(self.follower, self._state(run).id)

    def kept_matches(self, run: str) -> KeptMatches:
        """Slow."""
        from rookery.evaluation.kept_games import kept_matches

        return kept_matches(self.home.run_dir(self._state(run).id))

    # --- the log ---------------------------------------------------------------------------------

    def events(self, run: str | None, after: int, limit: int) -> LogPage:
        """What happened, oldest first; slow where it is long ago."""
        return event_page(self.follower, run, after, limit)

    def audit(self, run: str | None, after: int, limit: int) -> AuditPage:
        """Who changed what, and what became of it; slow where it is long ago."""
        return audit_page(self.follower, run, after, limit)

    # --- the rest --------------------------------------------------------------------------------

    async def environment(self, id: str) -> EnvironmentDetail:
        """What it looks like, found in a process of its own. Takes seconds."""
        spec = await self._describer.spec(id)
        listed = await to_thread.run_sync(self._listed)
        source = "gymnasium" if ":" not in id else "code"
        known = next((e for e in listed if e.id == id), None)
        return EnvironmentDetail(
            id=id,
            source=known.source if known else source,
            description=known.description if known else "",
            seats={name: seat_spaces(seat) for name, seat in spec.seats.items()},
            simultaneous=spec.simultaneous,
            compiled=spec.compiled,
        )

    def environments(self, search: str, limit: int, offset: int) -> Environments:
        """Those that can be named; what is installed is read once. Slow."""
        wanted = search.lower()
        found = [
            e for e in self._listed() if wanted in e.id.lower() or wanted in e.description.lower()
        ]
        return Environments(environments=found[offset : offset + limit], total=len(found))

    # --- commands --------------------------------------------------------------------------------

    async def submit(self, command: Command, wait_s: float = ANSWER_S) -> Answer:
        """Append a command to the log, and wait for its answer; the same id again acts once."""
        self._all()
        return await self._service.submit(command, wait_s)

    async def dry_run(self, command: Command) -> Answer:
        """What would become of a command, judged by what is known now."""
        self._all()
        return await self._service.dry_run(command)

    async def create(
        self,
        config: dict[str, Any],
        *,
        author: str,
        reason: str = "",
        id: str,
        origin: Origin = "local",
        start: bool = True,
        dry_run: bool = False,
        labels: Mapping[str, Any] | None = None,
    ) -> Answer:
        """Create a run, once it is known what its environment looks like. Takes seconds."""
        self._all()
        who: dict[str, Any] = {"author": author, "reason": reason, "id": id, "origin": origin}
        how: dict[str, Any] = {"start": start, "dry_run": dry_run, "labels": labels}
        whole = with_parent(config, lambda name: self.config(self.find(name)))
        asked = placed(whole, self.settings.launcher)
        built = await to_thread.run_sync(build, asked)  # a large one takes a second
        return await self._service.create(built, **who, **how)

    def sent_before(self, prefix: str) -> str | None:
        """The id of a command that begins like this, if one was ever sent."""
        return self._service.sent_before(prefix)

    # --- parts -----------------------------------------------------------------------------------

    def _listed(self) -> list[Environment]:
        if self._environments is None:
            from rookery.envs.registry import search as find_all

            self._environments = [
                Environment(id=e.id, source=e.source, description=e.description) for e in find_all()
            ]
        return self._environments

    def _all(self) -> Mapping[str, RunState]:
        if not self.follower.ready.is_set():
            raise Busy("the server is starting and does not know the runs yet: try again")
        return self.follower.states

    def _states(self) -> list[RunState]:
        """Oldest first."""
        return [known.state for known in self._known()]

    def _known(self) -> list[KnownRun]:
        """Oldest first; the follower exchanges its states as a whole, so one sorting holds."""
        states, (before, runs) = self._all(), self._ordered
        if states is not before:
            kept = [state for state in states.values() if state.desired != DELETED]
            ordered = sorted(kept, key=lambda state: state.age)
            self._rows.keep(ordered)
            known = {id(run.state): run for run in runs}
            runs = [known.get(id(state)) or KnownRun(state, self._rows.of) for state in ordered]
            self._ordered = (states, runs)
        return runs

    def _begin(self, query: RunQuery, found: Found, cursor: str) -> int:
        """How many were on the pages before."""
        before = self._place(cursor)
        if before is None:
            return 0
        if not query.is_newest_first:
            return int(cursor.partition("-")[0])
        ages = [placed.run.state.age for placed in found.placed]
        return next((i for i, age in enumerate(ages) if age < before), len(ages))

    def _place(self, cursor: str) -> tuple[int, float] | None:
        """Where in the list the page before ended; its last run may have been deleted since, and of
        one that nobody knows only the time counts."""
        created_us, dash, run = cursor.partition("-")
        if cursor and not (dash and created_us.isdecimal()):
            raise InputError(f"cursor {cursor[:40]!r} is none: take `next` of the page before")
        if (state := self._all().get(run)) is not None:
            return state.age
        later = [s.age for s in self._states() if cursor and s.created_s * 1e6 >= int(created_us)]
        return min(later, default=None)

    def _at_work(self) -> Iterator[tuple[str, NodeWorker]]:
        """Every worker that lives, and the node it is on; who joined on its own did not say."""
        for state in self._states():
            if state.status not in ACTIVE or not self._rows.of(state).owner:
                continue
            for worker in state.workers.values():
                if worker.running and worker.index < JOINED_FROM:
                    who = NodeWorker(run=state.id, kind=worker.kind, index=worker.index)
                    yield worker.host, who

    def _state(self, run: str) -> RunState:
        state = self._all().get(run)
        if state is None or state.desired == DELETED:
            raise UnknownName("run", run, (), "see the list of runs")
        return state


def _cursor(row: RunRow, end: int | None) -> str:
    """Of a page's last run; `end`: how many came up to it, in an order in which runs move."""
    return f"{int(row.created_s * 1e6) if end is None else end}-{row.run}"
