"""Nothing that comes over the network names code, a program, a file or a host by itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.config.models import RunConfig
from rookery.control.allow import player_refused, refused, seats_refused
from rookery.control.settings import Allow
from rookery.players.names import PlayerName

NOTHING = Allow()


def config(**values: Any) -> RunConfig:
    return RunConfig.model_validate({"environment": {"id": "CartPole-v1"}, **values})


def with_environment(id: str = "CartPole-v1", **kwargs: Any) -> RunConfig:
    return config(environment={"id": id, "kwargs": kwargs})


def test_the_line_says_what_to_do() -> None:
    assert refused(with_environment("my_mod:Env"), NOTHING) == (
        "environment.id my_mod:Env names code, which the owner of this server has not allowed: "
        "add it to allow.code in rookery.yaml"
    )


@pytest.mark.parametrize(
    "id", ["CartPole-v1", "ALE/Pong-v5", "gymnax:Pong", "pgx:chess", "pettingzoo:chess_v6", "maze"]
)
def test_ids_that_are_looked_up_in_a_list_are_free(id: str) -> None:
    assert refused(with_environment(id), NOTHING) is None


FREE: dict[str, Any] = {
    "render_mode": "rgb_array",
    "map_name": "8x8",
    "desc": ["SFFF", "FHFH"],
    "size": 3,
    "gravity": -9.8,
    "share": "1.5",
    "small": "1e-3",
    "flag": True,
    "none": None,
    "deep": {"a": [{"b": "word with spaces"}]},
    "empty": "",
}


def test_plain_values_are_free() -> None:
    assert refused(with_environment(**FREE), NOTHING) is None


def test_a_run_of_policies_scripts_leagues_snapshots_and_a_replay_is_free() -> None:
    drawn = [{"player": "main", "weight": 1}, {"league": "main", "weight": 1}]
    found = config(
        seats={"a": "main", "b": {"draw": drawn}, "c": "script:minimax?depth=2", "d": "RUN@3"},
        league={"reference": ["script:random", "snapshot:RUN@340"]},
        replay={"run": "other"},
    )
    assert refused(found, NOTHING) is None


CODE, FILE, PROGRAM, HOST = "code", "a file", "a program", "a host"
NAMES: list[tuple[dict[str, Any], str, Allow]] = [
    ({"environment": {"id": "my_mod:Env"}}, CODE, Allow(code=("my_mod:*",))),
    ({"environment": {"id": "my.mod:Maze-v0"}}, CODE, Allow(code=("my.mod:Maze-v0",))),
    ({"environment": {"id": "gymnax:os:system"}}, CODE, Allow(code=("gymnax:*",))),
    ({"algorithm": {"kind": "my_mod:Alg"}}, CODE, Allow(code=("my_mod:*",))),
    ({"policies": {"a": {"algorithm": {"kind": "my_mod:Alg"}}}}, CODE, Allow(code=("my_mod:Alg",))),
    (
        {"algorithm": {"kind": "my_mod:Alg", "expert": "/data/games"}},
        CODE,
        Allow(code=("my_mod:*",), files=("/data/*",)),
    ),
    ({"seat_map": "my.seats:choose"}, CODE, Allow(code=("my.seats:choose",))),
    ({"seats": {"*": "script:my.rules:act"}}, CODE, Allow(code=("my.rules:*",))),
    ({"seats": {"*": "engine:stockfish?level=1"}}, PROGRAM, Allow(binaries=("stockfish",))),
    ({"seats": {"*": "onnx:/data/a.onnx"}}, FILE, Allow(files=("/data/*.onnx",))),
    ({"seats": {"*": "onnx:%2Fdata%2Fa.onnx"}}, FILE, Allow(files=("/data/*.onnx",))),
    (
        {"seats": {"x": {"draw": [{"player": "script:m:f", "weight": 1}]}}},
        CODE,
        Allow(code=("m:f",)),
    ),
    ({"league": {"reference": ["script:random", "script:m:f"]}}, CODE, Allow(code=("m:f",))),
    ({"league": {"reference": ["onnx:a.onnx"]}}, FILE, Allow(files=("a.onnx",))),
    ({"checkpoint": {"uri": "file:/data/ckpt"}}, FILE, Allow(files=("/data/*",))),
    ({"checkpoint": {"uri": "s3://bucket/a"}}, FILE, Allow(files=("s3://bucket/*",))),
]
KWARGS: list[tuple[Any, str, Allow]] = [
    ("/etc/passwd", FILE, Allow(files=("/etc/*",))),
    ("~root/x", FILE, Allow(files=("~root/*",))),
    ("./x", FILE, Allow(files=("./*",))),
    (".hidden", FILE, Allow(files=(".hidden",))),
    ("a\\b", FILE, Allow(files=("*",))),
    ("ant.xml", FILE, Allow(files=("ant.xml",))),
    ("os.path", FILE, Allow(code=("os.path",))),
    ("my_mod:Env", CODE, Allow(code=("my_mod:Env",))),
    ("http://evil.example/x", HOST, Allow(hosts=("evil.example",))),
    ("wss://EVIL.example:443", HOST, Allow(hosts=("*.example",))),
    ("http://[::1]:80/", HOST, Allow(hosts=("::1",))),
    ("evil.example:80", HOST, Allow(hosts=("evil.example",))),
    ("10.0.0.1", HOST, Allow(hosts=("10.0.0.*",))),
    ("localhost", HOST, Allow(hosts=("localhost",))),
    (["a", {"b": ["/x"]}], FILE, Allow(files=("/x",))),
    ({"/x": 1}, FILE, Allow(files=("/x",))),
]


@pytest.mark.parametrize(
    ("values", "noun", "allow"),
    NAMES + [({"environment": {"id": "E-v0", "kwargs": {"k": k}}}, n, a) for k, n, a in KWARGS],
)
def test_each_name_is_refused_until_the_owner_allows_it(
    values: dict[str, Any], noun: str, allow: Allow
) -> None:
    found = config(**values)
    why = refused(found, NOTHING)
    assert why is not None
    assert noun in why
    assert "rookery.yaml" in why
    assert "\n" not in why
    assert refused(found, allow) is None


def test_what_stands_beside_a_users_own_algorithm_may_name_nothing_either() -> None:
    found = config(algorithm={"kind": "my_mod:Alg", "expert": {"games": ["/data/games"]}})
    why = refused(found, Allow(code=("my_mod:Alg",)))
    assert why is not None and why.startswith("algorithm.expert.games[0] /data/games names a file")


def test_what_is_allowed_in_one_list_is_not_allowed_in_another() -> None:
    found = with_environment("my_mod:Env")
    assert refused(found, Allow(files=("*",), binaries=("*",), hosts=("*",))) is not None
    found = config(checkpoint={"uri": "file:/data/x"})
    assert refused(found, Allow(code=("*",), binaries=("*",), hosts=("*",))) is not None


def test_a_pattern_for_paths_or_hosts_allows_no_bucket() -> None:
    found = config(checkpoint={"uri": "s3://bucket/a"})
    here = f"{os.getcwd()}/*"
    narrow = Allow(files=("/*", here, "bucket/*", "s3://other/*"), hosts=("*",), code=("*",))
    assert refused(found, narrow) is not None
    climbing = config(checkpoint={"uri": "s3://bucket/a/../../other"})
    assert refused(climbing, Allow(files=("s3://bucket/*",))) is not None


@pytest.mark.parametrize("path", ["/data/../etc/x", "/data/a/../../x", "..", "../x", "/data/.."])
def test_no_pattern_can_be_left_by_climbing(path: str) -> None:
    wide = Allow(files=("*", "/data/*"))
    assert refused(config(checkpoint={"uri": f"file:{path}"}), wide) is not None
    assert refused(with_environment(file=path), wide) is not None
    assert player_refused(f"onnx:{path}", wide) is not None


@pytest.mark.parametrize(
    "address",
    [
        "http://good@evil/",
        "http://good@x@evil/",
        "http://evil\\@good/",
        "http://evil#@good/",
        "file://good/etc/passwd",
        "see http://good/",
        "gopher://good/",
        "http://good\r\nHost: evil/",
        "http://",
    ],
)
def test_an_address_that_could_mean_two_hosts_is_never_allowed(address: str) -> None:
    allow = Allow(hosts=("good",), files=("*",), code=("*",))
    assert refused(with_environment(url=address), allow) is not None


def test_a_relative_path_is_also_known_by_its_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    allow = Allow(files=(f"{tmp_path}/models/*",))
    assert player_refused("onnx:models/a.onnx", allow) is None
    assert player_refused("onnx:other/a.onnx", allow) is not None


def test_a_home_of_another_is_not_below_this_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(with_environment(file="~root/x"), Allow(files=(f"{tmp_path}/*",))) is not None


def test_a_word_that_is_a_file_here_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(with_environment(level="first"), NOTHING) is None
    (tmp_path / "first").touch()
    assert "a file" in (refused(with_environment(level="first"), NOTHING) or "")
    assert refused(with_environment(level="first"), Allow(files=("first",))) is None


def test_an_engine_is_allowed_by_its_name_or_by_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "engine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("ROOKERY_ENGINE_MINE", str(program))
    assert "a program" in (player_refused("engine:mine", NOTHING) or "")
    assert player_refused("engine:mine", Allow(binaries=("mine",))) is None
    assert player_refused("engine:mine", Allow(binaries=(f"{tmp_path}/*",))) is None
    assert player_refused("engine:mine", Allow(binaries=("/usr/*", "min"))) is not None


def test_an_option_of_a_player_can_name_a_file_too() -> None:
    text = "engine:stockfish?book=/etc/passwd"
    assert "book" in (player_refused(text, Allow(binaries=("*",))) or "")
    assert player_refused(text, Allow(binaries=("*",), files=("/etc/*",))) is None


@pytest.mark.parametrize("text", ["nope:x", "script:", "engine:../sh", "engine:/bin/sh", "a b", ""])
def test_a_name_that_is_none_is_refused(text: str) -> None:
    assert player_refused(text, Allow(code=("*",), binaries=("*",), files=("*",))) is not None


@pytest.mark.parametrize(
    "seats",
    [
        {"*": 3},
        {"*": None},
        {"*": ["main"]},
        {"*": {}},
        {"*": {"draw": "main"}},
        {"*": {"draw": [3]}},
        {"*": {"draw": [{}]}},
        {"*": {"draw": [{"player": "main", "league": "main"}]}},
        {"*": {"draw": [{"player": ["script:m:f"]}]}},
        {"*": {"draw": [{"player": "main"}, {"player": "script:m:f"}]}},
        {"*": {"draw": [{"league": "main?x=/etc/passwd"}]}},
    ],
)
def test_seats_of_a_command_are_read_as_they_are(seats: dict[str, Any]) -> None:
    why = seats_refused(seats, NOTHING)
    assert why is not None
    assert "\n" not in why


def test_free_seats_of_a_command_pass() -> None:
    drawn = [{"player": "main", "weight": 1}, {"league": "main", "weight": 2}]
    assert seats_refused({"a": "main", "b": {"draw": drawn}}, NOTHING) is None


def test_kwargs_that_never_end_are_refused() -> None:
    deep: Any = "/x"
    for _ in range(500):
        deep = [deep]
    found = config().model_copy(
        update={"environment": config().environment.model_copy(update={"kwargs": {"k": deep}})}
    )
    assert "deeper" in (refused(found, Allow(files=("*",))) or "")


# --- whatever the names are ----------------------------------------------------------------------

words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
modules = st.lists(words, min_size=1, max_size=3).map(".".join)
functions = st.tuples(modules, words).map(":".join)
plain = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False))


def nested(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The leaf somewhere in a value of JSON."""

    def around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            st.tuples(plain, inner).map(list),
            st.tuples(words, inner).map(lambda pair: {pair[0]: pair[1]}),
        )

    return leaf | around(leaf) | around(around(leaf))


