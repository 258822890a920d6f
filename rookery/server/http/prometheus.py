"""What Prometheus reads at /metrics: every run's progress, and how the server itself is doing.

    exposition(plane, meter)            # bytes, of CONTENT_TYPE

All is made anew for each reading, from what is in memory; there is no global registry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from rookery.control.models import RunRow
from rookery.control.run_state import RunState, Status

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane
    from rookery.server.http.request_metrics import HttpMeter

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
MOST_LABEL_CHARS = 255  # as long as a run can be called: it has a directory
# shown even where no run has it, so that an alert has something to compare
STATUSES: tuple[str, ...] = get_args(Status)


def exposition(plane: ControlPlane, http: HttpMeter) -> bytes:
    """Everything, in Prometheus's text format."""
    rows = plane.rows()
    states = plane.follower.states
    return generate_latest(
        _Collected(
            [
                *_progress(rows),
                *_lags(plane, rows),
                *_learning(plane, rows),
                *_counts(rows),
                _restarts([states[row.run] for row in rows if row.run in states]),
                *http.families(),
            ]
        )
    )


def label(text: str) -> str:
    """Text of strangers as a label: not endless, and no half characters, which nobody can encode.

    Quotes, backslashes and newlines are escaped when the text is written.
    """
    return text[:MOST_LABEL_CHARS].encode("utf-8", "replace").decode()


class _Collected:
    """Families as the writer wants them."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _progress(rows: Sequence[RunRow]) -> Iterator[Metric]:
    info = GaugeMetricFamily(
        "rookery_run_info",
        "Always 1: what a run is.",
        labels=["run", "environment", "algorithm", "status"],
    )
    steps = CounterMetricFamily("rookery_run_env_steps", "Agent steps trained.", labels=["run"])
    returns = _gauge("rookery_run_mean_return", "Mean return of the last 100 episodes.")
    speed = _gauge("rookery_run_steps_per_second", "Agent steps a second, lately.")
    lag = _gauge("rookery_run_policy_lag", "Mean policy lag in versions.")
    for row in rows:
        _add(info, (row.run, row.environment, row.algorithm, row.status), 1)
        _add(steps, (row.run,), row.env_steps)
        _add(returns, (row.run,), row.mean_return_100)
        _add(speed, (row.run,), row.steps_per_s)
        _add(lag, (row.run,), row.lag_mean)
    yield from (info, steps, returns, speed, lag)


def _lags(plane: ControlPlane, rows: Sequence[RunRow]) -> Iterator[Metric]:
    policy = _gauge("rookery_run_policy_lag_max", "Largest policy lag of the learner's life.")
    bus = _gauge("rookery_run_bus_lag", "Messages of experience that the learner has not read.")
    for row in rows:
        training = plane.follower.training(row.run)
        if training is not None:
            _add(policy, (row.run,), training.lag_max)
            _add(bus, (row.run,), training.bus_lag)
    yield from (policy, bus)


def _learning(plane: ControlPlane, rows: Sequence[RunRow]) -> Iterator[Metric]:
    values = GaugeMetricFamily(
        "rookery_run_training_value",
        "Losses and diagnostics of a policy's newest updates.",
        labels=["run", "policy", "figure"],
    )
    rating = _gauge("rookery_run_rating", "Rating of the newest snapshot in the league.")
    unsure = _gauge("rookery_run_rating_sigma", "Standard deviation of that rating.")
    for row in rows:
        training = plane.follower.training(row.run)
        if training is None:
            continue
        told = {name: policy.values for name, policy in training.policies.items()}
        for policy, found in (told or {training.policy: training.values}).items():
            for name, value in found.items():
                _add(values, (row.run, policy, name), value)
        if training.league is not None and training.league.rated_games:
            _add(rating, (row.run,), training.league.rating)
            _add(unsure, (row.run,), training.league.uncertainty)
    yield from (values, rating, unsure)


def _counts(rows: Sequence[RunRow]) -> Iterator[Metric]:
    found = Counter(row.status for row in rows)
    family = GaugeMetricFamily("rookery_runs", "Runs by status.", labels=["status"])
    for status in dict.fromkeys((*STATUSES, *found)):
        _add(family, (status,), found[status])
    yield family
    yield GaugeMetricFamily("rookery_queue_length", "Runs that wait for cores.", found["queued"])


def _restarts(states: Sequence[RunState]) -> Metric:
    family = CounterMetricFamily(
        "rookery_worker_restarts", "Workers started again.", labels=["run", "kind"]
    )
    for state in states:
        restarts: Counter[str] = Counter()
        for worker in state.workers.values():
            restarts[worker.kind] += worker.restarts
        for kind, count in restarts.items():
            _add(family, (state.id, kind), count)
    return family


def _gauge(name: str, documentation: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, documentation, labels=["run"])


def _add(
    family: CounterMetricFamily | GaugeMetricFamily, labels: Sequence[str], value: float | None
) -> None:
    """None: nothing is known, so nothing is said."""
    if value is not None:
        family.add_metric([label(text) for text in labels], value)
