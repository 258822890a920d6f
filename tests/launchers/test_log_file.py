"""Logs of workers: short ones are left alone, long ones keep their beginning and their end."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rookery.launchers import WorkerSpec
from rookery.launchers.local import LocalLauncher
from rookery.launchers.log_file import FIRST_BYTES, LIVES, MOST_BYTES, NEWEST_BYTES, bound
from rookery.worker import WorkerId

LEFT_OUT = re.compile(r"\[rookery left out ([\d,]+) bytes here: .*\]")


def line(number: int) -> bytes:
    return b"%012d and some words\n" % number


def written(path: Path, first: int, upto: int) -> int:
    with open(path, "ab") as file:
        return file.write(b"".join(map(line, range(first, upto))))


def left_out(text: str) -> int:
    (found,) = LEFT_OUT.findall(text)
    return int(found.replace(",", ""))


def test_a_short_log_is_left_alone_and_a_missing_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "actor-0.1.log"
    bound(path)
    written(path, 0, 1000)
    before = path.read_bytes()
    bound(path)
    assert path.read_bytes() == before


def test_a_long_log_keeps_its_first_and_newest_lines_and_counts_what_is_gone(
    tmp_path: Path,
) -> None:
    path, count, total = tmp_path / "actor-0.1.log", 0, 0
    for _ in range(3):  # a second cut goes on counting
        total += written(path, count, count + 400_000)
        count += 400_000
        assert path.stat().st_size > MOST_BYTES
        bound(path)
        text = path.read_text()
        lines = text.splitlines()
        assert path.stat().st_size < FIRST_BYTES + NEWEST_BYTES + 200
        assert lines[0] == line(0).decode().strip()
        assert lines[-1] == line(count - 1).decode().strip()
        said = next(each for each in lines if LEFT_OUT.fullmatch(each))
        assert len(text) - len(said) - 1 + left_out(text) == total
        assert all(len(each) == len(lines[0]) for each in lines if each != said)


def test_a_log_without_lines_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "actor-0.1.log"
    path.write_bytes(b"." * (MOST_BYTES + 1))
    bound(path)
    assert path.stat().st_size < FIRST_BYTES + NEWEST_BYTES + 200


FLOOD = """
import os
for i in range(1_500_000): os.write(1, b"%012d and some words\\n" % i)
os.write(2, b"last words\\n")
os.abort()
"""


def test_a_worker_that_writes_and_dies_while_its_log_is_cut_leaves_its_last_words(
    tmp_path: Path,
) -> None:
    path = tmp_path / "actor-0.1.log"
    with open(path, "ab") as log:
        flood = subprocess.Popen([sys.executable, "-c", FLOOD], stdout=log, stderr=log)
    largest, until = 0, time.monotonic() + 60
    while flood.poll() is None:
        assert time.monotonic() < until, "the flood does not end"
        largest = max(largest, path.stat().st_size)
        bound(path)
        time.sleep(0.001)
    bound(path)
    text = path.read_text()
    assert text.startswith(line(0).decode()) and text.endswith("last words\n")
    assert largest < 3 * MOST_BYTES and path.stat().st_size <= MOST_BYTES
    lost = 1_500_000 * len(line(0)) + len("last words\n") - left_out(text)
    lost -= len(text) - len(LEFT_OUT.search(text)[0]) - 1  # type: ignore[index]
    assert 0 <= lost < 1 << 20, "what was written in the moments of the cuts, and no more"


@pytest.fixture
def printing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """`python -m rookery` is a program that prints without an end."""
    package = tmp_path / "path" / "rookery"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("while True: print('x' * 1000)\n")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    return tmp_path / "logs"


def test_the_launcher_bounds_the_logs_of_its_workers_and_how_many_there_are(
    printing: Path,
) -> None:
    printing.mkdir()
    for incarnation in range(1, 31):
        (printing / f"actor-0.{incarnation}.log").write_text("an earlier life\n")
    (printing / "actor-10.1.log").write_text("another worker\n")
    launcher = LocalLauncher(printing)
    spec = WorkerSpec(WorkerId("actor", 0, 31), ("actor",), {})
    path = printing / f"{spec.name}.log"
    try:
        launcher.apply({spec.name: spec})
        until = time.monotonic() + 60
        while not (path.exists() and b"rookery left out" in path.read_bytes()):
            assert launcher.observe()[spec.name].code is None and time.monotonic() < until
            launcher.work(0.02)
    finally:
        launcher.close()
    kept = {f"actor-0.{n}.log" for n in range(32 - LIVES, 32)}
    assert {p.name for p in printing.iterdir()} == kept | {"actor-10.1.log"}