def in_some_field(code: str) -> st.SearchStrategy[dict[str, Any]]:
    """A config's values with the code in one field that can take it."""
    player = f"script:{code}"
    draw = [{"player": "main", "weight": 1.0}, {"player": player, "weight": 0.0}]
    return st.one_of(
        st.just({"environment": {"id": code}}),
        nested(st.just(code)).map(
            lambda value: {"environment": {"id": "E-v0", "kwargs": {"option": value}}}
        ),
        st.just({"seat_map": code}),
        st.just({"seats": {"*": player}}),
        st.just({"seats": {"a": "main", "b": {"draw": draw}}}),
        st.just({"league": {"reference": ["script:random", player]}}),
    )


@given(functions.flatmap(in_some_field))
def test_no_config_with_code_in_any_field_passes(values: dict[str, Any]) -> None:
    for allow in (NOTHING, Allow(code=("ours:*",)), Allow(files=("*",), binaries=("*",))):
        why = refused(config(**values), allow)
        assert why is not None
        assert "code" in why


paths = st.lists(st.text(min_size=1, max_size=6), min_size=2, max_size=4).map("/".join)


@given(nested(paths))
def test_no_path_anywhere_in_kwargs_passes(value: Any) -> None:
    why = refused(with_environment(option=value), NOTHING)
    assert why is not None
    assert len(why.splitlines()) == 1


steps = ["/data", "data", "..", ".", "%2e%2e", "a", "", "~root", "~", "a..", "\\..", "$HOME"]


@given(st.lists(st.sampled_from(steps), min_size=1, max_size=6).map("/".join))
def test_whatever_is_allowed_below_a_directory_is_below_it(path: str) -> None:
    if player_refused(f"onnx:{path}", Allow(files=("/data/*",))) is None:
        real = os.path.abspath(PlayerName.parse(f"onnx:{path}").name)
        assert real == "/data" or real.startswith("/data/")


@given(st.text(max_size=40))
def test_any_text_as_a_player_gets_an_answer_in_one_line(text: str) -> None:
    why = player_refused(text, NOTHING)
    assert why is None or len(why.splitlines()) == 1
