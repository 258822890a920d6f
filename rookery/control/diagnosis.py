"""What is stuck, and its last words: `rookery why`. Without I/O, but for `why` itself."""

from __future__ import annotations

from typing import NamedTuple

from rookery.control.evidence import Evidence, gather
from rookery.control.home import Home
from rookery.control.models import Diagnosis
from rookery.control.queries import STALE_S
from rookery.control.run_state import RunState, WorkerState
from rookery.messages import DIVERGED, JOINED_FROM

GONE_S = 600.0  # after which nobody expects an actor back that joined on its own
SKEW_S = 60.0  # by which clocks of two machines may differ
LATELY_S = 60.0  # in which an error's last words are still of interest
STARTING_S = 15.0  # to import, connect and compile, before silence is worth a word


class Finding(NamedTuple):
    component: str | None  # None: nothing is stuck
    summary: str  # one line
    detail: str = ""  # its last words


def why(home: Home, state: RunState) -> Diagnosis:
    """Name what is stuck."""
    evidence = gather(home, state)
    found = diagnose(evidence)
    return Diagnosis(
        run=state.id,
        status=evidence.status,
        component=found.component,
        summary=found.summary,
        detail=found.detail,
    )


def diagnose(found: Evidence) -> Finding:
    """The first cause that explains the rest."""
    state, run = found.state, found.state.id
    worst = _worst(state)
    words = worst.last_detail if worst else ""
    if found.status == "failed":
        name = f"{worst.kind}-{worst.index}" if worst else "learner"  # who alone says so itself
        return Finding(name, f"{run} failed: {state.reason}", words)
    if found.status == "interrupted":
        full = ", and the disk is full: make room" if found.is_full else ""
        again = f"Go on with: rookery resume {run}"
        return Finding("owner", f"{run} has no owner: its process died{full}. {again}")
    if found.status == "queued" and found.has_server:
        wanted = found.waits_for or "its server to start it"
        return Finding("cpus", f"{run} waits for {wanted}. Stop one, or add cpus")
    if found.status == "queued":
        return Finding("server", f"{run} waits for {found.waits_for}")
    if found.status != "running":
        reason = f", {state.reason}" if state.reason else ""
        return Finding(None, f"{run} does not run: {found.status}{reason}")
    stuck = _bus_away(found) or _frozen(found) or _starting(found) or _unstaffed(found)
    stuck = stuck or _lasting(found) or _unheard(found, words) or _missing(found)
    return stuck or _starved(found, words) or _well(found, worst)


def _worst(state: RunState) -> WorkerState | None:
    troubled = [w for w in state.workers.values() if w.last_error]
    return max(troubled, key=lambda w: (w.failed_for_good, w.error_s), default=None)


def _frozen(found: Evidence) -> Finding | None:
    """Whoever makes no progress; the owner first, as nobody replaces workers without it."""
    if found.owner is not None:
        run, pid = found.state.id, found.owner_pid
        takes = "rookery serve" if found.state.owned_by == "server" else f"rookery resume {run}"
        return Finding(
            "owner",
            f"the process that carries {run} is {found.owner} (pid {pid}): workers go on, and are "
            f"not replaced. Let it go on with kill -CONT {pid}, or take over with {takes}",
        )
    for name, silence in found.silent.items():
        replaced = f"it is replaced after {found.silent_s:g} s"
        if not _is_ours(found.state.workers[name]):
            replaced = "it joined on its own: nobody replaces it"
        host, pid = found.state.workers[name].host, found.progress[name].pid
        place = f"on {host}" if host else f"pid {pid}"
        return Finding(name, f"{name} is {silence} ({place}): {replaced}")
    return None


def _starting(found: Evidence) -> Finding | None:
    """In the first seconds nobody has anything to report, and that is no alarm."""
    state, workers = found.state, _wanted(found.state).values()
    since = max([w.started_s for w in workers if w.running], default=state.queued_s)
    metrics = found.metrics  # a learner reports at once; its actors may still compile
    heard = metrics is not None and metrics.time_s > since and metrics.recent_steps_per_s > 0
    troubled = found.trouble or found.same_s or any(w.last_error or w.waits_for for w in workers)
    if heard or troubled or not state.learners or not state.actors_wanted:
        return None
    age_s = abs(found.now - since)  # a clock may have been set back
    return Finding(None, f"{state.id} is starting") if age_s < STARTING_S else None


