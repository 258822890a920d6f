"""Metric history: nothing of the raw data's extremes is lost, and nothing is read twice."""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.bus import Bus, Outgoing, Position, Record
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import KafkaSettings
from rookery.bus.kafka.topics import NEWEST
from rookery.bus.sqlite import SqliteBus, SqliteSubscription
from rookery.config.models import RunConfig
from rookery.control import history as history_module
from rookery.control import metric_table
from rookery.control.history import History
from rookery.control.home import Home
from rookery.control.models import Metrics, Series
from rookery.errors import InputError, UnknownName
from rookery.messages import (
    METRICS_TRAINING,
    CreateRun,
    LeagueMetrics,
    LedgerSummary,
    PolicyMetrics,
    TrainingMetrics,
    encode_json,
)
from tests.conftest import training_history
from tools.kafka.mock import MockCluster

RUN = "r"


def said(updates: int, **changes: Any) -> TrainingMetrics:
    """What a learner says after so many updates of 10 steps."""
    values: dict[str, Any] = {
        "run": RUN,
        "policy": "main",
        "generation": 1,
        "updates": updates,
        "env_steps": 10 * updates,
        "time_s": 1000.0 + updates,
        "train_s": 0.5 * updates,
        "steps_per_s": 20.0,
        "recent_steps_per_s": 21.0,
        "episodes": updates,
        "mean_return_100": float(updates),
        "min_return_100": -float(updates),
        "max_return_100": 3.0 * updates,
        "mean_length_100": None,
        "lag_mean": 0.5,
        "lag_max": 2,
        "bus_lag": 5,
        "ledger": LedgerSummary(
            trained=10 * updates,
            dropped={"abandoned": 3, "stale": 4},
            pending=5,
            position=(updates,),
            seen={"0.1": 10},
        ),
        "values": {"policy_loss": -0.1, "entropy": 0.7, "learning_rate": 3e-4},
    }
    return TrainingMetrics(**(values | changes))


class CountingBus(SqliteBus):
    """Counts what is read of it."""

    polled = 0

    def subscribe(self, topic: str, start: Position | str) -> SqliteSubscription:
        subscription = super().subscribe(topic, start)
        poll = subscription.poll

        def counted(timeout_s: float, limit: int = 256) -> list[Record]:
            records = poll(timeout_s, limit)
            CountingBus.polled += len(records)
            return records

        subscription.poll = counted  # type: ignore[method-assign]
        return subscription


class FakeHome:
    """Runs with a bus file each. Of a state only that it is handed back is asked."""

    def __init__(self, directory: Path, runs: Sequence[str] = (RUN,)) -> None:
        self._directory, self._runs = directory, runs

    def path(self, run: str = RUN) -> Path:
        return self._directory / f"{run}.sqlite"

    def states(self, only: str | None = None) -> Mapping[str, str]:
        return {run: run for run in self._runs if only in (None, run)}

    def read_run_bus(self, state: str) -> Bus | None:
        path = self.path(state)
        return CountingBus(path, read_only=True) if path.exists() else None

    def write(self, *records: TrainingMetrics | bytes, run: str = RUN) -> None:
        payloads = [r if isinstance(r, bytes) else encode_json(r) for r in records]
        bus = SqliteBus(self.path(run))
        bus.publish([Outgoing(METRICS_TRAINING, payload, key=run) for payload in payloads])
        bus.close()

    def remove(self, run: str = RUN) -> None:
        for path in self._directory.glob(f"{run}.sqlite*"):
            path.unlink()


def history_of(home: Any) -> History:
    return History(home)


@pytest.fixture
def home(tmp_path: Path) -> FakeHome:
    return FakeHome(tmp_path)


@contextmanager
def fresh_home() -> Iterator[FakeHome]:
    """For property tests, where a fixture would be shared by all examples."""
    with tempfile.TemporaryDirectory() as directory:
        yield FakeHome(Path(directory))


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """How many records are read inside."""
    before = CountingBus.polled
    yield lambda: CountingBus.polled - before


def ask(history: History, *names: str, run: str = RUN, points: int = 500, **ends: Any) -> Metrics:
    return history.metrics(run, names, points, ends.get("start"), ends.get("stop"))


def one(history: History, name: str, **options: Any) -> Series:
    (series,) = ask(history, name, **options).series
    assert series.name == name
    return series


# --- names ---------------------------------------------------------------------------------------


