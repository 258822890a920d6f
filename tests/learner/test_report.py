"""The learner's figures: means over an interval, and nothing forgotten between two updates."""

from __future__ import annotations

from rookery.learner.ledger import Ledger
from rookery.learner.loop import Updated
from rookery.learner.report import Pace, Report, Window
from rookery.messages import TrainingMetrics, WeightsVersion


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