def _unstaffed(found: Evidence) -> Finding | None:
    """Somebody who should work and does not."""
    state, run = found.state, found.state.id
    for name, worker in _wanted(state).items():
        if not worker.running:
            return _down(name, worker)
    if state.learners == 0:
        again = f"rookery scale {run} --learner 1"
        return Finding(
            "learner", f"nobody learns: {run} was scaled to 0 learners. Go on with: {again}"
        )
    if state.actors_wanted == 0 and all(w.kind != "actor" for w in _wanted(state).values()):
        again = f"rookery scale {run} --actors 1"
        return Finding("actors", f"nobody plays: {run} was scaled to 0 actors. Go on with: {again}")
    return None


def _down(name: str, worker: WorkerState) -> Finding:
    """With its error, unless that is one of an earlier life: whoever takes a run up again starts
    workers that were well."""
    if worker.waits_for:
        return Finding(name, f"{name} waits for {worker.waits_for}")
    died = worker.incarnation - (worker.pid is None)  # or the next life is being started already
    if worker.error_of != died:
        return Finding(name, f"{name} is being started")
    error = worker.last_error or "no error was reported"
    summary = f"{name} is down and will be started again; last error: {error}"
    return Finding(name, summary, worker.last_detail)


def _bus_away(found: Evidence) -> Finding | None:
    """First of all: whoever waits for it, the owner too, gives no sign of life."""
    return Finding("bus", f"waiting for the bus: {found.trouble}") if found.trouble else None


def _lasting(found: Evidence) -> Finding | None:
    """Whoever gives signs of life, and is at one thing for long; the longest first."""
    for name, seconds in sorted(found.same_s.items(), key=lambda each: -each[1]):
        doing, pid = _doing_text(found.progress[name].doing), found.progress[name].pid
        host = found.state.workers[name].host
        place = f"on {host}" if host else f"pid {pid}"
        summary = f"{name} has been {doing} for {seconds:.0f} s ({place}): it is slow or hangs"
        return Finding(name, summary + _ended_before(found, name))
    return None


def _is_stale(said_s: float, now: float) -> bool:
    """Clocks of two machines differ a little; one that was set back is far behind what was said."""
    return not -SKEW_S <= now - said_s <= STALE_S


def _unheard(found: Evidence, words: str) -> Finding | None:
    """The learner has not reported: because of an actor, or of itself."""
    metrics, now = found.metrics, found.now
    if metrics is not None and not _is_stale(metrics.time_s, now):
        return None
    workers, lost = _wanted(found.state), _unlisted(found)
    inside = [n for n, p in found.progress.items() if p.doing in ("step", "reset")]
    actors = [n for n, w in workers.items() if w.kind == "actor" and n not in found.actors]
    actors += [n for n, a in found.actors.items() if n in workers and _is_stale(a.time_s, now)]
    silent = [n for n in inside if n in actors] or [n for n in actors if n not in lost]
    if silent:
        name = silent[0]
        doing = found.progress[name].doing if name in found.progress else ""
        slow = ", which is slow or hangs" if name in inside else ""
        what = f"it is {_doing_text(doing)}{slow}" if doing else "its environment is slow or hangs"
        return Finding(name, f"{name} is silent: {what}", words)
    waited = f"for {abs(now - metrics.time_s):.0f} s" if metrics else "yet"
    doing = found.progress["learner-0"].doing if "learner-0" in found.progress else ""
    what = f"it is {doing}" if doing in ("training", "saving") else "it may be compiling"
    summary = f"learner-0 has not reported {waited}: {what}"
    return Finding("learner-0", summary + _ended_before(found, "learner-0"), words)


def _missing(found: Evidence) -> Finding | None:
    """An actor that joined on its own, and that nobody has heard of since."""
    for name, silent_s in _unlisted(found).items():
        if silent_s < GONE_S:
            place = f" on {found.actors[name].host}" if found.actors[name].host else ""
            return Finding(
                name,
                f"{name}{place} was last heard {silent_s:.0f} s ago: its machine or its network is "
                "gone, or it was killed. Nobody waits for it; it joins again when it is back",
            )
    return None


