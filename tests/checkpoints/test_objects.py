"""Objects: whole or not there when a writer is killed; one line where a store cannot be used."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from rookery.checkpoints import objects, reach
from rookery.checkpoints.objects import ObjectStore
from rookery.checkpoints.reach import Remote, bounded
from rookery.checkpoints.store import open_store
from rookery.checkpoints.writers import is_gone, writer_name
from rookery.errors import (
    DamagedCheckpoint,
    InputError,
    MissingExtra,
    StoreError,
    StoreRefused,
    UnknownName,
)
from tests.checkpoints.s3_server import BUCKET, SECRET, S3Server, needs_s3
from tests.checkpoints.store_writer import content

WRITER = Path(__file__).with_name("store_writer.py")
SAVED_S = 60.0


@pytest.fixture
def place() -> str:
    return f"objects-{uuid4().hex}"


class Memory:
    """A store in memory, and what is in it."""

    def __init__(self, place: str) -> None:
        self.uri = f"memory://{place}/checkpoints"

    def store(self, abandoned_s: float = 3600.0) -> ObjectStore:
        return ObjectStore(Remote(self.uri, 1.0), abandoned_s)

    def put(self, path: str) -> None:
        Remote(self.uri).call(lambda files, root: files.pipe_file(f"{root}/{path}", b"x"))

    def paths(self) -> list[str]:
        return Remote(self.uri).call(
            lambda files, root: sorted(p.removeprefix(f"{root}/") for p in files.find(root))
        )


@pytest.fixture
def memory(place: str) -> Iterator[Memory]:
    fsspec = pytest.importorskip("fsspec")
    yield Memory(place)
    fsspec.filesystem("memory").store.clear()


def gone_writer() -> str:
    """The name of a process of this machine that has ended."""
    program = "from rookery.checkpoints.writers import writer_name; print(writer_name())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


def far_writer() -> str:
    return "f" + writer_name()


# --- writers -------------------------------------------------------------------------------------


def test_a_writer_is_gone_only_when_its_process_has_ended_here() -> None:
    assert is_gone(gone_writer())
    assert not is_gone(writer_name())
    assert not is_gone(far_writer()), "nobody here can know"
    assert not is_gone("something else")
    place, pid, started, word = writer_name().rsplit("-", 3)
    assert is_gone(f"{place}-{pid}-{int(started) + 1}-{word}"), "another process with its pid"


# --- leftovers -----------------------------------------------------------------------------------


def test_the_next_save_clears_what_a_killed_writer_left(memory: Memory) -> None:
    memory.put(f"data/a/{gone_writer()}/x")
    memory.put(f"data/b/{gone_writer()}/x")
    assert memory.store().names() == []
    memory.store().save("b", {"x": b"1"})
    assert [path.split("/")[:2] for path in memory.paths()] == [["b.json"], ["data", "b"]]
    assert memory.store().load("b") == {"x": b"1"}


def test_a_save_under_way_is_left_alone(memory: Memory) -> None:
    under_way = [f"data/a/{writer_name()}/x", f"data/b/{far_writer()}/x"]
    for path in under_way:
        memory.put(path)
    memory.store().save("c", {"x": b"1"})
    assert set(under_way) < set(memory.paths())


def test_what_another_machine_left_is_cleared_in_time(memory: Memory) -> None:
    memory.put(f"data/a/{far_writer()}/x")
    memory.store(abandoned_s=0.0).save("c", {"x": b"1"})
    assert all(path.startswith(("c.json", "data/c/")) for path in memory.paths())


def test_a_writer_that_finishes_while_others_clear_keeps_what_it_saved(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker comes after the files were listed; then it ends."""
    store, writer = memory.store(), gone_writer()
    memory.put(f"data/a/{writer}/x")
    find = store._find

    def finished_meanwhile(folder: str) -> dict[str, dict[str, Any]]:
        found = find(folder)
        marker = objects.Marker(f"data/a/{writer}", {"x": 1})
        store._put("a.json", msgspec.json.encode(marker))
        return found

    monkeypatch.setattr(store, "_find", finished_meanwhile)
    store.clear_leftovers()
    assert memory.store().load("a") == {"x": b"x"}


