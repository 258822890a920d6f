"""What others wrote steers neither a terminal nor a page."""

from __future__ import annotations

import argparse
import io
import json
import unicodedata
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.cli import main, text
from rookery.cli.exits import BAD_INPUT
from rookery.cli.progress import Progress
from rookery.config.reading import build
from rookery.control.log_messages import Message
from rookery.control.models import AuditEntry, Diagnosis
from rookery.errors import InputError
from rookery.foreign import clean, clean_json, one_line
from rookery.messages import RunEnded, encode_json
from rookery.server.http.problems import problem
from rookery.server.http.rest import answer, plain
from rookery.server.stream.protocol import entry

# clears the screen, writes a title, turns round what follows, and begins a line anew
NASTY = "one\x1b[2J\x1b[31;1m two\x1b]0;title\x07 \x9b3mthree\u202e four\u2066\x08\r five"
PLAIN = "one two 3mthree four five"
RUN = "cartpole-abc12"


def test_what_steers_is_left_out_and_what_can_be_read_stays() -> None:
    assert clean(NASTY) == PLAIN
    kept = "naïve 漢字 שלום مرحبا 👩‍🔬 \u00a0\n\ttab"
    assert clean(kept) == kept
    assert clean({"a": [NASTY, 1, None]}) == {"a": [PLAIN, 1, None]}
    assert one_line(f"{NASTY}\n\n six") == f"{PLAIN} six"


@given(st.text())
def test_nothing_that_steers_is_left(text: str) -> None:
    left = clean(text)
    assert not [c for c in left if unicodedata.category(c) == "Cc" and c not in "\n\t"]
    directions = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    assert not [c for c in left if unicodedata.bidirectional(c) in directions]
    assert json.loads(clean_json(json.dumps([text]))) == [left]
    assert json.loads(clean_json(json.dumps([text], ensure_ascii=False))) == [left]


def test_json_that_is_clean_is_left_as_it_is() -> None:
    written = '{"a": 1.0, "b": "漢字 שלום"}'
    assert clean_json(written) is written


# --- terminals -----------------------------------------------------------------------------------


def test_an_error_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(argv: Any) -> argparse.Namespace:
        raise InputError(NASTY)

    monkeypatch.setattr(main, "_parse", refuse)
    assert main.run([], 0.0) == BAD_INPUT
    assert capsys.readouterr().err == f"rookery: {PLAIN}\n"


def test_why_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text.print_diagnosis({"summary": NASTY, "detail": f"{NASTY}\n  line"}, as_json=False)
    assert capsys.readouterr().out == f"{PLAIN}\n{PLAIN}\n  line\n"


def test_the_progress_line_and_how_it_ended() -> None:
    out = io.StringIO()
    progress = Progress(RUN, out, build({"environment": {"id": "CartPole-v1"}}))
    progress(SimpleNamespace(workers={}, status="running"), None, NASTY)  # type: ignore[arg-type]
    row = {"run": RUN, "status": "failed", "reason": NASTY, "mean_return_100": None}
    progress.summary({**row, "env_steps": 0, "train_s": 0.0, "wall_s": 1.0, "steps_per_s": None})
    assert out.getvalue().startswith(f"waiting: {PLAIN}\nfailed: {PLAIN}\n")


def audited(**said: Any) -> AuditEntry:
    known: dict[str, Any] = {"seq": 1, "run": RUN, "command": "c", "kind": "pause_run"}
    known |= {"author": "ann", "origin": "network", "reason": "", "time_s": 0.0, "data": {}}
    return AuditEntry(**{**known, "outcome": "rejected", "why": "", **said})


def test_the_audit_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    entries = [audited(author=NASTY, reason=NASTY, why=NASTY, run=f"{RUN}\u202e")]
    text.print_audit(argparse.Namespace(count=9, json=False), entries)
    _, line = capsys.readouterr().out.splitlines()
    assert line.count(PLAIN) == 3 and clean(line) == line and f"{RUN} " in line


# --- pages ---------------------------------------------------------------------------------------


def test_answers_of_a_server() -> None:
    found = Diagnosis(run=RUN, status="failed", component=None, summary=NASTY, detail=NASTY)
    assert json.loads(answer(found).body)["detail"] == PLAIN
    assert json.loads(plain({"why": NASTY}).body) == {"why": PLAIN}
    assert json.loads(problem(422, NASTY).body)["detail"] == PLAIN
    assert json.loads(answer(audited(data={"a": NASTY})).body)["data"] == {"a": PLAIN}


def test_entries_of_the_stream() -> None:
    ended = encode_json(RunEnded(run=RUN, status="failed", reason=NASTY))
    escaped = json.dumps(json.loads(ended)).encode()  # by somebody else's encoder
    for payload in (ended, escaped):
        message = Message("events", 1, RUN, "run_ended", 0.0, payload)
        assert json.loads(entry(message))["data"]["reason"] == PLAIN
