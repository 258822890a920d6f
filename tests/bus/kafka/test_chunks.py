"""Messages in chunks: whole and intact, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.bus.kafka.chunks import CHUNK, Assembler, Chunk, Damaged, chunk_key, split

PAYLOADS = st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=4)


@given(payload=st.binary(max_size=300), limit=st.integers(1, 50))
def test_parts_are_within_the_limit_and_make_the_whole(payload: bytes, limit: int) -> None:
    parts = split(payload, limit)
    assert all(len(part) <= limit for _, part in parts)
    assert b"".join(part for _, part in parts) == payload
    assert (len(parts) == 1) == (len(payload) <= limit) == (parts[0][0] == {})


@given(payloads=PAYLOADS, limit=st.integers(1, 20), data=st.data())
def test_messages_that_are_mixed_come_out_whole(
    payloads: list[bytes], limit: int, data: st.DataObject
) -> None:
    """Each source sends its parts in order; the log mixes sources at will."""
    queues = {str(i): split(p, limit) for i, p in enumerate(payloads) if len(p) > limit}
    assembler, whole, offset = Assembler(), {}, 0
    while waiting := [source for source, parts in queues.items() if parts]:
        source = data.draw(st.sampled_from(waiting))
        headers, part = queues[source].pop(0)
        found = assembler.add(source, headers[CHUNK], part, offset)
        offset += 1
        if found is not None:
            assert not queues[source]
            whole[source] = found
    assert whole == {str(i): p for i, p in enumerate(payloads) if len(p) > limit}
    assert assembler.oldest is None


@given(payload=st.binary(min_size=20, max_size=200), data=st.data())
def test_a_changed_byte_is_found(payload: bytes, data: st.DataObject) -> None:
    parts = split(payload, 10)
    at = data.draw(st.integers(0, len(parts) - 1))
    headers, part = parts[at]
    parts[at] = (headers, bytes([part[0] ^ 1]) + part[1:])
    assembler = Assembler()
    for headers, part in parts[:-1]:
        assert assembler.add("a", headers[CHUNK], part, 0) is None
    with pytest.raises(Damaged, match="checksum"):
        assembler.add("a", parts[-1][0][CHUNK], parts[-1][1], 0)


def begun() -> Assembler:
    """With the first of three chunks, at offset 17."""
    assembler = Assembler()
    headers, part = split(b"x" * 30, 10)[0]
    assembler.add("a", headers[CHUNK], part, 17, 1000.0)
    assert assembler.oldest == 17
    return assembler


def test_a_message_that_was_never_finished_is_given_up_when_its_source_goes_on() -> None:
    assembler = begun()
    for offset, (headers, part) in enumerate(split(b"y" * 30, 10), start=18):
        found = assembler.add("a", headers[CHUNK], part, offset, 1001.0)
        assert assembler.oldest == (18 if found is None else None)
    assert found == b"y" * 30
    assembler = begun()
    assembler.passed("b", 1001.0)
    assert assembler.oldest == 17
    assembler.passed("a", 1001.0)
    assert assembler.oldest is None


def test_a_message_that_was_never_finished_is_given_up_after_a_while() -> None:
    assembler = begun()
    assembler.passed("b", 1059.0)
    assert assembler.oldest == 17
    assembler.passed("b", 1061.0)
    assert assembler.oldest is None


@pytest.mark.parametrize("text", ["", "a:b:c:d", "a:2:2:00", "a:-1:2:00", "a:0:2"])
def test_a_header_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Chunk.parse(text)


def test_chunks_of_a_compacted_topic_have_keys_of_their_own() -> None:
    keys = [chunk_key("main", headers) for headers, _ in split(b"x" * 30, 10)]
    assert keys == ["main", "main#1", "main#2"]
    assert chunk_key("main", {}) == "main"