def test_every_number_of_a_record_has_a_name(home: FakeHome) -> None:
    policy = PolicyMetrics(
        trained=7,
        episodes=2,
        mean_return_100=0.25,
        min_return_100=-0.5,
        max_return_100=0.625,
        values={"policy_loss": 0.125},
    )
    league = LeagueMetrics(
        snapshots=2, rated_games=9, newest="main@3", rating=25.5, uncertainty=1.5, points={}
    )
    record = said(
        3, policies={"main": policy}, seats={"player_0": 0.75}, league=league, mean_length_100=9.0
    )
    home.write(record)

    found = history_of(home).metrics(RUN, ask(history_of(home)).names, 500, None, None)

    assert {series.name: series.value for series in found.series} == {
        "mean_return_100": [3.0],
        "min_return_100": [-3.0],
        "max_return_100": [9.0],
        "mean_length_100": [9.0],
        "recent_steps_per_s": [21.0],
        "steps_per_s": [20.0],
        "lag_mean": [0.5],
        "lag_max": [2.0],
        "bus_lag": [5.0],
        "episodes": [3.0],
        "updates": [3.0],
        "env_steps": [30.0],
        "train_s": [1.5],
        "policy_loss": [-0.1],
        "entropy": [0.7],
        "learning_rate": [3e-4],
        "policies.main.mean_return_100": [0.25],
        "policies.main.min_return_100": [-0.5],
        "policies.main.max_return_100": [0.625],
        "policies.main.trained": [7.0],
        "policies.main.episodes": [2.0],
        "policies.main.policy_loss": [0.125],
        "seats.player_0": [0.75],
        "league.rating": [25.5],
        "league.uncertainty": [1.5],
        "ledger.trained": [30.0],
        "ledger.pending": [5.0],
        "ledger.duplicates": [0.0],
        "ledger.gaps": [0.0],
        "ledger.damaged": [0.0],
        "ledger.dropped": [7.0],
        "ledger.dropped.abandoned": [3.0],
        "ledger.dropped.stale": [4.0],
    }
    assert {(*s.steps, *s.time_s) for s in found.series} == {(30, 1003.0)}
    assert found.run == RUN and found.points == 1


def test_without_names_the_return_speed_lag_and_losses_are_shown(home: FakeHome) -> None:
    policy = PolicyMetrics(trained=7, episodes=2, mean_return_100=0.25, values={"policy_loss": 1.0})
    home.write(said(1, policies={"red": policy}, values={"value_loss": 1, "policy_loss": 2}))

    assert [series.name for series in ask(history_of(home)).series] == [
        "mean_return_100",
        "recent_steps_per_s",
        "lag_mean",
        "policy_loss",
        "value_loss",
        "policies.red.mean_return_100",
    ]


def test_a_learner_of_before_said_nothing_of_the_band(home: FakeHome) -> None:
    older = msgspec.json.decode(encode_json(said(1)))
    del older["min_return_100"], older["max_return_100"]
    home.write(msgspec.json.encode(older), said(2))

    history = history_of(home)

    assert one(history, "mean_return_100").value == [1.0, 2.0]
    assert one(history, "min_return_100").value == [None, -2.0]
    assert one(history, "max_return_100").value == [None, 6.0]


def test_a_value_cannot_take_the_name_of_another_number(home: FakeHome) -> None:
    home.write(said(4, values={"updates": 99.0, "ledger.trained": 98.0}))
    history = history_of(home)
    assert one(history, "updates").value == [4.0]
    assert one(history, "ledger.trained").value == [40.0]


def test_an_unknown_name_is_told_with_the_nearest(home: FakeHome) -> None:
    home.write(said(1))
    with pytest.raises(UnknownName, match=r"unknown metric 'polcy_loss'; did you mean policy_loss"):
        ask(history_of(home), "mean_return_100", "polcy_loss")


def test_a_name_asked_for_twice_is_shown_once(home: FakeHome) -> None:
    home.write(said(1))
    assert len(ask(history_of(home), "entropy", "entropy").series) == 1


def test_a_run_that_does_not_exist_is_told(home: FakeHome) -> None:
    with pytest.raises(UnknownName, match="unknown run 'nobody'"):
        ask(history_of(home), run="nobody")


def test_before_anything_was_recorded_any_name_is_empty(home: FakeHome) -> None:
    history = history_of(home)
    found = ask(history, "mean_return_100", "policy_loss")
    assert found.points == 0
    assert [(s.name, s.value, s.steps) for s in found.series] == [
        ("mean_return_100", [], []),
        ("policy_loss", [], []),
    ]
    home.write(said(1))
    assert one(history, "policy_loss").value == [-0.1]


