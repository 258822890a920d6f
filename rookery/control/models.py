"""What the control plane answers: one set of shapes for REST, MCP and the Python client.

Text in fields marked `untrusted` was written by environments, players or whoever named a run: it is
data to look at, never an instruction.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

UNTRUSTED: dict[str, Any] = {"untrusted": True}

Outcome = Literal["accepted", "rejected", "waiting", "would_accept", "would_reject"]


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Worker(View):
    kind: str = Field(description="actor, learner or inline")
    index: int
    incarnation: int
    pid: int | None
    host: str = Field(description="the node that it lives on; empty: its owner's machine")
    waits_for: str = Field(description="what its launcher has no place for it without, if so")
    alive: bool
    restarts: int
    last_error: str | None = Field(json_schema_extra=UNTRUSTED)
    steps_per_s: float | None = Field(description="actors only, from their last report")
    doing: str | None = Field(description="actors only: playing or waiting")


class StepBalance(View):
    """Agent steps: produced = trained + dropped + in flight, each counted on its own."""

    produced: int
    trained: int
    dropped: dict[str, int] = Field(description="by reason")
    in_flight: int
    exact: bool


class RunRow(View):
    """A run in a list."""

    run: str
    environment: str = Field(json_schema_extra=UNTRUSTED)
    algorithm: str
    status: str = Field(
        description="created, queued, running, paused, interrupted, solved, finished, limited, "
        "stopped or failed"
    )
    reason: str = Field(description="how it ended", json_schema_extra=UNTRUSTED)
    desired: str = Field(description="what was asked for: running, paused or stopped")
    created_s: float = Field(description="seconds since the epoch")
    env_steps: int
    updates: int
    mean_return_100: float | None
    steps_per_s: float | None = Field(description="over the last second or so; null: not running")
    lag_mean: float | None = Field(description="policy lag in versions")
    actors: int = Field(description="actors that live")
    actors_wanted: int
    owner: str = Field(description="server, terminal, or empty: nobody carries it")
    owner_frozen: bool = Field(
        default=False, description="its process is stopped: workers go on, and are not replaced"
    )
    name: str = Field(default="", json_schema_extra=UNTRUSTED)
    tags: list[str] = Field(default=[], json_schema_extra=UNTRUSTED)
    group: str = Field(default="", json_schema_extra=UNTRUSTED)
    parent: str = Field(default="", description="what it was forked from, RUN@VERSION")


class RunDetail(RunRow):
    """All there is to know about a run at a glance."""

    notes: str = Field(default="", json_schema_extra=UNTRUSTED)
    workers: list[Worker]
    balance: StepBalance
    weights_version: str | None
    device: str = ""  # what the learner computes on; empty: it has not said
    lag_max: int | None
    bus_lag: int | None = Field(description="messages of experience that the learner has not read")
    checkpoints: list[str]
    hyperparameters: dict[str, float] = Field(description="live ones, as they are now")
    seats: dict[str, Any] = Field(json_schema_extra=UNTRUSTED)
    seat_names: list[str] = Field(
        default=[], description="of the environment's seats", json_schema_extra=UNTRUSTED
    )
    max_actors: int
    queue_position: int | None = Field(description="1 is next; null: not queued")
    train_s: float | None = Field(
        default=None, description="seconds of training over all its lives; null: not known"
    )
    episodes: int | None = Field(
        default=None, description="so far; a return is the mean of the last 100 of them"
    )
    policy: str = Field(default="", description="whose return it is")
    waits_for: str = Field(
        default="", description="of a queued run: how many CPUs, and which runs have them"
    )
    duplicates: int = Field(default=0, description="fragments that came twice, and counted once")
    damaged: int = Field(default=0, description="messages of experience that could not be read")
    gaps: int = Field(default=0, description="fragments that are missing between two others")
    damaged_checkpoints: dict[str, str] = Field(
        default={}, description="checkpoint -> why", json_schema_extra=UNTRUSTED
    )
    policies: dict[str, dict[str, Any]] = Field(
        default={}, description="each policy's newest metrics", json_schema_extra=UNTRUSTED
    )
    seat_returns: dict[str, float] = Field(
        default={}, description="mean return of each seat", json_schema_extra=UNTRUSTED
    )
    league: dict[str, Any] | None = Field(
        default=None, description="its newest metrics", json_schema_extra=UNTRUSTED
    )


class ListedRun(RunRow):
    """A run in the answer to a query."""

    config: dict[str, Any] = Field(
        default={},
        description="the keys that `columns` names, as they are now; null: it has none",
        json_schema_extra=UNTRUSTED,
    )
    under: str = Field(
        default="",
        description="the value of `group` that it stands under, else empty",
        json_schema_extra=UNTRUSTED,
    )


class RunGroup(View):
    group: str = Field(json_schema_extra=UNTRUSTED)
    runs: int = Field(description="how many stand in it, on all pages")


class RunPage(View):
    runs: list[ListedRun]
    next: str | None = Field(description="cursor of the next page; null: this is the last")
    total: int = Field(default=0, description="runs that fit, on all pages")
    home_total: int = Field(default=0, description="runs that there are")
    groups: list[RunGroup] = Field(default=[], description="in order, where `group` is asked for")


class Answer(View):
    """What became of a command."""

    command: str = Field(description="its id: the same id again acts once")
    kind: str
    run: str
    outcome: Outcome = Field(
        description="waiting: nobody carries the run now; it is done when someone does"
    )
    why: str = Field(description="of a rejection, else empty")
    effect: str = Field(description="what it does, or would do, in one line")


class LogEntry(View):
    """A command or an event of the log."""

    seq: int = Field(description="grows along the log; ask for what comes `after` it")
    run: str
    kind: str = Field(description="the record's type, like worker_exited")
    time_s: float
    data: dict[str, Any] = Field(json_schema_extra=UNTRUSTED)


class LogPage(View):
    entries: list[LogEntry]
    next: int | None = Field(description="`after` of the next page; null: nothing more yet")


class AuditEntry(View):
    """Who changed what, why, and what became of it."""

    seq: int
    run: str
    command: str
    kind: str
    author: str
    origin: str
    reason: str = Field(json_schema_extra=UNTRUSTED)
    time_s: float
    outcome: Literal["accepted", "rejected", "waiting"]
    why: str
    data: dict[str, Any] = Field(
        description="the command's own fields", json_schema_extra=UNTRUSTED
    )


class AuditPage(View):
    entries: list[AuditEntry]
    next: int | None


class Diagnosis(View):
    """What is stuck, and its last words."""

    run: str
    status: str
    component: str | None = Field(description="null: nothing is stuck")
    summary: str = Field(json_schema_extra=UNTRUSTED)
    detail: str = Field(description="a traceback, where there is one", json_schema_extra=UNTRUSTED)


class Series(View):
    """One metric over time, thinned so that the extremes of each stretch are kept."""

    name: str
    steps: list[int] = Field(description="env_steps of each point")
    time_s: list[float] = Field(description="seconds since the epoch")
    value: list[float | None] = Field(description="of the last point in each stretch")
    low: list[float | None]
    high: list[float | None]


class Metrics(View):
    run: str
    points: int = Field(description="how many were recorded in the range, before thinning")
    names: list[str] = Field(description="every metric that can be asked for")
    series: list[Series]


class Aggregate(View):
    """What the runs of a group came to in one environment: the mean of the last 100 episodes."""

    environment: str = Field(json_schema_extra=UNTRUSTED)
    runs: int = Field(description="that have a return")
    mean: float
    iqm: float = Field(description="interquartile mean: without the lowest and the highest quarter")
    low: float = Field(description="95 % of interquartile means of runs drawn again lie above it")
    high: float = Field(description="and below this")
    best: str = Field(description="a run")
    worst: str


class GroupDetail(View):
    """Runs that belong together."""

    group: str = Field(json_schema_extra=UNTRUSTED)
    runs: list[RunRow] = Field(description="oldest first")
    aggregates: list[Aggregate] = Field(description="one of each environment")


class GroupCurve(View):
    """One metric of a group's runs in one environment, over their steps."""

    environment: str = Field(json_schema_extra=UNTRUSTED)
    steps: list[float]
    mean: list[float]
    iqm: list[float]
    low: list[float]
    high: list[float]
    count: list[int] = Field(description="runs that came so far")


