"""Learning curves as a PNG."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.client.local import LocalClient
from rookery.control.history import History
from rookery.control.home import Home
from rookery.errors import InputError, UnknownName

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LABELS = {"mean_return_100": "return, mean of the last 100 episodes"}


def plot(home: Home, names: list[str], metric: str, out: str) -> dict[str, int]:
    """Draw one metric of several runs over their steps, and of groups with a band; returns the
    number of points of each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    points: dict[str, int] = {}
    for name in names:
        try:
            run = home.find(name)
        except UnknownName as unknown:
            points[name] = _draw_group(axes, home, name, metric, unknown)
            continue
        points[run] = _draw_run(axes, home, run, metric)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(_LABELS.get(metric, metric))
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter(_short_number)
    axes.legend(frameon=False)
    try:
        figure.savefig(out, dpi=144)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {out!r}: {error}") from None
    return points


def _draw_run(axes: Axes, home: Home, run: str, metric: str) -> int:
    steps, values = _series(home, run, metric)
    config = home.config(home.state(run))
    label = f"{config.environment.id}, {config.algorithm.kind}, seed {config.seed} ({run})"
    axes.plot(steps, values, label=label, linewidth=1.6)
    return len(steps)


def _draw_group(axes: Axes, home: Home, name: str, metric: str, unknown: UnknownName) -> int:
    """The interquartile mean, and the band in which 95 % of them lie."""
    try:
        found = LocalClient(home).group_curves(name, metric)
    except UnknownName:
        raise unknown from None
    curves = [curve for curve in found.curves if curve.steps]
    if not curves:
        raise InputError(f"no run of group {name} has {metric} to plot yet")
    for curve in curves:
        label = f"{curve.environment}, interquartile mean of {max(curve.count)} runs ({name})"
        (line,) = axes.plot(curve.steps, curve.iqm, label=label, linewidth=1.6)
        axes.fill_between(
            curve.steps, curve.low, curve.high, color=line.get_color(), alpha=0.2, linewidth=0
        )
    return sum(len(curve.steps) for curve in curves)


def _series(home: Home, run: str, metric: str) -> tuple[list[int], list[float]]:
    history = History(home)
    found = history.metrics(run, (), 1, None, None)
    if not found.points:
        raise InputError(f"run {run} has no metrics to plot yet")
    if metric not in found.names:
        raise UnknownName("metric", metric, found.names, f"Known: {', '.join(found.names)}.")
    (series,) = history.metrics(run, [metric], found.points, None, None).series
    pairs = [(s, v) for s, v in zip(series.steps, series.value, strict=True) if v is not None]
    return [steps for steps, _ in pairs], [value for _, value in pairs]


def _short_number(value: float, _: object) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