def test_a_delete_that_is_cut_off_has_deleted(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory.store()
    store.save("a", {"x": b"1"})
    with monkeypatch.context() as patch:
        patch.setattr(store, "_find", lambda folder: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            store.delete("a")
    assert store.names() == [] and len(memory.paths()) == 1


def test_a_marker_whose_files_are_not_there_is_damage(memory: Memory) -> None:
    store = memory.store()
    store.save("a", {"x": b"1"})
    store._remove(next(path for path in memory.paths() if path.startswith("data/")))
    with pytest.raises(DamagedCheckpoint, match="lacks a file"):
        store.load("a")
    memory.put("b.json")
    with pytest.raises(DamagedCheckpoint, match=r"b\.json"):
        store.load("b")


# --- a store that cannot be used -----------------------------------------------------------------


def test_nothing_is_imported_before_such_a_store_is_used(tmp_path: Path) -> None:
    program = f"""
import sys
from rookery.checkpoints.store import open_store
open_store({f"file:{tmp_path}"!r}).names()
assert not any(name.startswith("rookery.checkpoints.objects") for name in sys.modules)
import importlib.util
if importlib.util.find_spec("s3fs") is not None:
    open_store("s3://bucket/a")
assert not {{"fsspec", "s3fs", "botocore"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.parametrize(("uri", "extra"), [("s3://b/a", "stores"), ("gs://b/a", "gcs")])
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, uri: str, extra: str
) -> None:
    monkeypatch.setattr(reach.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=rf"pip install 'rookery\[{extra}\]'"):
        open_store(uri)


def test_a_kind_of_store_that_nobody_knows_is_told_at_once(place: str) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(UnknownName, match="kind of store 's4'"):
        open_store(f"s4://bucket/{place}").names()


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error) and SECRET not in str(error)
    assert error.__cause__ is None and error.__suppress_context__, "no trace of another's words"
    return str(error)


def test_no_bucket_is_told_at_once(s3: S3Server, place: str) -> None:
    for work in (ObjectStore.names, lambda store: store.save("a", {}), lambda s: s.load("a")):
        with pytest.raises(StoreRefused, match="there is no bucket absent") as caught:
            work(ObjectStore(Remote(f"s3://absent/{place}", patience_s=3600.0)))
        one_line(caught.value)


def test_no_credentials_are_told_at_once(
    s3: S3Server, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreRefused, match=r"needs credentials.*AWS_ACCESS_KEY_ID") as caught:
        ObjectStore(Remote(f"s3://{BUCKET}/{place}", patience_s=3600.0)).names()
    one_line(caught.value)


def test_refused_access_is_told_at_once(memory: Memory) -> None:
    def refused(files: object, root: str) -> None:
        raise PermissionError("Forbidden")

    with pytest.raises(StoreRefused, match=r"access is refused.*may list, read") as caught:
        Remote(memory.uri, patience_s=3600.0).call(refused)
    one_line(caught.value)


def test_nobody_who_listens_is_waited_for_a_moment(
    s3: S3Server, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://user:{SECRET}@{address}")
        began = time.monotonic()
        with pytest.raises(StoreRefused, match=f"does not answer at {address}.*resume") as caught:
            ObjectStore(Remote(f"s3://{BUCKET}/{place}", patience_s=1.0)).names()
        assert time.monotonic() - began < 30
        one_line(caught.value)


def test_one_who_listens_and_never_answers_is_not_waited_for_for_ever(
    s3: S3Server, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StoreRefused, match="does not answer"):
            ObjectStore(Remote(f"s3://{BUCKET}/{place}", 1.0, attempt_s=2.0)).save("a", {"x": b""})


def test_what_hangs_is_left_behind() -> None:
    over = threading.Event()
    with pytest.raises(TimeoutError, match="no answer"):
        bounded(lambda: over.wait(60), 0.05)
    over.set()
    assert bounded(lambda: 3, 60) == 3
    with pytest.raises(KeyError):
        bounded(lambda: {}["x"], 60)


def test_a_store_that_is_away_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    needs_s3()
    server = S3Server(tmp_path)
    with pytest.MonkeyPatch.context() as patch, server:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        server.make_bucket()
        store = ObjectStore(Remote(f"s3://{BUCKET}/a", patience_s=60.0))
        store.save("a", {"x": b"1"})
        server.stop()
        tried, failed = threading.Event(), reach._refused

        def noted(error: BaseException, uri: str) -> str | None:
            if not isinstance(error, FileNotFoundError):
                tried.set()
            return None if "bucket" in (said := failed(error, uri) or "") else said or None

        patch.setattr(reach, "_refused", noted)  # it comes back without its bucket: that is moto
        saving = threading.Thread(target=store.save, args=("b", {"x": b"2"}))
        saving.start()
        assert tried.wait(30), "the store was not missed"
        server.start()
        server.make_bucket()
        saving.join(60)
        assert not saving.is_alive() and store.load("b") == {"x": b"2"}


# --- kill -9 in the middle of a save -------------------------------------------------------------


def kill_writers(server: S3Server, place: str, kills: int) -> None:
    """After each, what is named is whole; at the end, nothing lies about but what is named."""
    uri, draw, number = f"s3://{BUCKET}/{place}", random.Random(7), 1
    for _ in range(kills):
        objects = draw.randint(1, len(content(0)))  # that are there when it is killed
        writer = subprocess.Popen(
            [sys.executable, str(WRITER), uri, str(number), str(objects)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with writer:
            try:
                assert writer.stdout is not None
                assert writer.stdout.readline() == b"cut\n", "the writer ended by itself"
            finally:
                writer.kill()
                writer.wait(30)
        names = open_store(uri).names()
        assert names
        for name in names:
            assert open_store(uri).load(name) == content(int(name))
        folders = {tuple(key.split("/")[2:4]) for key in server.keys(f"{place}/data/")}
        assert len(folders) > len(names), "the kill hit no save"
        number = int(names[-1]) + 1
    store = open_store(uri)
    store.save(f"{number:06d}", content(number))
    folders = {tuple(key.split("/")[2:4]) for key in server.keys(f"{place}/data/")}
    assert sorted(name for name, _ in folders) == store.names(), "a leftover was not cleared"


def test_a_writer_that_is_killed_leaves_whole_checkpoints(s3: S3Server, place: str) -> None:
    kill_writers(s3, place, 3)


@pytest.mark.soak
def test_writers_that_are_killed_twenty_times_leave_whole_checkpoints(
    s3: S3Server, place: str
) -> None:
    kill_writers(s3, place, 20)


def test_saving_over_another_is_refused_in_one_line(memory: Memory) -> None:
    memory.store().save("a", {})
    with pytest.raises(StoreError, match="already") as caught:
        memory.store().save("a", {})
    assert not isinstance(caught.value, InputError)
