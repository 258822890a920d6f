"""A new family of environments is one file (toy_family.py) and one line in `envs/family.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

import rookery
from rookery.config.reading import build
from rookery.control.allow import refused
from rookery.control.settings import Allow
from rookery.envs import family
from rookery.envs.registry import describe, search
from rookery.errors import InputError, UnknownName


@pytest.fixture(autouse=True)
def the_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setitem(family.FAMILIES, "toy:", "toy_family:TOY")


def test_its_ids_are_listed_checked_and_not_taken_for_code() -> None:
    assert [info.id for info in search("parity")] == ["toy:4", "toy:8"]
    assert describe("toy:4").seats
    with pytest.raises(UnknownName, match="toy:8"):
        describe("toy:9")
    assert refused(build({"environment": {"id": "toy:4"}}), Allow()) is None


def test_without_the_line_it_is_a_module_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(family.FAMILIES, "toy:")
    with pytest.raises(InputError, match="there is no module 'toy'"):
        describe("toy:4")


def test_a_run_learns_in_it(tmp_path: Path) -> None:
    run = rookery.train(
        "toy:8", launcher="inline", until_return=7.5, steps=60_000, home=tmp_path, quiet=True
    )
    assert run.status == "solved"
