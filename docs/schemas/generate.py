"""The JSON Schema of everything readable on the bus, a file per topic, from the types themselves.

python docs/schemas/generate.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from rookery import messages

HERE = Path(__file__).parent
TOPICS: dict[str, Any] = {
    messages.COMMANDS: messages.Command,
    messages.EVENTS: messages.Event,
    messages.EXPERIENCES: (
        messages.ActorJoined
        | messages.ActorLeft
        | messages.ActorAlive
        | messages.LearnerClaimed
        | messages.LearnerOrders
    ),
    messages.MODEL_UPDATES: (
        messages.Credits | messages.LeaguePools | messages.SeatsChanged | messages.CrewCalled
    ),
    messages.METRICS_TRAINING: messages.TrainingMetrics,
    messages.METRICS_ACTORS: messages.ActorMetrics,
}


def files() -> dict[str, str]:
    """Name and content of each file."""
    return {f"{topic}.json": _schema(topic, kind) for topic, kind in TOPICS.items()}


def _schema(topic: str, kind: Any) -> str:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"JSON messages in {topic}, schema version {messages.SCHEMA}",
        **msgspec.json.schema(kind),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for name, text in files().items():
        (HERE / name).write_text(text)