# --- thinning ------------------------------------------------------------------------------------


def test_a_stretch_has_its_last_number_and_its_extremes(home: FakeHome) -> None:
    returns = [5.0, 1.0, 3.0, None, 9.0, None, None, None, 2.0]
    home.write(*(said(i, mean_return_100=r) for i, r in enumerate(returns)))

    found = one(history_of(home), "mean_return_100", points=3)

    assert found.value == [3.0, 9.0, 2.0]
    assert found.low == [1.0, 9.0, 2.0]
    assert found.high == [5.0, 9.0, 2.0]
    assert found.steps == [20, 40, 80]
    assert found.time_s == [1002.0, 1004.0, 1008.0]


def test_a_stretch_without_a_number_is_null_where_it_ends(home: FakeHome) -> None:
    returns = [1.0, 2.0, None, None]
    home.write(*(said(i, mean_return_100=r) for i, r in enumerate(returns)))

    found = one(history_of(home), "mean_return_100", points=2)

    assert (found.value, found.low, found.high) == ([2.0, None], [1.0, None], [2.0, None])
    assert found.steps == [10, 30]


@settings(max_examples=80)
@given(
    raw=st.lists(st.none() | st.floats(-1e9, 1e9), max_size=60),
    points=st.integers(1, 70),
    start=st.none() | st.integers(-5, 700),
    stop=st.none() | st.integers(-5, 700),
)
def test_no_extreme_is_lost_and_no_point_too_many(
    raw: list[float | None], points: int, start: int | None, stop: int | None
) -> None:
    with fresh_home() as home:
        if raw:
            home.write(*(said(i, values={"x": value}) for i, value in enumerate(raw)))
        found = ask(history_of(home), "x", points=points, start=start, stop=stop)

    low, high = -math.inf if start is None else start, math.inf if stop is None else stop
    inside = [(10 * i, value) for i, value in enumerate(raw) if low <= 10 * i <= high]
    numbers = [value for _, value in inside if value is not None]
    (series,) = found.series
    assert found.points == len(inside)
    assert len(series.value) == min(points, len(inside))
    assert series.steps == sorted(series.steps) and series.time_s == sorted(series.time_s)
    lows = [value for value in series.low if value is not None]
    highs = [value for value in series.high if value is not None]
    assert min(lows, default=None) == min(numbers, default=None)
    assert max(highs, default=None) == max(numbers, default=None)
    for point in zip(series.steps, series.low, series.value, series.high, strict=True):
        step, least, value, most = point
        assert (step, value) in inside
        assert value is None or least <= value <= most  # type: ignore[operator]
    if len(inside) <= points:
        values = [value for _, value in inside]
        assert series.steps == [step for step, _ in inside]
        assert series.value == series.low == series.high == values


def test_a_range_includes_both_ends_and_may_be_absurd(home: FakeHome) -> None:
    home.write(*(said(i) for i in range(10)))
    history = history_of(home)
    assert one(history, "updates", start=20, stop=40).steps == [20, 30, 40]
    assert one(history, "updates", start=21, stop=29).steps == []
    assert one(history, "updates", start=40, stop=20).steps == []
    assert one(history, "updates", start=10**30).steps == []
    assert len(one(history, "updates", start=-(10**30), stop=10**30).steps) == 10
    assert one(history, "updates", stop=-1).steps == []
    with pytest.raises(InputError, match="ask for at least 1"):
        ask(history, points=0)


# --- following -----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    parts=st.lists(
        st.lists(st.tuples(st.integers(0, 12), st.integers(-15, 15)), min_size=1, max_size=8),
        min_size=1,
        max_size=4,
    )
)
def test_in_however_many_parts_it_is_read_what_was_done_over_is_taken_back(
    parts: list[list[tuple[int, int]]],
) -> None:
    records = [[said(u, env_steps=max(0, 10 * u + more)) for u, more in part] for part in parts]
    kept: list[TrainingMetrics] = []
    with fresh_home() as home:
        followed = history_of(home)
        for part in records:
            for record in part:
                while kept and (
                    kept[-1].updates > record.updates or kept[-1].env_steps > record.env_steps
                ):
                    kept.pop()
                kept.append(record)
            home.write(*part)
            found = one(followed, "updates")
            assert found.value == [record.updates for record in kept]
            assert found.steps == [record.env_steps for record in kept]
        assert one(history_of(home), "updates") == found


