"""Tokens: only who holds the text comes in, as long as it holds, whoever changes the file."""

from __future__ import annotations

import hmac
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.control import tokens as module
from rookery.control.tokens import SCOPES, Scope, Token, TokenStore, allows
from rookery.errors import InputError, UnknownName

NOW = 1e12  # long after whatever was made without an end


@pytest.fixture
def store(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path / "home" / "tokens.json")


def test_a_scope_holds_those_before_it() -> None:
    held = {have: [need for need in SCOPES if allows(have, need)] for have in SCOPES}
    assert held == {
        "read": ["read"],
        "operate": ["read", "operate"],
        "admin": ["read", "operate", "admin"],
    }


def test_a_new_token_comes_in_with_its_scope_and_label(store: TokenStore) -> None:
    made = store.create("operate", None, "laptop")
    assert len(made.token) == len("rk_") + 8 + 1 + 43
    assert made.token.startswith(f"rk_{made.id}_")
    assert store.check(made.token, NOW) == Token(made.id, "operate", "laptop", None)


def test_its_secret_is_nowhere_in_the_file_which_only_its_owner_reads(store: TokenStore) -> None:
    secret = store.create("admin", None, "x").token[12:]
    for file in store.path.parent.iterdir():
        assert secret not in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {file.name for file in store.path.parent.iterdir()} == {"tokens.json", "tokens.lock"}


def test_the_file_stays_private_under_any_umask(store: TokenStore) -> None:
    before = os.umask(0)
    try:
        store.create("admin", None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.with_suffix(".lock").stat().st_mode) == 0o600


def test_a_token_holds_until_its_time_is_over(store: TokenStore) -> None:
    made = store.create("read", 60.0)
    assert made.expires_s is not None
    assert made.expires_s == made.created_s + 60.0
    held = store.check(made.token, made.expires_s - 0.001)
    assert held is not None
    assert store.holds(held, made.expires_s - 0.001)
    assert store.check(made.token, made.expires_s) is None
    assert not store.holds(held, made.expires_s)


def test_revoking_works_at_once_in_another_process(store: TokenStore) -> None:
    server, made = TokenStore(store.path), store.create("admin", None)
    held = server.check(made.token, NOW)
    assert held is not None
    assert server.holds(held, NOW)
    assert store.revoke(made.id)
    assert server.check(made.token, NOW) is None
    assert not server.holds(held, NOW)
    assert not store.revoke(made.id)


def test_no_change_is_missed_however_fast_they_come(store: TokenStore) -> None:
    """Files of one size, written in one tick: their time is made to grow."""
    server = TokenStore(store.path)
    for _ in range(50):
        made = store.create("read", None, "")
        assert server.check(made.token, NOW) is not None
        store.revoke(made.id)
        assert server.check(made.token, NOW) is None


def test_a_file_that_goes_away_lets_nobody_in(store: TokenStore) -> None:
    made = store.create("admin", None)
    assert store.check(made.token, NOW) is not None
    store.path.unlink()
    assert store.check(made.token, NOW) is None
    assert store.list() == []


def test_the_list_has_no_secrets_and_is_in_order(store: TokenStore) -> None:
    made = [store.create(scope, None, scope) for scope in SCOPES]
    found = store.list()
    assert [view.id for view in found] == [new.id for new in made]
    assert [view.scope for view in found] == list(SCOPES)
    text = json.dumps([view.model_dump() for view in found])
    assert all(new.token[12:] not in text for new in made)


def test_expired_ones_make_room(store: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TOKENS", 2)
    store.create("read", 1e-9)
    store.create("read", None)
    kept = store.create("read", None)
    with pytest.raises(InputError, match="revoke some"):
        store.create("read", None)
    assert store.check(kept.token, NOW) is not None


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), 1e300])
def test_a_time_that_is_none_is_refused(store: TokenStore, ttl_s: float) -> None:
    with pytest.raises(InputError, match="seconds"):
        store.create("read", ttl_s)


@pytest.mark.parametrize("label", ["a\nb", "\x1b[31m", "x" * 101, "auto"])
def test_a_label_is_one_line(store: TokenStore, label: str) -> None:
    with pytest.raises(InputError, match=r"label|Rookery's own"):
        store.create("read", None, label)
    assert not store.path.exists()


def test_an_unknown_scope_is_refused_with_the_nearest(store: TokenStore) -> None:
    wrong: Any = "operator"
    with pytest.raises(UnknownName, match="operate"):
        store.create(wrong, None)


