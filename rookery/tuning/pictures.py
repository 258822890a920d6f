"""A sweep as a PNG: parallel coordinates above, a slice for each key below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rookery.errors import InputError
from rookery.tuning.space import Choice, Dimension, Range, same
from rookery.tuning.spec import SweepSpec
from rookery.tuning.text import write_value
from rookery.tuning.trials import Trial

MOST_SLICES = 4  # in a row
RETURN = "return of greedy fresh episodes"


def draw(
    spec: SweepSpec, trials: Sequence[Trial], importance: Mapping[str, float], out: str
) -> None:
    """Of the trials that are done; the most important key comes first."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    done = [trial for trial in trials if trial.value is not None]
    if not done:
        raise InputError(f"sweep {spec.id} has no trial to draw yet")
    order = sorted(spec.space.dimensions, key=lambda d: -importance.get(d.key, 0.0))
    across = min(MOST_SLICES, len(order))
    rows = -(-len(order) // across)
    figure = Figure(figsize=(10, 4 + 2.6 * rows), layout="constrained")
    grid = figure.add_gridspec(1 + rows, across, height_ratios=[1.5, *([1.0] * rows)])
    colours = _colours(done)
    _parallel(figure.add_subplot(grid[0, :]), order, done, colours)
    for place, dimension in enumerate(order):
        axes = figure.add_subplot(grid[1 + place // across, place % across])
        _slice(axes, dimension, done, colours, importance.get(dimension.key))
        if place % across == 0:
            axes.set_ylabel(RETURN, fontsize=8)
    try:
        figure.savefig(out, dpi=144)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot write {out!r}: {error}") from None


def _colours(done: Sequence[Trial]) -> dict[int, Any]:
    """By rank, so that one outlier does not make all others alike."""
    from matplotlib import colormaps

    ranked = sorted(done, key=lambda trial: trial.value or 0.0)
    most = max(1, len(ranked) - 1)
    shades = colormaps["viridis"]
    return {trial.number: shades(0.95 * place / most) for place, trial in enumerate(ranked)}


def _parallel(
    axes: Any, order: Sequence[Dimension], done: Sequence[Trial], colours: Mapping[int, Any]
) -> None:
    """A line for each trial, through its place on each key's axis to its return."""
    low = min(trial.value or 0.0 for trial in done)
    high = max(trial.value or 0.0 for trial in done)
    for trial in sorted(done, key=lambda each: each.value or 0.0):
        heights = [
            place_of(dimension, trial.values[dimension.key])
            if dimension.key in trial.values
            else float("nan")
            for dimension in order
        ]
        heights.append(((trial.value or 0.0) - low) / (high - low) if high > low else 0.5)
        axes.plot(range(len(heights)), heights, color=colours[trial.number], alpha=0.8, marker=".")
    names = [short(dimension.key) for dimension in order]
    axes.set_xticks(range(len(names) + 1), [*names, "return"])
    axes.set_yticks([])
    for number, dimension in enumerate(order):
        axes.axvline(number, color="0.8", linewidth=0.8, zorder=0)
        for height, text in marks(dimension):
            axes.annotate(text, (number, height), fontsize=7, color="0.35", xytext=(3, 0),
                          textcoords="offset points", va="center")  # fmt: skip
    axes.axvline(len(order), color="0.8", linewidth=0.8, zorder=0)
    for height, value in ((0.0, low), (1.0, high)):
        axes.annotate(f"{value:.4g}", (len(order), height), fontsize=7, color="0.35",
                      xytext=(3, 0), textcoords="offset points", va="center")  # fmt: skip
    axes.spines[["top", "right", "left", "bottom"]].set_visible(False)


def _slice(
    axes: Any,
    dimension: Dimension,
    done: Sequence[Trial],
    colours: Mapping[int, Any],
    importance: float | None,
) -> None:
    """Returns over one key."""
    tried = [trial for trial in done if dimension.key in trial.values]
    values = [trial.values[dimension.key] for trial in tried]
    domain = dimension.domain
    if isinstance(domain, Choice):
        places = [_place(domain, value) for value in values]
        axes.set_xticks(range(len(domain.options)), [write_value(o) for o in domain.options])
        axes.set_xlim(-0.5, len(domain.options) - 0.5)
    else:
        places = values
        axes.set_xscale("log" if domain.log else "linear")
        axes.set_xlim(domain.low, domain.high)
        if domain.log:
            axes.xaxis.set_minor_formatter(lambda value, place: "")
    axes.scatter(
        places,
        [trial.value for trial in tried],
        c=[colours[trial.number] for trial in tried],
        s=18,
    )
    told = "" if importance is None else f" ({importance:.0%})"
    axes.set_xlabel(short(dimension.key) + told, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def place_of(dimension: Dimension, value: Any) -> float:
    """Where a value stands on its axis, from 0 to 1."""
    domain = dimension.domain
    if isinstance(domain, Choice):
        return _place(domain, value) / (len(domain.options) - 1)
    if domain.log:
        import math

        return math.log(value / domain.low) / math.log(domain.high / domain.low)
    return float((value - domain.low) / (domain.high - domain.low))


def marks(dimension: Dimension) -> list[tuple[float, str]]:
    """What stands beside an axis."""
    domain = dimension.domain
    if isinstance(domain, Range):
        return [(0.0, f"{domain.low:g}"), (1.0, f"{domain.high:g}")]
    return [(place_of(dimension, option), write_value(option)) for option in domain.options]


def short(key: str) -> str:
    """A key's last word, and its policy's where it has one."""
    return key.removeprefix("algorithm.").removeprefix("network.")


def _place(domain: Choice, value: Any) -> int:
    return next(i for i, option in enumerate(domain.options) if same(option, value))