def test_a_life_that_goes_on_from_a_checkpoint_takes_back_what_it_does_over(
    home: FakeHome,
) -> None:
    home.write(said(1), said(5), said(9))
    history = history_of(home)
    assert one(history, "updates").value == [1, 5, 9]
    home.write(said(6, generation=2))
    assert one(history, "updates").value == [1, 5, 6]


def test_only_what_is_new_is_read(home: FakeHome) -> None:
    home.write(*(said(i) for i in range(2500)))
    history = history_of(home)
    with counted() as polled:
        assert ask(history).points == 2500
        assert polled() == 2500
    home.write(said(2500), said(2501))
    with counted() as polled:
        assert ask(history).points == 2502
        assert polled() == 3  # and the last one again, to see that it is still there
    with counted() as polled:
        assert ask(history).points == 2502
        assert polled() == 1


def test_metrics_that_come_and_go_are_null_where_they_are_not(home: FakeHome) -> None:
    history = history_of(home)
    home.write(said(1, values={"a": 1.0}))
    assert one(history, "a").value == [1.0]
    home.write(said(2, values={"b": 2.0}))
    assert one(history, "a").value == [1.0, None]
    assert one(history, "b").value == [None, 2.0]
    home.write(said(1, values={}), said(3, values={"b": 3.0}))
    assert one(history, "a").value == [1.0, None, None]
    assert one(history, "b").value == [None, None, 3.0]


def test_a_bus_that_was_deleted_is_noticed(home: FakeHome) -> None:
    home.write(said(1), said(2))
    history = history_of(home)
    assert ask(history).points == 2
    home.remove()
    assert ask(history).points == 0


@pytest.mark.parametrize("again", [1, 2, 5])
def test_a_bus_that_was_made_again_is_read_anew(home: FakeHome, again: int) -> None:
    home.write(said(1), said(2))
    history = history_of(home)
    assert one(history, "mean_return_100").value == [1.0, 2.0]
    home.remove()
    home.write(*(said(i, mean_return_100=-1.0) for i in range(again)))
    assert one(history, "mean_return_100").value == [-1.0] * again


def test_a_bus_whose_retention_overtook_the_reader_is_read_anew(home: FakeHome) -> None:
    home.write(said(1), said(2))
    history = history_of(home)
    assert ask(history).points == 2
    home.write(*(said(i) for i in range(3, 9)))
    bus = SqliteBus(home.path())
    bus.retain(METRICS_TRAINING, (5,))
    bus.close()
    assert one(history, "updates").value == [6, 7, 8]


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"type":"training"}',
        b'{"type":"actor"}',
        encode_json(said(2, schema=2)),
        encode_json(said(2)).replace(b'"updates":2', b'"updates":-1'),
        encode_json(said(2)).replace(b'"updates":2', b'"updates":' + b"9" * 30),
        encode_json(said(2)).replace(b'"lag_mean":0.5', b'"lag_mean":1e999'),
        encode_json(said(2)).replace(b'"lag_mean":0.5', b'"lag_mean":NaN'),
        encode_json(said(2)).replace(b'"policy_loss":-0.1', b'"policy_loss":"x"'),
    ],
)
def test_what_is_no_message_is_passed_over(home: FakeHome, damaged: bytes) -> None:
    home.write(said(1), damaged, said(3))
    history = history_of(home)
    assert one(history, "updates").value == [1, 3]
    home.write(damaged)
    assert one(history, "updates").value == [1, 3]
    home.write(said(4))
    assert one(history, "updates").value == [1, 3, 4]


def test_threads_that_ask_while_a_learner_writes_see_whole_histories(home: FakeHome) -> None:
    home.write(said(0))
    history = history_of(home)
    done = threading.Event()

    def watch() -> int:
        seen = looks = 0
        while not done.is_set() or not looks:
            found = ask(history, "updates", "entropy")
            assert found.points >= seen
            assert found.series[0].value == list(range(found.points))
            assert found.series[1].value == [0.7] * found.points
            seen, looks = found.points, looks + 1
        return looks

    with ThreadPoolExecutor(4) as pool:
        watchers = [pool.submit(watch) for _ in range(4)]
        try:
            for updates in range(1, 120):
                home.write(said(updates))
        finally:
            done.set()
        assert all(watcher.result(60) for watcher in watchers)
    assert ask(history).points == 120


# --- bounds --------------------------------------------------------------------------------------


