"""Who may come in: tokens, kept as hashes in a file of the home that only its owner can read.

    store = TokenStore(home.path / "tokens.json")
    made = store.create("operate", ttl_s=86_400, label="laptop")     # made.token is shown once
    token = store.check(text, time.time())                           # None: nobody we know

A token is `rk_<id>_<secret>`: the id finds the entry, names its holder in logs and audits, and is
no secret; the secret is 256 random bits, of which only the SHA-256 is kept. Another process may
create and revoke at any time: the file is looked at again whenever it has changed, and replaced
whole, under a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from rookery.control.autoscale import AUTHOR
from rookery.control.models import NewToken, TokenView
from rookery.errors import InputError, UnknownName

Scope = Literal["read", "operate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

MAX_TOKENS = 1000
MAX_LABEL = 100
_LONGEST_S = 100 * 365 * 86_400.0
_TEXT = re.compile(r"rk_([0-9a-f]{8})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOBODY = "", b"\0" * 32  # what a text that is no token is compared with

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """Whom a request comes from."""

    id: str
    scope: Scope
    label: str
    expires_s: float | None = None


def allows(have: Scope, need: Scope) -> bool:
    """Each scope holds those before it: read < operate < admin."""
    return SCOPES.index(have) >= SCOPES.index(need)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A token as it is kept."""

    token: Token
    digest: bytes
    created_s: float

    @property
    def view(self) -> TokenView:
        token = self.token
        return TokenView(
            id=token.id,
            scope=token.scope,
            label=token.label,
            created_s=self.created_s,
            expires_s=token.expires_s,
        )


_Stamp = tuple[int, int, int, int]  # which file, its size, when it was written and changed hands


class TokenStore:
    """The tokens of a home. Opens its file only when it is asked something."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: _Stamp | None = None
        self._known: dict[str, _Entry] = {}

    def create(self, scope: Scope, ttl_s: float | None, label: str = "") -> NewToken:
        """A new token; without `ttl_s` it holds until it is revoked."""
        if scope not in SCOPES:
            raise UnknownName("scope", str(scope), SCOPES)
        if ttl_s is not None and not (math.isfinite(ttl_s) and 0 < ttl_s <= _LONGEST_S):
            raise InputError(f"a token can't hold for {ttl_s} seconds: give a number above 0")
        if len(label) > MAX_LABEL or not label.isprintable():
            raise InputError(f"a token's label is one line of at most {MAX_LABEL} characters")
        if label == AUTHOR:
            raise InputError(f"a token cannot be called {AUTHOR}: so are commands of Rookery's own")
        now = time.time()
        with self._changing() as entries:
            for id in [id for id, entry in entries.items() if _is_over(entry.token, now)]:
                del entries[id]
            if len(entries) >= MAX_TOKENS:
                raise InputError(f"there are {MAX_TOKENS} tokens already: revoke some first")
            id, secret = _fresh_id(entries), secrets.token_urlsafe(32)
            token = Token(id, scope, label, None if ttl_s is None else now + ttl_s)
            entries[id] = _Entry(token, _digest(secret), now)
        return NewToken(**entries[id].view.model_dump(), token=f"rk_{id}_{secret}")

    def list(self) -> list[TokenView]:
        """All tokens, oldest first, those that have expired included."""
        return [entry.view for entry in _read(self.path).values()]

    def revoke(self, id: str) -> bool:
        """Forget a token from now on; False if there is none."""
        if id not in _read(self.path):
            return False
        with self._changing() as entries:
            return entries.pop(id, None) is not None

    def check(self, text: str, now: float) -> Token | None:
        """Whose token it is; None for one that is unknown, revoked or expired.

        What an unknown id costs is what a wrong secret costs: one hash and one comparison.
        """
        found = _TEXT.fullmatch(text) if len(text) < 100 else None
        id, secret = found.groups() if found else ("", "")
        entry = self._current().get(id)
        expected = _NOBODY[1] if entry is None else entry.digest
        same = hmac.compare_digest(_digest(secret), expected)
        if not same or entry is None or _is_over(entry.token, now):
            return None
        return entry.token

    def holds(self, token: Token, now: float) -> bool:
        """Whether a token that was good once still is; for connections that stay open."""
        entry = self._current().get(token.id)
        return entry is not None and entry.token == token and not _is_over(token, now)

    def _current(self) -> dict[str, _Entry]:
        """What the file holds now. A file that can't be trusted lets nobody in."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            try:
                self._known = _read(self.path)
            except InputError as error:
                logger.error("nobody can log in: %s", error)
                self._known = {}
            self._stamp = stamp
        return self._known

    @contextlib.contextmanager
    def _changing(self) -> Iterator[dict[str, _Entry]]:
        """The entries, to be changed in place by one process at a time, and then written."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                entries = _read(self.path)
                yield entries
                _write(self.path, entries)
            finally:
                os.close(lock)
        except OSError as error:
            raise InputError(f"cannot write {self.path}: {error.strerror or error}") from error


def _fresh_id(taken: dict[str, _Entry]) -> str:
    while (id := secrets.token_hex(4)) in taken:
        continue
    return id


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _is_over(token: Token, now: float) -> bool:
    return token.expires_s is not None and now >= token.expires_s


# --- the file ------------------------------------------------------------------------------------


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> dict[str, _Entry]:
    try:
        with open(path, "rb") as file:
            mode, content = os.fstat(file.fileno()).st_mode, file.read()
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if mode & 0o022:
        raise InputError(f"others can write {path}, and so let themselves in: chmod 600 {path}")
    try:
        entries = [_entry(**values) for values in json.loads(content)["tokens"]]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InputError(f"{path} is damaged: remove it and make new tokens") from error
    return {entry.token.id: entry for entry in entries}


def _entry(
    *, id: str, sha256: str, scope: str, label: str, created_s: float, expires_s: float | None
) -> _Entry:
    digest, known = bytes.fromhex(sha256), [name for name in SCOPES if name == scope]
    if len(digest) != 32 or not known or not re.fullmatch("[0-9a-f]{8}", id):
        raise ValueError("not a token")
    expires = None if expires_s is None else float(expires_s)
    if expires is not None and not math.isfinite(expires):
        raise ValueError("not a time")
    return _Entry(Token(id, known[0], str(label), expires), digest, float(created_s))


def _write(path: Path, entries: dict[str, _Entry]) -> None:
    """Replace the file whole. Its time always grows, so that no reader can miss a change."""
    tokens: list[dict[str, Any]] = [
        {**entry.view.model_dump(), "sha256": entry.digest.hex()} for entry in entries.values()
    ]
    before = _stamp(path)
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        with open(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump({"tokens": tokens}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        written_ns = os.stat(fresh).st_mtime_ns
        if before is not None and written_ns <= before[2]:
            os.utime(fresh, ns=(before[2] + 1000, before[2] + 1000))
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
