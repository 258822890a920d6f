"""Signatures of what is said on the control topics, by a key that the home's owner has.

Whoever can write to a bus is not thereby allowed to steer: a command without the signature of the
key is rejected, unless the home's settings say `trust_bus`. The key is a file that only its owner
can read, made at first use; machines of one team share it through $ROOKERY_KEY. Events are signed
as well, each with its place among those of its writer, so that a copy of one is known as a copy.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from rookery.errors import InputError

KEY_VARIABLE = "ROOKERY_KEY"
SIGNATURE = "signature"  # name of the header
PLACE = "place"  # of an event: who wrote it, and how many before it; signed with it
SIGNED_EVENTS = {"events": "signed"}  # said with a CreateRun: no event of the run comes without


class Key:
    """A shared secret; HMAC-SHA256 over the topic, the run and the payload."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return "Key(...)"

    @property
    def name(self) -> str:
        """Tells keys apart, and nothing about them."""
        return self.sign("", "", b"name")[:8]

    def for_run(self, run: str) -> Key:
        """What workers on machines of others get of it: good for what this run says to itself, and
        for nothing in the log."""
        return Key(self.sign("key of one run", run, b"").encode())

    @property
    def text(self) -> str:
        """The secret itself: for whoever is to have it, never for a log."""
        return self._secret.decode()

    def sign(self, topic: str, run: str, payload: bytes) -> str:
        parts = b"".join(len(p).to_bytes(4, "big") + p for p in (topic.encode(), run.encode()))
        return hmac.new(self._secret, parts + payload, hashlib.sha256).hexdigest()

    def signed(self, signature: str, topic: str, run: str, payload: bytes) -> bool:
        return hmac.compare_digest(
            signature.encode("utf-8", "replace"), self.sign(topic, run, payload).encode()
        )


class Writer(threading.local):
    """Numbers what a thread writes: its messages lie on the bus in this order."""

    def __init__(self) -> None:
        self._name, self._count = secrets.token_hex(6), 0

    def next_place(self) -> str:
        self._count += 1
        return f"{self._name}:{self._count}"


def place_of(headers: Mapping[str, str]) -> tuple[str, int] | None:
    """(who, how many-th), if the headers say it."""
    writer, _, number = headers.get(PLACE, "").partition(":")
    return (writer, int(number)) if number.isascii() and number.isdecimal() else None


def placed(place: str, payload: bytes) -> bytes:
    """What is signed of an event: without its place a copy of it would count again."""
    return place.encode() + b"\n" + payload


def key_path(home: Path) -> Path:
    chosen = os.environ.get(KEY_VARIABLE)
    return Path(chosen) if chosen else home / "command.key"


def load_key(home: Path, make: bool) -> Key | None:
    """The home's key; made if there is none and `make`, else None."""
    path = key_path(home)
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        if not make:
            return None
        return _make(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise InputError(f"cannot read the key of commands {path}: {reason}") from None
    if len(text) < 32:
        raise InputError(f"{path} is no key: it is too short; remove it and a new one is made")
    return Key(text.encode())


def _make(path: Path) -> Key:
    """A new key, whole from the first moment that anybody can see it; the first maker wins."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".key")  # readable by us alone
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
    return Key(path.read_text(encoding="ascii").strip().encode())
