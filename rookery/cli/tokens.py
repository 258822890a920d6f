"""Who may come in to a server: tokens of this home, or of a server."""

from __future__ import annotations

import argparse

from rookery.cli.options import client_of
from rookery.cli.text import print_revoked, print_token, print_tokens
from rookery.errors import InputError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def tokens_create(arguments: argparse.Namespace, began: float) -> int:
    ttl_s = _ttl_s(arguments.ttl)
    made = client_of(arguments).create_token(arguments.scope, ttl_s, arguments.label)
    return print_token(arguments, made)


def tokens_list(arguments: argparse.Namespace, began: float) -> int:
    return print_tokens(arguments, client_of(arguments).tokens())


def tokens_revoke(arguments: argparse.Namespace, began: float) -> int:
    client_of(arguments).revoke_token(arguments.id)
    return print_revoked(arguments)


def _ttl_s(text: str | None) -> float | None:
    """`8h` in seconds; a number alone is of seconds."""
    if text is None:
        return None
    number, unit = (text[:-1], text[-1]) if text[-1:] in UNITS_S else (text, "s")
    try:
        return float(number) * UNITS_S[unit]
    except ValueError:
        raise InputError(f"--ttl {text!r} is no length of time: 30m, 8h, 7d") from None
