"""Runs that belong together, told as one: seeds of a config, trials of a sweep, forks.

    make_group("sweep-1", rows)                        # its runs, and what they came to
    make_curves("sweep-1", "mean_return_100", rows, read)

Returns of different environments cannot be compared, so each has figures of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rookery.control.aggregate import MOST_POINTS, Curve, aggregate, band
from rookery.control.models import Aggregate, GroupCurve, GroupCurves, GroupDetail, Metrics, RunRow
from rookery.errors import UnknownName

ReadMetrics = Callable[[str, Sequence[str], int, int | None, int | None], Metrics]


def members(name: str, rows: Iterable[RunRow]) -> list[RunRow]:
    """The runs of a group, as they come; an error if there is none."""
    all_rows = list(rows)
    found = [row for row in all_rows if row.group == name]
    if not name or not found:
        known = dict.fromkeys(row.group for row in all_rows if row.group)
        raise UnknownName("group", name, list(known), "Run `rookery runs list`.")
    return found


def make_group(name: str, rows: Sequence[RunRow]) -> GroupDetail:
    """`rows`: its members."""
    return GroupDetail(
        group=name,
        runs=list(rows),
        aggregates=[
            Aggregate(environment=environment, **found._asdict())
            for environment, part in _by_environment(rows).items()
            if (found := aggregate(_returns(part))) is not None
        ],
    )


def make_curves(
    name: str, metric: str, rows: Sequence[RunRow], read: ReadMetrics, points: int = MOST_POINTS
) -> GroupCurves:
    """`read`: the metrics of one run. Slow."""
    curves = []
    for environment, part in _by_environment(rows).items():
        found = band([_curve(read, row.run, metric, points) for row in part], points)
        curves.append(
            GroupCurve(environment=environment, count=found.runs, **_without(found._asdict()))
        )
    return GroupCurves(group=name, metric=metric, curves=curves)


def _without(found: dict[str, list[float]]) -> dict[str, list[float]]:
    return {key: column for key, column in found.items() if key != "runs"}


def _by_environment(rows: Sequence[RunRow]) -> dict[str, list[RunRow]]:
    found: dict[str, list[RunRow]] = {}
    for row in rows:
        found.setdefault(row.environment, []).append(row)
    return found


def _returns(rows: Iterable[RunRow]) -> dict[str, float]:
    return {row.run: row.mean_return_100 for row in rows if row.mean_return_100 is not None}


def _curve(read: ReadMetrics, run: str, metric: str, points: int) -> Curve:
    """What a run has of it; nothing where it does not have it."""
    if metric not in read(run, (), 1, None, None).names:
        return [], []
    (series,) = read(run, [metric], points, None, None).series
    pairs = [(s, v) for s, v in zip(series.steps, series.value, strict=True) if v is not None]
    return [steps for steps, _ in pairs], [value for _, value in pairs]
