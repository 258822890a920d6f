"""The learner's figures: means over an interval, and nothing forgotten between two updates."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from rookery.learner.deliveries import Delivery
from rookery.learner.ledger import Ledger
from rookery.learner.loop import Updated
from rookery.learner.report import Pace, Report, Window
from rookery.messages import TrainingMetrics, WeightsVersion
from rookery.messages.fragment import Episode


def read(report: Report) -> TrainingMetrics:
    return report.metrics(WeightsVersion(1, 2), 0.5, Ledger().summary(0, (0,)), lag_max=1)


def test_values_are_the_mean_of_the_interval() -> None:
    report = Report("r", {"main": Window()}, 1, 0.0)

    report.note(Updated(1, [], [0], {"main": {"entropy": 1.0}}))
    report.note(Updated(2, [], [1], {"main": {"entropy": 3.0}}))

    found = read(report)
    assert found.values == {"entropy": 2.0, "learning_rate": 0.5}
    assert found.lag_mean == 0.5


def test_an_interval_without_an_update_repeats_the_last_values() -> None:
    report = Report("r", {"main": Window()}, 1, 0.0)
    report.note(Updated(1, [], [0], {"main": {"entropy": 1.0}}))
    read(report)

    found = read(report)  # as the last word of a run is, if its metrics were just published

    assert found.values == {"entropy": 1.0, "learning_rate": 0.5}
    assert found.recent_steps_per_s == 0.0


def test_before_the_first_update_there_are_no_values() -> None:
    found = read(Report("r", {"main": Window()}, 1, 0.0))

    assert found.values == {"learning_rate": 0.5}
    assert found.mean_return_100 is None
    assert (found.min_return_100, found.max_return_100) == (None, None)


def updated(number: int, policy: str, *returns: float) -> Updated:
    """An update by one fragment, of which a report reads no more than this."""
    episodes = tuple(Episode("player_0", total, 1) for total in returns)
    header = SimpleNamespace(policy=policy, steps=len(returns), episodes=episodes)
    steps = SimpleNamespace(valid=np.ones(len(returns), bool))
    fragment: Any = SimpleNamespace(header=header, steps=steps)
    return Updated(number, [Delivery((), (fragment,))], [0], {})


def test_the_band_is_the_least_and_greatest_return_of_the_last_100_episodes() -> None:
    report = Report("r", {"main": Window(), "other": Window()}, 2, 0.0)
    report.note(updated(1, "main", -50.0, 70.0, 5.0))
    report.note(updated(2, "other", -2.0, 8.0))
    assert band(read(report)) == (-50.0, 25 / 3, 70.0)

    report.note(updated(3, "main", *[6.0] * 98))

    found = read(report)
    assert band(found) == band(found.policies["main"]) == (5.0, 6.63, 70.0)  # -50 is forgotten
    assert band(found.policies["other"]) == (-2.0, 3.0, 8.0)


def band(found: Any) -> tuple[float | None, ...]:
    return found.min_return_100, found.mean_return_100, found.max_return_100


@pytest.mark.parametrize("total", [math.nan, math.inf])
def test_a_return_that_is_no_number_is_counted_and_not_in_the_band(total: float) -> None:
    report = Report("r", {"main": Window()}, 1, 0.0)
    report.note(updated(1, "main", 3.0, total, 4.0))
    shown = read(report)
    assert band(shown) == (3.0, 3.5, 4.0) and shown.episodes == 3
    window = report.windows["main"]  # a checkpoint keeps it as JSON
    assert msgspec.json.decode(msgspec.json.encode(window), type=Window) == window


def test_the_band_goes_on_from_a_checkpoint() -> None:
    before = Report("r", {"main": Window()}, 1, 0.0)
    before.note(updated(1, "main", -1.0, 9.0))
    kept = msgspec.json.decode(msgspec.json.encode(before.windows), type=dict[str, Window])

    after = Report("r", kept, 1, 0.0)
    after.note(updated(2, "main", 4.0))

    assert band(read(after)) == (-1.0, 4.0, 9.0)


def test_a_pace_spans_updates_that_come_less_often_than_it_is_read() -> None:
    pace = Pace()
    assert pace.read(0.0) == 0.0
    pace.note(100, 10.0)
    assert pace.read(10.0) == 0.0  # one update says nothing of the time between two
    pace.note(100, 12.0)
    assert pace.read(12.5) == 50.0
    assert pace.read(13.9) == 50.0  # the next is not due yet
    pace.note(100, 14.0)
    pace.note(100, 14.5)
    assert pace.read(15.0) == 200 / 2.5


def test_a_pace_falls_while_no_update_comes() -> None:
    pace = Pace()
    pace.note(100, 0.0)
    pace.note(100, 1.0)
    assert pace.read(1.0) == 100.0
    assert pace.read(11.0) == 10.0
