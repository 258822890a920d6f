"""Several runs as one: mean, interquartile mean and a band, best and worst.

    aggregate({"cartpole-a": 480.0, "cartpole-b": 500.0, "cartpole-c": 75.0})
    band([(steps, values), ...])          # the same at every place of a common axis

The interquartile mean leaves out the lowest and the highest quarter, so that one lucky seed proves
nothing. The band holds 95 % of the interquartile means of runs drawn again from these, with
replacement, as rliable has it (Agarwal et al. 2021). The draws are the same every time. Nothing
here does I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

DRAWS = 2000
INSIDE = 95.0  # percent of the draws
TRIMMED = 0.25  # of either end
MOST_POINTS = 200

Curve = tuple[Sequence[float], Sequence[float]]  # steps, values


class Summary(NamedTuple):
    """Of one number of each run."""

    runs: int
    mean: float
    iqm: float
    low: float
    high: float
    best: str  # a run
    worst: str


class Band(NamedTuple):
    """Of a curve of each run; at each of `steps`, over the runs that came so far: half at least."""

    steps: list[float]
    mean: list[float]
    iqm: list[float]
    low: list[float]
    high: list[float]
    runs: list[int]


def aggregate(scores: Mapping[str, float]) -> Summary | None:
    """None: of no run there is a number."""
    known = {run: score for run, score in scores.items() if np.isfinite(score)}
    if not known:
        return None
    values = np.array([*known.values()])
    return Summary(
        len(known),
        float(values.mean()),
        _iqm(values),
        *_interval(values),
        best=max(known, key=known.__getitem__),
        worst=min(known, key=known.__getitem__),
    )


def band(curves: Sequence[Curve], points: int = MOST_POINTS) -> Band:
    """Curves on a common axis; where one has no point, what lies between its neighbours counts."""
    known = [(np.asarray(steps), np.asarray(values)) for steps, values in curves if len(steps)]
    if not known:
        return Band([], [], [], [], [], [])
    first, last = min(steps[0] for steps, _ in known), max(steps[-1] for steps, _ in known)
    axis = np.unique(np.linspace(first, last, points))
    curves_there = np.array([np.interp(axis, *curve, left=np.nan, right=np.nan) for curve in known])
    rows = []
    for place, column in zip(axis, curves_there.T, strict=True):
        there = column[~np.isnan(column)]
        if 2 * len(there) >= len(known):
            figures = (float(there.mean()), _iqm(there), *_interval(there))
            rows.append((float(place), *figures, len(there)))
    return Band(*map(list, zip(*rows, strict=True)))


def _interval(values: np.ndarray) -> tuple[float, float]:
    """Of the interquartile mean."""
    drawn = np.random.default_rng(0).choice(values, size=(len(values), DRAWS))
    outside = (100.0 - INSIDE) / 2
    low, high = np.percentile(_trimmed_means(drawn), [outside, 100.0 - outside])
    return float(low), float(high)


def _iqm(values: np.ndarray) -> float:
    return float(_trimmed_means(values[:, None])[0])


def _trimmed_means(values: np.ndarray) -> np.ndarray:
    """Over the first axis; of fewer than four nothing can be left out."""
    cut = int(TRIMMED * len(values))
    found: np.ndarray = np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)
    return found
