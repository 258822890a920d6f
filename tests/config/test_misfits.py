"""One line for what does not fit a schema, at every door."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rookery.config.misfits import misfits, unknown_of
from rookery.errors import MOST_TOLD


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    depth: int = 1


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")
    status: Literal["", "running", "paused"] = ""
    count: int = Field(default=1, ge=1)
    name: str = ""
    inner: Inner = Inner()

    @field_validator("name")
    @classmethod
    def _is_short(cls, name: str) -> str:
        if len(name) > 3:
            raise ValueError(f"the name {name!r} is too long")
        return name


@pytest.mark.parametrize(
    ("sent", "typed_here", "from_afar"),
    [
        (
            {"status": "runing"},
            "status: input should be 'running' or 'paused' (got 'runing'); did you mean running?",
            "status: input should be 'running' or 'paused'; did you mean running?",
        ),
        (
            {"count": 0},
            "count: input should be greater than or equal to 1 (got 0)",
            "count: input should be greater than or equal to 1",
        ),
        (
            {"name": "secret"},
            "the name 'secret' is too long",
            "name: value error, the name 'secret' is too long",
        ),
        ({"statu": 1}, *["unknown key 'statu'; did you mean status?"] * 2),
        ({"inner": {"dept": 1}}, *["unknown key 'inner.dept'"] * 2),
        (7, "body: input should be a valid dictionary or instance of Asked (got 7)", None),
    ],
    ids=lambda sent: str(sent) if isinstance(sent, dict | int) else "",
)
def test_what_is_wrong_is_one_line(sent: Any, typed_here: str, from_afar: str | None) -> None:
    known = unknown_of("key", Asked.model_fields)
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate(sent)
    errors = caught.value.errors(include_url=False)
    assert misfits(errors, known, repeat=True, whole="body") == typed_here
    if from_afar is not None:
        assert misfits(errors, known, whole="body") == from_afar


def test_many_problems_are_counted() -> None:
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate({f"wrong{number}": 1 for number in range(MOST_TOLD + 3)})
    line = misfits(caught.value.errors(), unknown_of("key", ()))
    assert line.count("unknown key") == MOST_TOLD and line.endswith("; and 3 more")
