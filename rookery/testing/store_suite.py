"""What every checkpoint store must do. Subclass the suite and say how a store is made:

    class TestMyStore(StoreSuite):
        def make_store(self, place):
            return MyStore(f"my://somewhere/{place}")

Each test has a place of its own, a word that is new; `make_store` may be called for it again, as
another process would. That a save is all or nothing however the process dies is not tested here:
kill one of yours in the middle of it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from rookery.checkpoints.store import CheckpointStore
from rookery.errors import CheckpointGone, StoreError

PATIENCE_S = 60.0  # nothing here takes this long unless it hangs
FILES = {"state.bin": bytes(range(256)) * 400, "manifest.json": b"{}", "empty": b""}


class StoreSuite:
    """The contract of `rookery.checkpoints.store.CheckpointStore`."""

    def make_store(self, place: str) -> CheckpointStore:
        """The store at a place that is empty when its name is new."""
        raise NotImplementedError

    @pytest.fixture
    def place(self) -> str:
        return f"suite-{uuid4().hex}"

    @pytest.fixture
    def store(self, place: str) -> CheckpointStore:
        return self.make_store(place)

    def test_a_store_that_nobody_wrote_to_is_empty(self, store: CheckpointStore) -> None:
        assert store.names() == []
        store.clear_leftovers()
        assert store.names() == []

    def test_what_was_saved_comes_back(self, store: CheckpointStore) -> None:
        store.save("000001-0000000001", FILES)
        assert store.load("000001-0000000001") == FILES

    def test_another_process_finds_it(self, store: CheckpointStore, place: str) -> None:
        store.save("a", FILES)
        other = self.make_store(place)
        assert (other.names(), other.load("a")) == (["a"], FILES)
        other.delete("a")
        assert store.names() == []

    def test_places_are_apart(self, store: CheckpointStore, place: str) -> None:
        beside = self.make_store(f"{place}-snapshots")
        store.save("a", {"x": b"1"})
        beside.save("b", {"x": b"2"})
        assert (store.names(), beside.names()) == (["a"], ["b"])
        store.delete("b")
        assert beside.load("b") == {"x": b"2"}

    def test_only_what_is_asked_for_is_read(self, store: CheckpointStore) -> None:
        store.save("a", FILES)
        assert store.load("a", ("manifest.json", "absent")) == {"manifest.json": b"{}"}

    def test_names_are_sorted_whatever_the_order_of_their_saves(
        self, store: CheckpointStore
    ) -> None:
        for name in ("000002-0000000001", "000001-0000000010", "000001-0000000009"):
            store.save(name, {"x": b"1"})
        assert store.names() == ["000001-0000000009", "000001-0000000010", "000002-0000000001"]

    def test_a_name_that_begins_another_is_its_own(self, store: CheckpointStore) -> None:
        store.save("main-1", {"x": b"1"})
        store.save("main-10", {"x": b"10"})
        store.delete("main-1")
        assert store.names() == ["main-10"] and store.load("main-10") == {"x": b"10"}

    def test_what_is_deleted_is_gone(self, store: CheckpointStore) -> None:
        store.save("a", FILES)
        store.save("b", {"x": b"2"})
        store.delete("a")
        assert store.names() == ["b"]
        with pytest.raises(CheckpointGone, match="not there any more"):
            store.load("a")
        store.delete("a")  # again, or never there: nothing to do
        assert store.load("b") == {"x": b"2"}

    def test_a_name_can_be_saved_again_once_it_was_deleted(self, store: CheckpointStore) -> None:
        store.save("a", {"x": b"1", "y": b"1"})
        store.delete("a")
        store.save("a", {"x": b"2"})
        assert store.load("a") == {"x": b"2"}

    def test_what_is_there_is_not_replaced(self, store: CheckpointStore) -> None:
        store.save("a", {"x": b"1"})
        with pytest.raises(StoreError) as caught:
            store.save("a", {"x": b"2"})
        assert "\n" not in str(caught.value)
        assert store.names() == ["a"] and store.load("a") == {"x": b"1"}

    def test_clearing_keeps_what_is_complete(self, store: CheckpointStore) -> None:
        store.save("a", FILES)
        store.save("b", {"x": b"2"})
        store.clear_leftovers()
        assert store.names() == ["a", "b"]
        assert store.load("a") == FILES and store.load("b") == {"x": b"2"}

    def test_readers_see_all_of_a_checkpoint_or_none(
        self, store: CheckpointStore, place: str
    ) -> None:
        """While others are saved and deleted, whatever is named is whole, or gone by then."""

        seen = set[str]()

        def write() -> str:
            """Until several were deleted and a reader saw one; the name of the one that is left."""
            end, i = time.monotonic() + PATIENCE_S, 0
            store.save("000", {"x": b"0", "y": b"0"})
            while i < 4 or (not seen and time.monotonic() < end):
                i += 1
                store.save(f"{i:03d}", {"x": b"%d" % i, "y": b"%d" % i})
                store.delete(f"{i - 1:03d}")
            return f"{i:03d}"

        reader = self.make_store(place)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not writing.done():
                for name in reader.names():
                    try:
                        found = reader.load(name)
                    except CheckpointGone:
                        continue
                    assert found == {"x": b"%d" % int(name), "y": b"%d" % int(name)}
                    seen.add(name)
            assert reader.names() == [writing.result()]
        assert seen