DAMAGED = [
    b"",
    b"[]",
    b"\xff",
    b'{"tokens": 3}',
    b'{"tokens": [{}]}',
    b'{"tokens": [{"id": "00000000"}]}',
    b"[" * 100_000,
    json.dumps(
        {
            "tokens": [
                {
                    "id": "00000000",
                    "sha256": "",
                    "scope": "admin",
                    "label": "",
                    "created_s": 0,
                    "expires_s": None,
                }
            ]
        }
    ).encode(),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_lets_nobody_in_and_is_said_once(
    store: TokenStore, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    made = store.create("admin", None)
    store.path.write_bytes(content)
    with caplog.at_level(logging.DEBUG):
        for _ in range(20):
            assert store.check(made.token, NOW) is None
            assert store.check("rk_00000000_" + "A" * 43, NOW) is None
    assert len(caplog.records) == 1
    assert made.token[12:] not in caplog.text
    for act in (store.list, lambda: store.create("read", None), lambda: store.revoke(made.id)):
        with pytest.raises(InputError, match="damaged"):
            act()
    assert store.path.read_bytes() == content


def test_a_file_that_others_can_write_lets_nobody_in(store: TokenStore) -> None:
    made = store.create("admin", None)
    assert store.check(made.token, NOW) is not None
    store.path.chmod(0o620)
    assert store.check(made.token, NOW) is None
    with pytest.raises(InputError, match="chmod 600"):
        store.create("read", None)


def test_a_home_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot write"):
        TokenStore(tmp_path / "file" / "tokens.json").create("read", None)


def test_every_text_costs_one_comparison(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, compared, compare = store.create("read", None), [], hmac.compare_digest

    def counted(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return compare(a, b)

    monkeypatch.setattr(module.hmac, "compare_digest", counted)  # type: ignore[attr-defined]
    wrong = made.token[:-1] + ("A" if made.token[-1] != "A" else "B")
    for text in (made.token, wrong, "rk_00000000_" + "A" * 43, "", "x" * 10_000):
        store.check(text, NOW)
    assert compared == [(32, 32)] * 5


def test_a_failed_write_leaves_the_old_file(
    store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = store.create("read", None)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(module.os, "fsync", full)  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="No space left"):
            store.create("read", None)
    assert store.check(made.token, NOW) is not None
    assert {file.name for file in store.path.parent.iterdir()} == {"tokens.json", "tokens.lock"}


CREATE_MANY = """
import sys, pathlib
from rookery.control.tokens import TokenStore
store = TokenStore(pathlib.Path(sys.argv[1]))
for i in range(10):
    store.create("read", None, str(i))
"""


def test_processes_that_create_at_once_lose_nothing(store: TokenStore) -> None:
    command = [sys.executable, "-c", CREATE_MANY, str(store.path)]
    workers = [subprocess.Popen(command) for _ in range(3)]
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert len({view.id for view in store.list()}) == 30


# --- whatever the text ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, str]:
    store = TokenStore(tmp_path_factory.mktemp("tokens") / "tokens.json")
    return store, store.create("admin", None).token


@given(st.text())
def test_no_other_text_comes_in(known: tuple[TokenStore, str], text: str) -> None:
    store, token = known
    assert text == token or store.check(text, NOW) is None


@given(st.data())
def test_no_change_of_a_token_comes_in(known: tuple[TokenStore, str], data: st.DataObject) -> None:
    """Neither of a character, nor of its length, nor of its case, nor with another's id."""
    store, token = known
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(exclude_characters=token[at]))
    changed = [
        token[:at] + other + token[at + 1 :],
        token[:at] + token[at + 1 :],
        token[:at] + other + token[at:],
        token[:at],
        token + other,
        f"rk_00000000{token[11:]}",
    ]
    assert all(store.check(text, NOW) is None for text in changed if text != token)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(SCOPES), st.booleans()), max_size=5))
def test_each_comes_in_as_itself_until_it_is_revoked(
    tmp_path_factory: pytest.TempPathFactory, wanted: list[tuple[Scope, bool]]
) -> None:
    store = TokenStore(tmp_path_factory.mktemp("many") / "tokens.json")
    made = [(store.create(scope, None), scope, gone) for scope, gone in wanted]
    for new, _, gone in made:
        assert not gone or store.revoke(new.id)
    for new, scope, gone in made:
        found = store.check(new.token, NOW)
        assert found == (None if gone else Token(new.id, scope, "", None))


def test_only_the_very_token_that_came_in_is_still_held(store: TokenStore) -> None:
    made = store.create("read", None)
    held = store.check(made.token, NOW)
    assert held is not None
    assert store.holds(held, NOW)
    assert not store.holds(Token(made.id, "admin", "", None), NOW)


def test_the_time_of_the_file_grows_even_if_the_clock_went_back(store: TokenStore) -> None:
    store.create("read", None)
    later_ns = 4_000_000_000_000_000_000
    os.utime(store.path, ns=(later_ns, later_ns))
    store.create("read", None)
    assert store.path.stat().st_mtime_ns > later_ns
