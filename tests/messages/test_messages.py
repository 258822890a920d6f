"""Every JSON record comes back as it was; nothing else is taken for one."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import typing
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery import messages
from rookery.errors import MessageError
from rookery.messages import (
    MAX_JSON_BYTES,
    SCHEMA,
    ActorId,
    Command,
    CreateRun,
    Credits,
    Event,
    JsonMessage,
    LeagueMetrics,
    LedgerSummary,
    PolicyMetrics,
    RunEnded,
    StartRun,
    WeightsVersion,
    decode_json,
    encode_json,
)

KINDS = typing.get_args(JsonMessage)
LEDGER = LedgerSummary(
    trained=3, dropped={"abandoned": 1}, pending=2, position=(7,), seen={"0.1": 6}, gaps=1
)
SAMPLES: dict[Any, Any] = {
    "str": "tëxt",
    "int": -3,
    "float": 1.5,
    "bool": True,
    "dict[str, int]": {"0.1": 4},
    "dict[str, Any]": {"a": [1, None, {"b": 2.5}]},
    "dict[str, float | None]": {"kl": 0.1, "entropy": None},
    "float | None": None,
    "LedgerSummary": LEDGER,
    "dict[str, dict[str, float]]": {"main": {"main@3": 0.5}},
    "tuple[str, ...]": ("main@3",),
    "tuple[str, ...] | None": ("0.1",),
    "tuple[str, str]": ("main@3", "script:random"),
    "dict[str, str]": {"main@3": "file"},
    "dict[str, float]": {"player_0": 0.5},
    "dict[str, PolicyMetrics]": {
        "main": PolicyMetrics(
            trained=3,
            episodes=2,
            mean_return_100=None,
            min_return_100=-1.5,
            max_return_100=2.5,
            values={"kl": 0.1},
        )
    },
    "LeagueMetrics | None": LeagueMetrics(
        snapshots=2,
        rated_games=9,
        newest="main@3",
        rating=25.0,
        uncertainty=8.0,
        points={"script:random": 0.5},
    ),
}
PARTS = (LedgerSummary, LeagueMetrics, PolicyMetrics)  # of a record


SAMPLES |= {
    "Origin": "network",
    "int | None": 5,
    "Name": "a try",
    "Tags": ["nightly"],
    "Notes": "so far",
    "Group": "seeds-1",
    **{
        ("LabelRun", key): value
        for key, value in (("name", "a"), ("tags", ["b"]), ("notes", "c"), ("group", "d"))
    },
    ("ResumeRun", "steps"): 3,
    **{("ResumeRun", bound): 1.5 for bound in ("minutes", "until_return")},
    ("LearnerOrders", "stop"): {"steps": 3, "minutes": 1.5, "until_return": None},
    ("ScaleActors", "count"): 3,
    ("ScaleLearner", "count"): 3,
    ("SetHyperparameters", "values"): {"algorithm.learning_rate": 1e-4},
    ("SetSeatMap", "seats"): {"*": {"draw": [{"player": "main", "weight": 1.0}]}},
    ("Evaluate", "episodes"): 7,
    ("PlayMatch", "games"): 7,
    **{(kind, "seed"): 3 for kind in ("Evaluate", "PlayMatch")},
    **{("PlayMatch", side): "script:random" for side in "ab"},
    ("PlayMatch", "sampled"): True,
    ("Evaluate", "player"): "script:random",
    ("TrainingMetrics", "min_return_100"): -1.5,
    ("TrainingMetrics", "max_return_100"): 2.5,
}


def sample(kind: type) -> Any:
    """One with every field set to something that is not its default."""
    values = {
        f.name: SAMPLES.get((kind.__name__, f.name)) or SAMPLES[kind_name(kind, f.name)]
        for f in msgspec.structs.fields(kind)
    }
    return kind(**{**values, "schema": SCHEMA})


def kind_name(kind: type, field: str) -> str:
    for base in kind.__mro__:
        if field in (found := inspect.get_annotations(base)):
            return str(found[field])
    raise AssertionError(field)


def test_the_list_of_records_is_the_one_that_is_tested() -> None:
    declared = {
        value
        for name, value in vars(messages).items()
        if isinstance(value, type)
        and issubclass(value, msgspec.Struct)
        and not name.startswith("_")
        and value not in (*PARTS, messages.JsonRecord)
    }
    assert declared == set(KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_record_comes_back_as_it_was_by_its_type_and_by_the_union(kind: type) -> None:
    message = sample(kind)

    payload = encode_json(message)

    assert decode_json(payload, kind) == message
    assert decode_json(payload, JsonMessage) == message
    assert json.loads(payload)["schema"] == SCHEMA


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_another_schema_version_of_any_record_is_refused(kind: type) -> None:
    message = msgspec.structs.replace(sample(kind), schema=SCHEMA + 1)

    with pytest.raises(MessageError, match=f"schema version {SCHEMA + 1}"):
        decode_json(encode_json(message), kind)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'"text"',
        b"\xff\xfe",
        b'{"type":"start_run"}',
        b'{"type":"start_run","run":1}',
        b'{"type":"start_run","run":"\xff"}',
        b'{"type":"start_run","run":"r","time_s":"soon"}',
        b'{"type":"invent_run","run":"r"}',
        b'{"type":"start_run","run":"r"} trailing',
        b'{"type":"create_run","run":"r","config":' + b"[" * 100_000,
        b'{"type":"create_run","run":"r","config":[1]}',
    ],
)
def test_junk_is_a_message_error(payload: bytes) -> None:
    with pytest.raises(MessageError):
        decode_json(payload, Command)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=100))
def test_random_bytes_are_a_message_error(payload: bytes) -> None:
    for kind in (Command, Event, Credits):
        with pytest.raises(MessageError):
            decode_json(payload, kind)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_record_is_a_message_error_or_another_record(data: st.DataObject) -> None:
    payload = bytearray(encode_json(sample(CreateRun)))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    try:
        found = decode_json(bytes(payload[: data.draw(st.integers(at, len(payload)))]), Command)
    except MessageError:
        return
    assert isinstance(found, CreateRun)


def test_a_record_of_another_type_is_a_message_error() -> None:
    with pytest.raises(MessageError):
        decode_json(encode_json(RunEnded(run="r", status="solved", reason="")), Command)


def test_a_message_over_the_size_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(MessageError, match="over"):
        decode_json(b" " * (MAX_JSON_BYTES + 1), Command)


def test_every_command_gets_an_id_of_its_own() -> None:
    assert StartRun(run="r").id != StartRun(run="r").id


def test_versions_order_by_generation_first() -> None:
    assert WeightsVersion(1, 900) < WeightsVersion(2, 3) < WeightsVersion(2, 4)
    assert str(WeightsVersion(2, 4)) == "2.4"


def test_an_actor_id_reads_back_from_its_text() -> None:
    assert ActorId.parse(str(ActorId(3, 12))) == ActorId(3, 12)


def test_threads_that_meet_a_type_for_the_first_time_do_not_crash() -> None:
    script = """
import sys, threading
from rookery import messages
sys.setswitchinterval(1e-6)
payload = messages.encode_json(messages.JobDone(run="a", command="b", result={"x": 1}))
barrier = threading.Barrier(8)
def read():
    barrier.wait()
    assert messages.decode_json(payload, messages.Event).run == "a"
    assert messages.decode_or_none(payload, messages.TrainingMetrics) is None
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    for _ in range(3):
        subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