def test_the_runs_that_nobody_asks_for_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "KEPT_RUNS", 2)
    home = FakeHome(tmp_path, ["a", "b", "c"])
    for run in "abc":
        home.write(*(said(i) for i in range(50)), run=run)
    history = history_of(home)
    for run in "abac":  # b is the one asked for least lately
        ask(history, run=run)
    for run, expected in (("a", 1), ("c", 1), ("b", 50)):
        with counted() as polled:
            assert ask(history, run=run).points == 50
            assert polled() == expected


def test_runs_are_read_before_anyone_asks(tmp_path: Path) -> None:
    home = FakeHome(tmp_path, ["a", "b"])
    for run in "ab":
        home.write(*(said(i) for i in range(50)), run=run)
    history = history_of(home)
    history.warm(["a", "nobody-knows", "b"])
    for run in "ab":
        with counted() as polled:
            assert ask(history, run=run).points == 50
            assert polled() == 1


def test_the_bytes_of_all_runs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "KEPT_BYTES", 1)
    home = FakeHome(tmp_path, ["a", "b"])
    for run in "ab":
        home.write(said(0), said(1), run=run)
    history = history_of(home)
    for run, expected in (("a", 2), ("a", 1), ("b", 2), ("b", 1), ("a", 2)):
        with counted() as polled:
            ask(history, run=run)
            assert polled() == expected, "one stays, whatever its size"


def test_the_oldest_records_of_an_endless_run_are_let_go(
    home: FakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_table, "KEPT_RECORDS", 600)
    monkeypatch.setattr(metric_table, "SLACK_RECORDS", 100)
    history = history_of(home)
    written = 0
    for _ in range(20):
        home.write(*(said(i) for i in range(written, written + 97)))
        written += 97
        found = one(history, "updates", points=10_000)
        assert found.value == list(range(written - len(found.value), written))
        assert min(600, written) <= len(found.value) <= 700


def test_the_names_of_a_strange_learner_are_bounded(
    home: FakeHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_table, "MOST_COLUMNS", 40)
    home.write(*(said(i, values={f"v{i}": 1.0}) for i in range(100)))
    found = ask(history_of(home), "mean_return_100", "ledger.trained")
    assert len(found.names) == 39  # and the time
    assert found.points == 100


# --- on a cluster --------------------------------------------------------------------------------


class ClusterHome(FakeHome):
    """Runs that share the topics of a cluster."""

    def __init__(self, servers: str, runs: Sequence[str]) -> None:
        super().__init__(Path("/nonexistent"), runs)
        self._servers = servers

    def read_run_bus(self, state: str) -> Bus | None:
        return KafkaBus(KafkaSettings(self._servers), state)

    def write(self, *records: TrainingMetrics | bytes, run: str = RUN) -> None:
        bus = KafkaBus(KafkaSettings(self._servers), run)
        for record in records:
            assert isinstance(record, TrainingMetrics)
            bus.publish([Outgoing(METRICS_TRAINING, encode_json(record), key=run)])
        bus.close()


def test_runs_that_share_a_topic_are_told_apart_and_followed() -> None:
    with MockCluster() as mock:
        mock.create_topic(NEWEST)
        mock.create_topic(METRICS_TRAINING)
        home = ClusterHome(mock.servers, ["a", "b"])
        home.write(said(1), said(2), run="a")
        home.write(said(7), run="b")
        history = history_of(home)
        assert one(history, "updates", run="a").value == [1, 2]
        assert one(history, "updates", run="b").value == [7]
        home.write(said(8), run="b")
        home.write(said(3), run="a")
        assert one(history, "updates", run="a").value == [1, 2, 3]
        assert one(history, "updates", run="b").value == [7, 8]


# --- in a real home ------------------------------------------------------------------------------


def test_a_home_is_told_as_its_own_views_tell_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    config = RunConfig(environment={"id": "CartPole-v1"})  # type: ignore[arg-type]
    content = {"config": config.model_dump(mode="json"), "spec": {}}
    home.send(CreateRun(run=RUN, config=content))
    history = History(home)
    assert ask(history).points == 0, "its bus is not made yet"

    bus = home.open_run_bus(RUN, config)
    for updates in (1, 4, 8, 5, 6):
        bus.publish([Outgoing(METRICS_TRAINING, encode_json(said(updates)), key=RUN)])
    bus.close()

    views = [metrics.updates for metrics in training_history(home, RUN)]
    assert one(history, "updates").value == views == [1, 4, 5, 6]
    home.close()
