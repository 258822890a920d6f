"""docs/schemas holds the schema of every readable message, as the types have it now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from rookery.control.bus_topics import TOPICS
from rookery.messages import JsonMessage

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", SCHEMAS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_current(script: ModuleType) -> None:
    found = {path.name: path.read_text() for path in SCHEMAS.glob("*.json")}
    assert found == script.files(), "run: python docs/schemas/generate.py"


def test_every_readable_message_has_a_schema(script: ModuleType) -> None:
    described = [kind for topic in script.TOPICS.values() for kind in get_args(topic) or (topic,)]
    assert set(described) == set(get_args(JsonMessage)) and len(described) == len(set(described))


def test_a_topic_is_read_as_what_its_schema_says(script: ModuleType) -> None:
    assert {topic.name for topic in TOPICS} == script.TOPICS.keys()
    for topic in TOPICS:
        assert topic.kind in (None, script.TOPICS[topic.name])
