"""What the page shows of a run's files: logs, what workers take, evaluations, kept games."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.control.models import Worker
from rookery.messages import CommandRejected, Evaluate, JobDone
from rookery.server.http.logs import cleaned, read_log
from rookery.server.use import UseMeter
from tests.server.http.test_rest import Stage, detail, staged, wait_for


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("home")) as made:
        made.create("a-run")
        yield made


# --- logs ----------------------------------------------------------------------------------------


def test_a_log_is_read_from_its_end_searched_and_followed(stage: Stage) -> None:
    log = stage.home.run_dir("a-run") / "logs" / "actor-0.1.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {n}\n" for n in range(10)) + "Warning: hot\nnot en")
    found = stage.got("runs/a-run/logs/actor-0.1.log?limit=3")
    assert [line["text"] for line in found["lines"]] == ["line 9", "Warning: hot", "not en"]
    assert found["more"] and found["next"] == found["lines"][-1]["at"]
    with log.open("a") as file:
        file.write("ded\nnew\n")
    later = stage.got(f"runs/a-run/logs/actor-0.1.log?after={found['next']}")
    assert [line["text"] for line in later["lines"]] == ["not ended", "new"]
    assert later["next"] == log.stat().st_size and not later["more"]
    assert stage.got(f"runs/a-run/logs/actor-0.1.log?after={later['next']}")["lines"] == []
    searched = stage.got("runs/a-run/logs/actor-0.1.log?search=wArn")
    assert [line["text"] for line in searched["lines"]] == ["Warning: hot"]
    log.write_text("cut\n")  # as a launcher does with one that has become too long
    again = stage.got(f"runs/a-run/logs/actor-0.1.log?after={later['next']}")
    assert [line["text"] for line in again["lines"]] == ["cut"]


def test_only_logs_of_the_run_are_read(stage: Stage) -> None:
    for name in ("nobody-0.1.log", "..%2Fmessages.db", "%2Fetc%2Fpasswd"):
        answer = stage.ask("GET", f"runs/a-run/logs/{name}")
        assert answer.status_code in (404, 422), answer.text
    assert "artifact" in detail(stage.ask("GET", "runs/a-run/logs/nobody-0.1.log"), 404)


def test_a_page_of_lines_says_where_the_next_begins(tmp_path: Path) -> None:
    (log := tmp_path / "log").write_text("a\nb\nc\n")
    first = read_log(log, 0, 2)
    assert ([line.text for line in first.lines], first.next, first.more) == (["a", "b"], 4, True)
    assert [line.text for line in read_log(log, first.next, 2).lines] == ["c"]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07end\r\n", "red end"),
        (b"10%\r20%\r30%\n", "30%"),
        ("a\u202eb\x07\tc".encode(), "ab\tc"),
        (b"\xff", "�"),
        (b"x" * 5000, "x" * 2000 + "…"),
    ],
)
def test_what_others_wrote_moves_no_cursor_and_turns_no_text(raw: bytes, text: str) -> None:
    assert cleaned(raw) == text


# --- what workers take ---------------------------------------------------------------------------


def worker(pid: int, alive: bool = True, host: str = "") -> Worker:
    return Worker.model_construct(kind="actor", index=0, pid=pid, alive=alive, host=host)


def test_how_busy_a_worker_is_takes_two_looks() -> None:
    now = [100.0]
    meter = UseMeter(lambda: now[0])
    elsewhere = worker(os.getpid(), host="10.0.0.2")  # that pid is another's here
    first = meter.of([worker(os.getpid()), worker(1, alive=False), elsewhere])
    assert [each.cpu for each in first.workers] == [None]
    assert (first.workers[0].memory_bytes or 0) > 1 << 20
    assert sum(range(3_000_000))  # work that can be counted
    now[0] += 1.0
    second = meter.of([worker(os.getpid())])
    assert 0 < (second.workers[0].cpu or 0) < 60
    assert (second.machine.cpu or 0) >= 0 and second.machine.cpus >= 1
    assert 0 < (second.machine.memory_used_bytes or 0) < second.machine.memory_bytes
    assert meter.of([worker(os.getpid())]).workers == second.workers  # a moment later: the same


def test_what_the_machine_takes_is_told_of_any_run(stage: Stage) -> None:
    found = stage.got("runs/a-run/use")
    assert found["workers"] == [] and found["machine"]["memory_bytes"] > 0


# --- evaluations, games, and who asks ------------------------------------------------------------


def test_evaluations_are_listed_with_what_came_of_them(stage: Stage) -> None:
    run = stage.create("evaluated")
    done, failed, refused = (Evaluate(run=run, episodes=n, author="ann") for n in (5, 6, 7))
    for each in (done, failed, refused):
        stage.home.send(each)
    result = {"env_steps": 100, "greedy": {"mean": 3.0}}
    stage.home.record(JobDone(run=run, command=done.id, result=result))
    stage.home.record(JobDone(run=run, command=failed.id, error="no checkpoint yet"))
    stage.home.record(CommandRejected(run=run, command=refused.id, why="no"))

    def found() -> list[dict[str, object]]:
        listed: list[dict[str, object]] = stage.got(f"runs/{run}/evaluations")["evaluations"]
        return listed

    wait_for(lambda: [each["episodes"] for each in found() if each["done_s"]] == [5, 6])
    first, second = found()[:2]
    assert (first["author"], first["result"], first["error"]) == ("ann", result, "")
    assert (second["result"], second["error"]) == ({}, "no checkpoint yet")


def test_a_run_without_matches_has_no_games(stage: Stage) -> None:
    assert stage.got("runs/a-run/games") == {"matches": []}


def test_a_token_says_what_it_may_do(stage: Stage) -> None:
    for scope in ("read", "operate", "admin"):
        me = stage.ask("GET", "me", scope=scope).json()
        assert (me["scope"], me["label"]) == (scope, f"{scope}er")
