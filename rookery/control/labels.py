"""What people call a run, as whoever creates one says it: a name, tags, notes, a group."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rookery.control.actions import Parameters
from rookery.messages.commands import (
    GROUP_PATTERN,
    MOST_NAME,
    MOST_NOTES,
    MOST_TAG,
    MOST_TAGS,
    TAG_PATTERN,
)

Tag = Annotated[str, Field(max_length=MOST_TAG, pattern=TAG_PATTERN)]


class Labels(Parameters):
    """The labels of CreateRun, with its limits."""

    name: str = Field(
        default="", max_length=MOST_NAME, description="for people; several may have one"
    )
    tags: list[Tag] = Field(
        default=[], max_length=MOST_TAGS, description="to find it by: words without spaces"
    )
    notes: str = Field(default="", max_length=MOST_NOTES, description="whatever is worth keeping")
    group: str = Field(
        default="",
        max_length=MOST_TAG,
        pattern=GROUP_PATTERN,
        description="runs that belong together, like seeds of one config: a word without spaces",
    )

    def labels(self) -> dict[str, Any]:
        """Those alone."""
        return {label: getattr(self, label) for label in Labels.model_fields}
