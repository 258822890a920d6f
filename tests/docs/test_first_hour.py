"""The first hour: every command of the pages, as written, by somebody who has just cloned it.

    make pages

README.md in a clone with an environment of its own, which `make run` makes, and a cold compile
cache; the other pages with the packages of the tests. Each line of the output is a command with its
exit code, how long it took and the longest time in which nothing moved. On a quiet machine that is
at most PROMISED_S; where others work beside it there is only a bound. session.py says what is
shortened. Configs that a page shows are read by test_pages.py, and trained by test_examples.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import ROOT, Cli
from tests.docs.pages import PAGES, all_commands, fences
from tests.docs.session import Session, Typed, shortened

if TYPE_CHECKING:
    from tools.kafka.broker import Cluster

PROMISED_S, BOUND_S = 3.0, 60.0  # nothing moved for longer
THE_TESTS = "the tests themselves"
INSPECTOR = (
    "npx @modelcontextprotocol/inspector --cli http://127.0.0.1:7860/mcp --transport http "
    '--header "Authorization: Bearer rk_TOKEN" --method tools/call --tool-name list_runs'
)
NOT_HERE = {  # command, as written -> why it is not typed
    INSPECTOR: "a package of npm with a token of the reader's: tests/foreign_clients has it",
    "make test": THE_TESTS,
    "make check": THE_TESTS,
    "make soak": THE_TESTS,
    "make storm": THE_TESTS,
    "make strangers": THE_TESTS,
    "make pages": THE_TESTS,
    "rookery train CartPole-v1 --bus kafka://broker:9093 --bus-config kafka.yaml": (
        "a cluster with TLS and a log-in: tests/bus/kafka/test_bad_input.py has one"
    ),
}
SAYS = {  # what a command begins with -> what the pages say that it prints
    "make run": r"solved: .*475[\s\S]*next: .*rookery",
    "rookery train CartPole-v1 --until-return 475": r"solved: [\s\S]*try: ",
    "rookery train": r"(solved|finished|limited): [\s\S]*try: ",
    "rookery sweep CartPole-v1": r"best: trial \d+ with",
    "rookery match": r"script:|points",
    "rookery ladder": r"main@0",
    "rookery serve": r"http://127\.0\.0\.1:\d+/#token=rk_",
    "rookery runs list": r"RUN +ENVIRONMENT",
    "rookery tokens create": r"rk_[0-9a-f]{8}_",
    "rookery bus topics": r"experiences[\s\S]*model_updates",
    "rookery bus tail metrics.training": r"\{",
    "rookery bus tail experiences": r"kind=.* bytes",
    "rookery bus lag": r"steps|records",
    "kcat -C -b 127.0.0.1:9092 -t metrics.training": r"env_steps",
    "curl": r"\{",
}
WITH_SERVER = ("docs/mcp.md",)  # whose reader has one that runs


def test_what_is_not_typed_is_on_a_page() -> None:
    shown = [command for _, command in all_commands()]
    assert not NOT_HERE.keys() - set(shown)
    assert not [words for words in SAYS if not any(c.startswith(words) for c in shown)]


def test_what_is_shortened_is_only_how_long_it_trains() -> None:
    assert shortened("rookery train A --steps 2_000_000 --seed 1") == (
        "rookery train A --steps 20000 --seed 1"
    )
    assert shortened("rookery train A --until-return 475") == "rookery train A --until-return 475"
    assert shortened("rookery train A").endswith("--steps 20000")
    assert shortened("rookery eval last") == "rookery eval last"
    assert shortened("rookery sweep A --trials 8 --generations 2 --steps 9") == (
        "rookery sweep A --trials 3 --generations 2 --steps 9"
    )
    assert shortened("rookery sweep --config sweep.yaml").endswith("--trials 3 --seeds 1")
    assert shortened("rookery sweep show last") == "rookery sweep show last"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Fresh, of what is committed."""
    place = tmp_path / "rookery"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(place)], check=True, timeout=120)
    return place


@pytest.fixture
def session(cli: Cli, clone: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    page = request.node.callspec.params["page"]
    if page == "README.md":
        cli.environment["ROOKERY_COMPILE_CACHE"] = str(clone.parent / "cold")
    on_kafka = any("kafka://127.0.0.1" in fence.text for fence in fences(page))
    cluster: Cluster | None = request.getfixturevalue("kafka") if on_kafka else None
    made = Session(cli, clone, cluster.servers if cluster else "")
    yield made
    for process in cli.processes():  # of a session that failed; a good one leaves none
        process.kill()


@pytest.mark.soak
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("page", [page for page in PAGES if fences(page, "", "sh", "python")])
def test_a_page_can_be_typed(session: Session, page: str) -> None:
    if page in WITH_SERVER:
        session.serve(page)
    session.page(page, NOT_HERE)
    session.close()
    wrong = [line for typed in session.typed if (line := fault(typed))]
    assert not wrong, "\n".join(wrong)


def fault(typed: Typed) -> str:
    """What a command did that the pages do not say; empty where all is well."""
    command, shown = typed.command, typed.shown
    code = 3 if "\nlimited: " in shown.text else 0
    said = f"{typed.where}: {command}\n{shown.text[-2000:]}\n"
    if shown.code != code and not (shown.code == 130 and command == "rookery mcp"):
        return f"exit code {shown.code}: {said}"
    promised = next((SAYS[words] for words in SAYS if command.startswith(words)), "")
    if not re.search(promised, shown.text):
        return f"does not say {promised}: {said}"
    if "Traceback" in shown.text or (command.startswith("curl") and '"title"' in shown.text):
        return f"failed: {said}"
    ours = command.startswith(("rookery", "make"))  # what a program or pip prints is its own
    silent = ours and shown.silence_s > BOUND_S
    return f"silent for {shown.silence_s:.0f} s: {said}" if silent else ""