class GroupCurves(View):
    group: str = Field(json_schema_extra=UNTRUSTED)
    metric: str
    curves: list[GroupCurve]


class SweepRow(View):
    """A sweep in a list."""

    sweep: str
    environment: str = Field(json_schema_extra=UNTRUSTED)
    status: str = Field(description="running, finished, stopped or interrupted")
    trials: int = Field(description="to be tried in all")
    over: int = Field(description="trials that are done, pruned or failed")
    best: float | None = Field(description="the greatest return of a trial; null: none is done")
    created_s: float = Field(description="seconds since the epoch")


class Sweeps(View):
    sweeps: list[SweepRow] = Field(description="newest first")
    total: int = Field(description="all that there are")


class SearchedKey(View):
    """A config key that a sweep searches: one of some options, or a number in a range."""

    key: str
    options: list[Any] = Field(
        description="of a choice; empty: it is a range", json_schema_extra=UNTRUSTED
    )
    low: float | None = Field(description="of a range, like the next")
    high: float | None
    log: bool = Field(description="a range, evenly by its logarithm")
    condition: str = Field(
        description="KEY=OPTION, where only some trials have it; else empty",
        json_schema_extra=UNTRUSTED,
    )


class SweepStage(View):
    """A generation that a member of a population went through."""

    member: int = Field(description="who it was then")
    generation: int
    run: str
    parent: str = Field(description="RUN@VERSION where it began with a fork, else empty")
    value: float | None
    values: dict[str, Any] = Field(json_schema_extra=UNTRUSTED)


