"""What people call a run, as whoever creates one says it: a name, tags, notes."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rookery.control.actions import Parameters
from rookery.messages.commands import MOST_NAME, MOST_NOTES, MOST_TAG, MOST_TAGS, TAG_PATTERN

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

    def labels(self) -> dict[str, Any]:
        """Those alone."""
        return {"name": self.name, "tags": self.tags, "notes": self.notes}
