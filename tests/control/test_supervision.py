"""Who is started again, when, and when it is enough. The clock is ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.config.models import RestartConfig
from rookery.control.supervision import (
    ASLEEP_S,
    REDEEMED_AFTER_S,
    Supervisor,
    Vigil,
    allowance,
)
from rookery.worker.progress import DOING, Progress

CONFIG = RestartConfig(max_restarts=3, backoff_s=1.0, max_backoff_s=5.0)


class Worker:
    """One worker under a supervisor, and a clock that only moves when told."""

    def __init__(self, config: RestartConfig = CONFIG) -> None:
        self.supervisor = Supervisor(config)
        self.now = 1000.0
        self.steps = 0

    def start(self, name: str = "actor-0") -> None:
        self.supervisor.started(name, self.now)

    def die(self, reported: bool = False, name: str = "actor-0") -> bool:
        return self.supervisor.died(name, self.now, reported, self.steps)

    def wait(self, name: str = "actor-0") -> float:
        """Seconds until it may start, found by asking."""
        waited = 0.0
        while not self.supervisor.may_start(name, self.now + waited):
            waited += 0.25
        return waited


def test_a_worker_that_never_died_may_start() -> None:
    assert Worker().wait() == 0


def test_the_wait_doubles_with_each_death_up_to_its_limit() -> None:
    worker = Worker()
    waits = []
    for _ in range(4):
        worker.start()
        worker.die()
        waits.append(worker.wait())
        worker.now += waits[-1]
    assert waits == [1, 2, 4, 5]


def test_it_is_given_up_after_the_configured_restarts_without_progress() -> None:
    worker = Worker()
    found = []
    for _ in range(4):
        worker.start()
        found.append(worker.die())
        worker.now += 10
    assert found == [True, True, True, False]


def test_without_restarts_the_first_death_is_the_last() -> None:
    assert not Worker(RestartConfig(max_restarts=0)).die()


def test_progress_redeems_a_worker_that_was_killed_from_outside() -> None:
    worker = Worker()
    for _ in range(20):
        worker.start()
        worker.steps += 100
        assert worker.die()
        assert worker.wait() == 1
        worker.now += 10


def test_progress_does_not_redeem_a_worker_that_failed_by_itself() -> None:
    worker = Worker()
    found = []
    for _ in range(4):
        worker.start()
        worker.steps += 100
        found.append(worker.die(reported=True))
        worker.now += 10
    assert found == [True, True, True, False]


def test_killings_in_between_do_not_redeem_its_own_failures() -> None:
    worker = Worker()
    worker.start()
    for _ in range(3):
        worker.steps += 100
        assert worker.die(reported=True)
        worker.steps += 100
        worker.die(reported=False)
    worker.steps += 100
    assert not worker.die(reported=True)


@pytest.mark.parametrize("reported", [False, True])
def test_a_long_life_redeems_everyone(reported: bool) -> None:
    worker = Worker()
    for _ in range(20):
        worker.start()
        worker.now += REDEEMED_AFTER_S + 1
        assert worker.die(reported)
        assert worker.wait() == 1


def test_workers_are_judged_apart() -> None:
    worker = Worker()
    worker.start("actor-0")
    for _ in range(4):
        alive = worker.die(name="actor-0")
    assert not alive
    assert worker.die(name="actor-1")
    assert worker.wait("learner-0") == 0


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 10**9),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
    st.integers(1, 1500),
)
def test_no_number_of_deaths_breaks_the_clock(
    restarts: int, backoff: float, limit: float, deaths: int
) -> None:
    config = RestartConfig(max_restarts=restarts, backoff_s=backoff, max_backoff_s=limit)
    supervisor = Supervisor(config)
    alive = [supervisor.died("actor-0", 0.0, True, 0) for _ in range(deaths)]
    assert alive == [n < restarts for n in range(deaths)]
    assert supervisor.may_start("actor-0", limit)


# --- who makes no progress -----------------------------------------------------------------------

SILENT_S, DEADLINE_S = 15.0, 60.0
doings = st.sampled_from(DOING)


def watched(now: float = 0.0) -> Vigil:
    vigil = Vigil(SILENT_S, DEADLINE_S)
    vigil.wake(now)
    return vigil


def look_until(vigil: Vigil, progress: Progress, until: float, *, stopped: bool) -> float | None:
    """When it is ended, by looks of about one a second; None: not until then."""
    now = 0.0
    while now <= until:
        vigil.wake(now)
        silence = vigil.judge(progress, stopped, now)
        if silence is not None and silence.due:
            return now
        now += 1.0
    return None


@given(doings)
def test_a_process_that_is_stopped_is_frozen_whatever_it_was_doing(doing: str) -> None:
    progress = Progress(1, doing, since=0.0, beat=0.0)
    assert look_until(watched(), progress, 100, stopped=True) == SILENT_S
    named = watched().judge(progress, True, 1.0)
    assert named is not None and str(named) == "frozen for 1 s"


def test_inside_an_environment_only_its_deadline_counts() -> None:
    step = Progress(1, "step", since=0.0, beat=0.0)
    assert look_until(watched(), step, 300, stopped=False) == DEADLINE_S + SILENT_S
    for doing in ("waiting", "out of reach"):
        silent = Progress(1, doing, since=0.0, beat=0.0)
        assert look_until(watched(), silent, 300, stopped=False) == SILENT_S


@given(doings, st.floats(0, 5000))
def test_whoever_waits_for_others_is_never_hung(doing: str, waited: float) -> None:
    vigil = watched()
    silence = vigil.judge(Progress(1, doing, since=0.0, beat=waited), False, waited)
    if doing in ("waiting", "sending", "full bus", "owning", "out of reach"):
        assert silence is None
    else:
        allowed = allowance(doing, SILENT_S, DEADLINE_S).same_s
        assert (silence is not None) == (waited >= allowed)
        assert silence is None or (silence.word == "hung" and silence.due)


@given(doings, st.lists(st.floats(0.1, 1.0), min_size=1, max_size=60), st.booleans())
def test_nobody_who_beats_and_counts_is_accused(doing: str, ticks: list[float], slow: bool) -> None:
    """A starved worker beats late, and is left alone up to half of its time."""
    vigil, now = watched(), 0.0
    for tick in ticks:
        now += tick
        vigil.wake(now)
        beat = now - (SILENT_S / 2 - 0.01 if slow else 1.0)
        assert vigil.judge(Progress(1, doing, since=beat, beat=beat), False, now) is None


@given(doings, st.floats(ASLEEP_S + 0.1, 1e6), st.booleans())
def test_a_watcher_that_slept_gives_everybody_their_time_again(
    doing: str, slept: float, stopped: bool
) -> None:
    vigil, progress = watched(), Progress(1, doing, since=0.0, beat=0.0)
    vigil.wake(slept)
    silence = vigil.judge(progress, stopped, slept)
    assert silence is None or not silence.due
    for now in (slept + 1, slept + 2):
        vigil.wake(now)
        silence = vigil.judge(progress, stopped, now)
        assert silence is None or not silence.due