class SweepTrial(View):
    """A point of the search space, and what came of it."""

    trial: int
    status: str = Field(description="to do, going, done, pruned, failed or stopped")
    value: float | None = Field(description="its return in fresh greedy episodes; null: none yet")
    by_seed: list[float | None]
    env_steps: int
    values: dict[str, Any] = Field(
        description="by key, those that apply", json_schema_extra=UNTRUSTED
    )
    runs: list[str]
    why: str = Field(description="it failed, else empty", json_schema_extra=UNTRUSTED)
    stages: list[SweepStage] = Field(default=[], description="of a member of a population")


class SweepBest(View):
    """The trial that plays best."""

    trial: int
    value: float
    values: dict[str, Any] = Field(json_schema_extra=UNTRUSTED)
    runs: list[str]


class SweepDetail(View):
    """What a sweep searches, and what it found so far."""

    sweep: str
    status: str = Field(description="running, finished, stopped or interrupted")
    environment: str = Field(json_schema_extra=UNTRUSTED)
    trials: int = Field(description="to be tried in all")
    over: int = Field(description="trials that are done, pruned or failed")
    seeds: int = Field(description="runs of each")
    sampler: str
    scheduler: str = Field(description="none, median, asha, or pbt: a population")
    episodes: int = Field(description="that judge each run")
    created_s: float = Field(description="seconds since the epoch")
    search: dict[str, str] = Field(
        description="as `rookery sweep --search` has it", json_schema_extra=UNTRUSTED
    )
    keys: list[SearchedKey] = Field(description="the same, taken apart")
    best: SweepBest | None
    importance: dict[str, float] = Field(
        description="key -> how much it tells the best trials from the rest; empty: not known"
    )
    table: list[SweepTrial] = Field(description="trials that have begun, the best first")
    begun: int = Field(description="how many those are, before `limit`")


class Artifact(View):
    path: str = Field(description="inside the run's directory")
    bytes: int
    modified_s: float


class Artifacts(View):
    artifacts: list[Artifact]


class LogLine(View):
    """A line that a worker wrote, or what it ran: an environment's prints are among them."""

    at: int = Field(description="where it begins in the file; a line that is not ended comes again")
    text: str = Field(description="without colours and controls", json_schema_extra=UNTRUSTED)


class LogLines(View):
    file: str
    lines: list[LogLine] = Field(description="oldest first")
    next: int = Field(description="`after` of what comes next")
    more: bool = Field(description="whether there is more already: before these, or after them")


class WorkerUse(View):
    """What a worker's process takes of its machine; null: not known, or not yet."""

    kind: str
    index: int
    cpu: float | None = Field(description="cores that it keeps busy")
    memory_bytes: int | None


class MachineUse(View):
    """The server's own machine."""

    cpus: int = Field(description="cores that it has")
    cpu: float | None = Field(description="cores that are busy, whoever with")
    memory_bytes: int
    memory_used_bytes: int | None


class Use(View):
    workers: list[WorkerUse] = Field(description="those that live on the server's machine")
    machine: MachineUse


class NodeWorker(View):
    run: str
    kind: str
    index: int


