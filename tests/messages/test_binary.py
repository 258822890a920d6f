"""Fragments and weights survive the wire; nothing else gets through it."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rookery.errors import MessageError
from rookery.messages import SCHEMA, WeightsVersion
from rookery.messages.fragment import (
    Episode,
    Fragment,
    FragmentHeader,
    decode_fragment,
    encode_fragment,
)
from rookery.messages.frame import ALIGN, DTYPES, FRAGMENT, MAX_ARRAYS, WEIGHTS
from rookery.messages.steps import Steps, named_arrays
from rookery.messages.weights import Weights, WeightsHeader, decode_weights, encode_weights

PREFIX = struct.Struct("<4sBBxxII")
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

names = st.text(max_size=8)
leaf_paths = st.text(st.characters(codec="utf-8"), max_size=8)
counts = st.integers(0, 2**62)
versions = st.builds(WeightsVersion, counts, counts)


def any_array(shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    return st.sampled_from(sorted(DTYPES)).flatmap(lambda dtype: hnp.arrays(dtype, shape))


@st.composite
def fragments(draw: Any) -> Fragment:
    steps, lanes = draw(st.integers(0, 4)), draw(st.integers(0, 4))
    tail = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)
    flags, floats = hnp.arrays(np.bool_, (steps, lanes)), hnp.arrays(np.float32, (steps, lanes))
    valid = draw(flags)
    leaves = draw(st.lists(leaf_paths, unique=True, max_size=3))
    states = draw(st.lists(leaf_paths, unique=True, max_size=2))
    header = FragmentHeader(
        run=draw(names),
        policy=draw(names),
        actor=draw(names),
        sequence=draw(counts),
        first_step=draw(counts),
        steps=int(valid.sum()),
        version=draw(versions),
        seats=("player_0", "player_1"),
        players=("policy",),
        episodes=tuple(
            draw(
                st.lists(
                    st.builds(Episode, names, st.floats(allow_nan=False, width=32), counts),
                    max_size=3,
                )
            )
        ),
    )
    actions = draw(st.integers(0, 3))
    found = Steps(
        observation={leaf: draw(any_array((steps + 1, lanes, *draw(tail)))) for leaf in leaves},
        action=draw(any_array((steps, lanes, *draw(tail)))),
        reward=draw(floats),
        terminated=draw(flags),
        truncated=draw(flags),
        valid=valid,
        log_prob=draw(floats),
        seat=draw(hnp.arrays(np.uint8, (steps, lanes), elements=st.integers(0, 1))),
        player=np.zeros((steps, lanes), np.uint8),
        behind=draw(hnp.arrays(np.uint8, (steps, lanes))),
        mask=draw(st.none() | hnp.arrays(np.bool_, (steps + 1, lanes, actions))),
        state={leaf: draw(any_array((steps, lanes, *draw(tail)))) for leaf in states},
    )
    return Fragment(header, found)


def arrays_of(fragment: Fragment) -> dict[str, np.ndarray]:
    return dict(named_arrays(fragment.steps))


def assert_same(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> None:
    assert list(left) == list(right)
    for name, array in left.items():
        assert (array.dtype, array.shape) == (right[name].dtype, right[name].shape), name
        assert array.tobytes() == right[name].tobytes(), name


def example(steps: int = 3, lanes: int = 2, **changes: Any) -> Fragment:
    valid = np.ones((steps, lanes), bool)
    header = FragmentHeader(
        run="r",
        policy="main",
        actor="0.1",
        sequence=4,
        first_step=40,
        steps=steps * lanes,
        version=WeightsVersion(1, 7),
        seats=("player_0",),
        players=("policy",),
    )
    values = {
        "observation": {"": np.ones((steps + 1, lanes, 4), np.float32)},
        "action": np.zeros((steps, lanes), np.int32),
        "reward": np.ones((steps, lanes), np.float32),
        "terminated": ~valid,
        "truncated": ~valid,
        "valid": valid,
        "log_prob": np.zeros((steps, lanes), np.float32),
        "seat": np.zeros((steps, lanes), np.uint8),
        "player": np.zeros((steps, lanes), np.uint8),
        "behind": np.zeros((steps, lanes), np.uint8),
    }
    return Fragment(changes.pop("header", header), Steps(**{**values, **changes}))


def example_weights() -> Weights:
    header = WeightsHeader(run="r", policy="main", version=WeightsVersion(1, 2), env_steps=3)
    return Weights(header, {"pi.0.w": np.arange(12, dtype=np.float32).reshape(3, 4)})


# --- round trip ----------------------------------------------------------------------------------


@quick
@given(fragments())
def test_a_fragment_comes_back_as_it_was(fragment: Fragment) -> None:
    back = decode_fragment(encode_fragment(fragment))

    assert back.header == fragment.header
    assert_same(arrays_of(back), arrays_of(fragment))
    assert (back.steps.mask is None) == (fragment.steps.mask is None)


@quick
@given(
    st.dictionaries(
        names.filter(lambda n: n != "__metadata__"),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3).flatmap(any_array),
        max_size=4,
    ),
    versions,
    counts,
)
def test_weights_come_back_as_they_were(
    arrays: dict[str, np.ndarray], version: WeightsVersion, env_steps: int
) -> None:
    header = WeightsHeader(run="r", policy="p", version=version, env_steps=env_steps)

    back = decode_weights(encode_weights(Weights(header, arrays)))

    assert back.header == header
    assert_same({n: back.arrays[n] for n in arrays}, arrays)


def test_arrays_that_are_not_contiguous_travel_too() -> None:
    wide = np.arange(4 * 2 * 8, dtype=np.float32).reshape(4, 2, 8)
    fragment = example(observation={"": wide[:, :, ::2], "t": np.zeros((2, 4)).T})

    back = decode_fragment(encode_fragment(fragment))

    assert_same(back.steps.observation, fragment.steps.observation)


def test_decoding_copies_nothing_and_its_arrays_cannot_be_written() -> None:
    payload = encode_fragment(example(mask=np.ones((4, 2, 3), bool)))
    buffer = np.frombuffer(payload, np.uint8)

    back = decode_fragment(payload)

    for name, array in arrays_of(back).items():
        assert np.shares_memory(array, buffer), name
        assert not array.flags.writeable, name
        assert (array.ctypes.data - buffer.ctypes.data) % ALIGN == 0, name


# --- bytes from anywhere ------------------------------------------------------------------------

PAYLOADS = {
    "fragment": (encode_fragment(example(mask=np.ones((4, 2, 3), bool))), decode_fragment),
    "weights": (encode_weights(example_weights()), decode_weights),
}
kinds = pytest.mark.parametrize("kind", sorted(PAYLOADS))


@kinds
def test_every_truncation_is_a_message_error(kind: str) -> None:
    payload, decode = PAYLOADS[kind]
    for size in range(len(payload)):
        with pytest.raises(MessageError):
            decode(payload[:size])
    with pytest.raises(MessageError):
        decode(payload + b"\0")


@kinds
def test_every_flipped_bit_is_a_message_error(kind: str) -> None:
    payload, decode = PAYLOADS[kind]
    for bit in range(8 * len(payload)):
        damaged = bytearray(payload)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(MessageError):
            decode(bytes(damaged))


@kinds
@settings(quick, max_examples=200)
@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_error(kind: str, noise: bytes) -> None:
    payload, decode = PAYLOADS[kind]
    with pytest.raises(MessageError):
        decode(noise)
    with pytest.raises(MessageError):
        decode(seal(payload[5], noise, b""))  # right magic, version, length and checksum


@kinds
@settings(quick, max_examples=300)
@given(st.data())
def test_damage_under_a_right_checksum_is_a_message_error_or_a_valid_message(
    kind: str, data: st.DataObject
) -> None:
    payload, decode = PAYLOADS[kind]
    body = bytearray(payload[PREFIX.size :])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.integers(0, 255))
    header_bytes = PREFIX.unpack_from(payload)[3]
    resealed = seal(payload[5], bytes(body[:header_bytes]), bytes(body[header_bytes:]))

    tracemalloc.start()
    try:
        found = decode(resealed)
        arrays = arrays_of(found) if isinstance(found, Fragment) else found.arrays
        assert sum(array.nbytes for array in arrays.values()) <= len(resealed)
    except MessageError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


# --- hostile headers ----------------------------------------------------------------------------


def seal(
    kind: int, header: bytes, body: bytes, schema: int = SCHEMA, magic: bytes = b"RKRY"
) -> bytes:
    crc = zlib.crc32(body, zlib.crc32(header))
    return PREFIX.pack(magic, schema, kind, len(header), crc) + header + body


def forge(change: Any) -> bytes:
    """A fragment whose header is changed and whose checksum is right; the body stays."""
    payload = encode_fragment(example())
    header_bytes = PREFIX.unpack_from(payload)[3]
    frame = msgspec.msgpack.decode(payload[PREFIX.size : PREFIX.size + header_bytes])
    change(frame)
    header = msgspec.msgpack.encode(frame)
    chunks, offset = [], PREFIX.size + len(header)
    for _, array in named_arrays(example().steps):
        padding = -offset % ALIGN
        chunks += [bytes(padding), array.tobytes()]
        offset += padding + array.nbytes
    return seal(FRAGMENT, header, b"".join(chunks))


def entry(frame: dict[str, Any], name: str) -> list[Any]:
    return next(e for e in frame["arrays"] if e[0] == name)


def put(name: str, field: int, value: Any) -> Any:
    def change(frame: dict[str, Any]) -> None:
        entry(frame, name)[field] = value

    return change


def head(**values: Any) -> Any:
    return lambda frame: frame["fragment"].update(values)


HOSTILE = {
    "huge shape": (put("observation/", 2, [2**40, 2**20]), "does not fit"),
    "shape past 64 bits": (put("observation/", 2, [2**62] * 8), "does not fit"),
    "huge shape of nothing": (put("observation/", 2, [2**62, 0, 2**62]), None),
    "negative dimension": (put("observation/", 2, [-4, -2, 4]), "impossible shape"),
    "rank too high": (put("observation/", 2, [1] * 40), "impossible shape"),
    "fraction in a shape": (put("observation/", 2, [4.5, 2, 4]), "not a valid header"),
    "unknown dtype": (put("observation/", 1, "float33"), "unsupported dtype"),
    "object dtype": (put("observation/", 1, "object"), "unsupported dtype"),
    "structured dtype": (put("observation/", 1, "f4,f4"), "unsupported dtype"),
    "wide text dtype": (put("observation/", 1, "U1000000000"), "unsupported dtype"),
    "unknown name": (put("player", 0, "bonus"), "unknown array"),
    "name of another": (put("player", 0, "seat"), None),
    "array missing": (lambda f: f["arrays"].pop(), None),
    "too many arrays": (
        lambda f: f.update(arrays=f["arrays"] * 200),
        f"over {MAX_ARRAYS}",
    ),
    "reward of the wrong type": (put("reward", 1, "int32"), "not float32"),
    "valid of the wrong type": (put("valid", 1, "uint8"), "not bool"),
    "seat of the wrong type": (put("seat", 1, "int8"), "not uint8"),
    "reward without lanes": (put("reward", 2, [6]), r"not \(T, B\)"),
    "reward transposed": (put("reward", 2, [2, 3]), "has shape"),
    "action transposed": (put("action", 2, [2, 3]), "action has shape"),
    "observations without the last": (put("observation/", 2, [2, 2, 8]), "observation"),
    "more steps than valid rows": (head(steps=7), "counts 7 steps"),
    "fewer steps than valid rows": (head(steps=-6), "counts -6 steps"),
    "sequence below 0": (head(sequence=-1), "below 0"),
    "seat not listed": (head(seats=[]), "not listed"),
    "player not listed": (head(players=[]), "not listed"),
    "part beyond the parts": (head(part=1), "part 1 of 1"),
    "walk-in in parts": (head(actor="walk-in.x", parts=2), "a walk-in of 2 parts"),
    "version of three": (head(version=[1, 2, 3]), "not a valid header"),
    "version of text": (head(version=["1", "2"]), "not a valid header"),
    "no header": (lambda f: f.pop("fragment"), "not a valid header"),
}


@pytest.mark.parametrize("attack", HOSTILE)
def test_a_hostile_header_is_a_message_error_and_allocates_nothing(attack: str) -> None:
    change, says = HOSTILE[attack]
    payload = forge(change)

    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match=says):
            decode_fragment(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


def test_the_forge_itself_makes_a_valid_fragment() -> None:
    assert decode_fragment(forge(lambda frame: None)).header == example().header


def test_an_array_named_twice_is_a_message_error() -> None:
    fragment = example()
    arrays = [*named_arrays(fragment.steps), ("reward", fragment.steps.reward)]
    frame = {
        "fragment": msgspec.to_builtins(fragment.header),
        "arrays": [(name, array.dtype.name, array.shape) for name, array in arrays],
    }
    header = msgspec.msgpack.encode(frame)
    body, offset = b"", PREFIX.size + len(header)
    for _, array in arrays:
        padding = -offset % ALIGN
        body += bytes(padding) + array.tobytes()
        offset += padding + array.nbytes
    with pytest.raises(MessageError, match="twice"):
        decode_fragment(seal(FRAGMENT, header, body))


def test_another_schema_version_is_refused_by_its_number() -> None:
    payload = bytearray(encode_fragment(example()))
    payload[4] = SCHEMA + 1
    with pytest.raises(MessageError, match=f"schema version {SCHEMA + 1}.*reads {SCHEMA}"):
        decode_fragment(bytes(payload))


def test_weights_are_not_a_fragment_and_a_fragment_is_not_weights() -> None:
    with pytest.raises(MessageError, match="kind"):
        decode_weights(encode_fragment(example()))
    with pytest.raises(MessageError, match="kind"):
        decode_fragment(encode_weights(example_weights()))


@pytest.mark.parametrize(
    "table",
    [
        b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"O","shape":[1],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,1099511627776]}}',
        b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}',
        b'{"a":1}',
        b"[]",
        b"{",
        b"\xff" * 8,
    ],
)
def test_hostile_safetensors_are_a_message_error_and_allocate_nothing(table: bytes) -> None:
    table = table.ljust(-(-len(table) // 8) * 8)
    body = struct.pack("<Q", len(table)) + table + bytes(4)
    header = msgspec.msgpack.encode(
        {"weights": {"run": "r", "policy": "p", "version": [1, 2], "env_steps": 3}}
    )

    tracemalloc.start()
    try:
        with pytest.raises(MessageError):
            decode_weights(seal(WEIGHTS, header, body))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20
