"""Runs have names: given at creation, found by the list, asked about before they are deleted."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import Any

import pytest

from tests.conftest import Cli

SUBMIT = ("submit", "CartPole-v1", "--no-start")


@pytest.fixture(scope="module")
def named(shared_cli: Cli) -> list[str]:
    """Three runs, the oldest first."""
    labels: list[tuple[Any, ...]] = [
        ("--name", "baseline", "--tag", "nightly", "--tag", "good", "--notes", "the first"),
        ("--tag", "nightly"),
        (),
    ]
    made = (
        shared_cli(*SUBMIT, "--seed", seed, *asked, "--json") for seed, asked in enumerate(labels)
    )
    return [done.json["run"] for done in made]


def test_a_run_is_named_at_creation_and_found_by_it(shared_cli: Cli, named: list[str]) -> None:
    shown = shared_cli("runs", "show", "baseline", "--json").json
    assert shown["run"] == named[0]
    assert (shown["name"], shown["tags"], shown["notes"]) == (
        "baseline",
        ["nightly", "good"],
        "the first",
    )
    text = shared_cli("runs", "list").stdout
    assert "NAME" in text and "nightly,good" in text


def test_a_list_is_searched_sorted_and_cut(shared_cli: Cli, named: list[str]) -> None:
    def listed(*options: object) -> list[str]:
        rows = shared_cli("runs", "list", *options, "--json").json["runs"]
        return [row["run"] for row in rows if row["run"] in named]

    first, second, third = named
    assert listed() == named  # the newest last, at the prompt
    assert listed("--tag", "nightly") == [first, second]
    assert listed("--tag", "nightly", "--limit", 1) == [second]
    assert listed("first seed=0") == [first]
    assert listed("--status", "running") == []
    assert listed("--sort", "seed") == [third, second, first]
    assert listed("--sort", "seed", "--order", "asc") == named
    table = shared_cli("runs", "list", "seed=2", "--column", "seed").stdout.splitlines()
    assert table[0].endswith("seed") and table[1].startswith(third) and table[1].endswith("2")
    assert "no run fits" in shared_cli("runs", "list", "nobody").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("runs", "list", "--sort", "retrun"), "did you mean return"),
        (("runs", "list", "--status", "runing"), "be 'created', "),
        (("runs", "list", "--status", "runing"), "did you mean running?"),
        (("runs", "list", "--limit", 0), "at least 1"),
        ((*SUBMIT, "--tag", "two words"), "a tag is one word"),
        ((*SUBMIT, "--name", "x" * 101), "out of range"),
        ((*SUBMIT, "--name", "x" * 101, "--dry-run"), "out of range"),
        (("runs", "delete", "baseline"), "add --yes"),
    ],
)
def test_what_cannot_be_is_one_line(
    shared_cli: Cli, named: list[str], arguments: tuple[object, ...], says: str
) -> None:
    assert says in shared_cli.refused(*arguments)


def test_a_person_is_asked_before_a_run_is_deleted(shared_cli: Cli) -> None:
    run = shared_cli(*SUBMIT, "--json").json["run"]
    for answer, code, left in ((b"n\n", 2, True), (b"y\n", 0, False)):
        keyboard, terminal = pty.openpty()
        os.write(keyboard, answer)
        done = subprocess.run(
            shared_cli._argv(("runs", "delete", run)),
            env=shared_cli.environment,
            stdin=terminal,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        os.close(keyboard)
        os.close(terminal)
        assert f"{run} (CartPole-v1, created, 0 steps)" in done.stderr
        assert (done.returncode, run in shared_cli.home.states()) == (code, left)
