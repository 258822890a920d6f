"""Names of players: every form, the one canonical text, and what is refused."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import InputError, UnknownName
from rookery.players.names import PlayerName


@pytest.mark.parametrize(
    ("text", "kind", "name", "options", "canonical"),
    [
        ("main", "policy", "main", {}, "main"),
        ("league:main", "league", "main", {}, "league:main"),
        ("snapshot:brave-fox@340", "snapshot", "brave-fox@340", {}, "snapshot:brave-fox@340"),
        ("brave-fox@340", "snapshot", "brave-fox@340", {}, "snapshot:brave-fox@340"),
        ("script:first-legal", "script", "first-legal", {}, "script:first-legal"),
        ("script:minimax?depth=2", "script", "minimax", {"depth": "2"}, "script:minimax?depth=2"),
        ("script:a.b_c:choose", "script", "a.b_c:choose", {}, "script:a.b_c:choose"),
        (
            "engine:stockfish?time=0.05&level=1",
            "engine",
            "stockfish",
            {"time": "0.05", "level": "1"},
            "engine:stockfish?level=1&time=0.05",
        ),
        ("onnx:a/b.onnx?greedy=true", "onnx", "a/b.onnx", {"greedy": "true"}, None),
        ("onnx:what%3F%20100%25.onnx", "onnx", "what? 100%.onnx", {}, "onnx:what%3F 100%25.onnx"),
    ],
)
def test_each_form_is_read_and_written(
    text: str, kind: str, name: str, options: dict[str, str], canonical: str | None
) -> None:
    found = PlayerName.parse(text)
    assert (found.kind, found.name, found.options) == (kind, name, options)
    assert str(found) == found.text == (canonical or text)


def test_a_snapshot_names_a_run_and_a_number(refused: Callable[..., str]) -> None:
    assert PlayerName.parse("brave-fox@340").snapshot == ("brave-fox", 340)
    assert "not a snapshot" in refused(lambda: PlayerName.parse("main").snapshot)


def test_names_that_say_the_same_are_one_key() -> None:
    one = PlayerName.parse("engine:stockfish?time=1&level=2")
    other = PlayerName.parse("engine:stockfish?level=2&time=1")
    assert one == other
    assert len({one, other}) == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a policy's name"),
        ("two words", "a policy's name"),
        ("line\nbreak", "a policy's name"),
        ("-x", "a policy's name"),
        ("script:", "script:NAME"),
        ("script:a:b:c", "script:NAME"),
        ("script:../x:y", "script:NAME"),
        ("league:", "league:POLICY"),
        ("snapshot:run", "snapshot:RUN@NUMBER"),
        ("run@latest", "snapshot:RUN@NUMBER"),
        ("run@-1", "snapshot:RUN@NUMBER"),
        ("engine:/bin/sh", "engine:NAME"),
        ("onnx:", "onnx:PATH"),
        ("onnx:a%00b", "onnx:PATH"),
        ("script:minimax?depth", "'depth' is no option"),
        ("script:minimax?", "'' is no option"),
        ("script:minimax?Depth=1", "'Depth=1' is no option"),
        ("script:minimax?depth=1&depth=2", "'depth' is given twice"),
        ("main?greedy=true", "takes no options"),
        ("policy:main", "without a colon"),
    ],
)
def test_a_bad_name_is_refused_in_one_line(
    text: str, says: str, refused: Callable[..., str]
) -> None:
    assert says in refused(PlayerName.parse, text)


def test_an_unknown_kind_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean engine") as caught:
        PlayerName.parse("engin:stockfish")
    assert caught.value.nearest == ("engine",)


_words = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,12}", fullmatch=True)
_keys = st.text(string.ascii_lowercase, min_size=1, max_size=8)
_options = st.dictionaries(_keys, st.text(max_size=8), max_size=3)
_paths = st.text(min_size=1, max_size=20).filter(str.isprintable)
_dotted = st.lists(st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True), min_size=1, max_size=3)
_names = st.one_of(
    st.builds(PlayerName, st.sampled_from(["policy", "league"]), _words),
    st.builds(lambda run, n: PlayerName("snapshot", f"{run}@{n}"), _words, st.integers(0, 10**18)),
    st.builds(PlayerName, st.just("engine"), _words, _options),
    st.builds(PlayerName, st.just("onnx"), _paths, _options),
    st.builds(
        lambda parts, f, o: PlayerName("script", f"{'.'.join(parts)}:{f}", o),
        _dotted,
        st.from_regex(r"[a-z_]{1,6}", fullmatch=True),
        _options,
    ),
)


@given(_names)
def test_a_name_survives_being_written_and_read(name: PlayerName) -> None:
    assert PlayerName.parse(str(name)) == name
    assert str(PlayerName.parse(str(name))) == str(name)


@given(st.text(max_size=30))
def test_any_text_is_a_name_or_one_line(text: str) -> None:
    try:
        found = PlayerName.parse(text)
    except InputError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert PlayerName.parse(str(found)) == found