def _unlisted(found: Evidence) -> dict[str, float]:
    """Who joined on its own, has not left, and is not known to the learner any more; its silence in
    seconds. An older learner does not say whom it knows."""
    if found.metrics is None or found.metrics.actors is None:
        return {}
    return {
        name: found.now - said.time_s
        for name, said in found.actors.items()
        if said.actor not in found.metrics.actors
        and found.now - said.time_s > STALE_S
        and found.state.workers[name].running
        and not _is_ours(found.state.workers[name])
    }


def _starved(found: Evidence, words: str) -> Finding | None:
    """The learner has nothing to train on."""
    if found.metrics is None or found.metrics.recent_steps_per_s > 0:
        return None
    full = [name for name, said in found.actors.items() if said.doing == "full bus"]
    if full:
        return Finding(full[0], f"{full[0]} waits for room: the bus is full of unread experience")
    damaged = found.metrics.ledger.damaged
    summary = "the learner waits for experience: no fragment is complete"
    return Finding("actors", summary + (f"; {damaged_text(damaged)}" if damaged else ""), words)


def _doing_text(doing: str) -> str:
    if doing in ("step", "reset"):
        return f"inside {doing} of its environment"
    return {"waiting": "waiting for a credit", "": "playing"}.get(doing, doing)


def _ended_before(found: Evidence, name: str) -> str:
    """What the life before this one ended with, while this one is not back at work."""
    worker = found.state.workers.get(name)
    if worker is None or worker.error_of != worker.incarnation - 1 or not worker.last_error:
        return ""
    said = found.metrics if worker.kind == "learner" else found.actors.get(name)
    if said is not None and said.time_s > worker.started_s:
        return ""
    return f"; last error: {worker.last_error}"


def _well(found: Evidence, worst: WorkerState | None) -> Finding:
    metrics = found.metrics
    assert metrics is not None
    rate = f"{metrics.recent_steps_per_s:,.0f} steps/s"
    late = [f"actor-{actor.partition('.')[0]}" for actor in metrics.late]
    if late:
        slow = f"{', '.join(late)} delivered too late: nobody waits for it any more"
        return Finding(late[0], f"{slow}, and {found.state.id} trains on at {rate}")
    last = f"; last error, recovered: {_last_error(worst)}" if worst else ""
    damaged = metrics.ledger.damaged
    skipped = f"; {damaged_text(damaged)}" if damaged else ""
    diverged = metrics.ledger.dropped.get(DIVERGED, 0)
    skipped += f"; {diverged_text(diverged)}" if diverged else ""
    for name in list(found.state.damaged)[-1:]:
        skipped += f"; checkpoint {name} is damaged and was passed over"
    lately = worst is not None and found.now - worst.error_s < LATELY_S
    words = worst.last_detail if worst is not None and lately else ""
    summary = f"nothing is stuck: {found.state.id} trains at {rate}{last}{skipped}"
    return Finding(None, summary, words)


def _last_error(worker: WorkerState) -> str:
    """With its name, which some errors begin with."""
    name, error = f"{worker.kind}-{worker.index}", worker.last_error or ""
    return error if error.startswith(name) else f"{name}: {error}"


def _wanted(state: RunState) -> dict[str, WorkerState]:
    """Who is to run: neither scaled away, nor one that joined on its own and left."""

    def is_wanted(worker: WorkerState) -> bool:
        if worker.kind == "learner":
            return worker.index < state.learners
        if worker.kind == "actor":
            return worker.index < state.actors_wanted if _is_ours(worker) else worker.running
        return True

    return {name: worker for name, worker in state.workers.items() if is_wanted(worker)}


def _is_ours(worker: WorkerState) -> bool:
    return worker.index < JOINED_FROM


def diverged_text(steps: int) -> str:
    return (
        f"updates that were not finite were skipped, and {steps:,} steps with them: check the "
        "environment's rewards, or lower algorithm.learning_rate"
    )


def damaged_text(count: int) -> str:
    return f"{count:,} messages in experiences could not be read: the learner's log names them"