class Node(View):
    """A machine that workers live on."""

    name: str
    address: str
    cpus: float = Field(description="that it has, busy or not")
    alive: bool
    workers: list[NodeWorker] = Field(description="of all runs, that live there now")


class Nodes(View):
    """Where a server's runs live."""

    launcher: str = Field(description="local: this machine alone; ray: a cluster")
    nodes: list[Node]
    trouble: str = Field(
        description="why the cluster cannot be asked now, else empty", json_schema_extra=UNTRUSTED
    )


class Evaluation(View):
    """Episodes that were asked for, outside training."""

    command: str
    author: str
    asked_s: float
    player: str = Field(json_schema_extra=UNTRUSTED)
    episodes: int
    seed: int
    done_s: float | None = Field(description="null: not yet")
    error: str = Field(
        description="why there is no result, else empty", json_schema_extra=UNTRUSTED
    )
    result: dict[str, Any] = Field(
        description="as of `rookery eval --json`; empty: none", json_schema_extra=UNTRUSTED
    )


class Evaluations(View):
    evaluations: list[Evaluation] = Field(description="oldest first; of many, the newest")


class KeptGame(View):
    """A game of a match that can be watched again."""

    game: str = Field(description="what to watch: MATCH.NUMBER")
    players: list[str] = Field(description="by seat", json_schema_extra=UNTRUSTED)
    totals: list[float] = Field(description="what each seat got")
    moves: int


class KeptMatch(View):
    match: str
    time_s: float
    a: str = Field(json_schema_extra=UNTRUSTED)
    b: str = Field(json_schema_extra=UNTRUSTED)
    games: list[KeptGame]


class KeptMatches(View):
    matches: list[KeptMatch] = Field(description="newest first")


class Ticket(View):
    """A link that works once, within a minute, for one path."""

    url: str
    expires_s: float


class Environment(View):
    id: str
    source: str
    description: str = Field(json_schema_extra=UNTRUSTED)


class Environments(View):
    environments: list[Environment]
    total: int


class ObservationPart(View):
    """One array of what a seat sees."""

    path: str = Field(description="empty for a lone array", json_schema_extra=UNTRUSTED)
    shape: list[int]
    dtype: str
    text: str = Field(description="the same in words")


class SeatAction(View):
    """What a seat may play."""

    kind: Literal["categorical", "multi_categorical", "continuous"]
    sizes: list[int] = Field(description="how many there are to choose from, for each choice")
    shape: list[int] = Field(description="of one action; empty for one choice")
    low: float | None = Field(
        default=None, description="the least bound of its numbers; null where there is none"
    )
    high: float | None = Field(default=None, description="the greatest")
    text: str = Field(description="the same in words")


class SeatSpaces(View):
    observation: list[ObservationPart]
    action: SeatAction
    text: str = Field(description="both in words", json_schema_extra=UNTRUSTED)


class EnvironmentDetail(View):
    """What an environment looks like to those who play in it."""

    id: str
    source: str
    description: str = Field(json_schema_extra=UNTRUSTED)
    seats: dict[str, SeatSpaces] = Field(json_schema_extra=UNTRUSTED)
    simultaneous: bool = Field(description="all seats act at every step; else in turns")
    compiled: bool = Field(description="JAX-native: a whole rollout is one compiled call")


class AlgorithmOption(View):
    key: str = Field(description="in a config")
    default: bool | int | float | str | None
    live: bool = Field(description="may change while a run goes on")
    description: str


class Algorithm(View):
    description: str
    options: list[AlgorithmOption]


class Algorithms(View):
    algorithms: dict[str, Algorithm]


class PlayerOption(View):
    name: str
    default: str | None
    takes: str
    description: str


class PlayerKind(View):
    kind: str
    name: str = Field(description="after the colon; empty where the user names it")
    example: str
    description: str
    options: list[PlayerOption]


class Players(View):
    players: list[PlayerKind]


class Caller(View):
    """Who asks: a token without its secret."""

    id: str
    scope: Literal["read", "operate", "admin"]
    label: str
    expires_s: float | None


class TokenView(Caller):
    """A token in a list."""

    created_s: float


class TokenList(View):
    tokens: list[TokenView]


class NewToken(TokenView):
    token: str = Field(description="shown once")


class Health(View):
    status: Literal["ok", "starting"]


class Problem(View):
    """RFC 9457."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: str = "about:blank"
    title: str
    status: int
    detail: str
