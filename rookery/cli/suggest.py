"""What somebody meant who typed an option that this verb does not have."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rookery.cli.config import FLAGS
from rookery.errors import InputError, nearest_names
from rookery.errors.words import bare


def unknown_option(arguments: argparse.Namespace, typed: str, argv: Sequence[str]) -> InputError:
    """By its meaning, among this verb's own options and the keys that it can set; or by letters."""
    parser: argparse.ArgumentParser = arguments.parser
    if not typed.startswith("-") and "=" not in typed:
        return InputError(f"`{parser.prog}` takes no {typed!r} here; see `{parser.prog} -h`.")
    name, equals, value = typed.partition("=")
    if not equals:
        value = _next_word(typed, argv)
    own = sorted(o for o in parser._option_string_actions if o.startswith("--") and o != "--help")
    value = value or ("gpu" if bare(name) in ("gpu", "cuda") else "VALUE")
    near = _by_meaning(name, own, value, arguments.name == "set")
    word = name.lstrip("-")  # of two letters any option has one
    letters = nearest_names(word, [option[2:] for option in own], 1) if len(word) > 2 else ()
    near = near or "".join(f"--{option}" for option in letters)
    hint = f"did you mean {near}? See" if near else "see"
    return InputError(f"unknown option {typed!r} of `{parser.prog}`; {hint} `{parser.prog} -h`.")


def _next_word(typed: str, argv: Sequence[str]) -> str:
    """What stands behind an option, if it is its value."""
    after = argv[argv.index(typed) + 1 :] if typed.startswith("-") and typed in argv else []
    return after[0] if after and not after[0].startswith("-") else ""


def _by_meaning(name: str, own: Sequence[str], value: str, sets: bool) -> str:
    """An option or an assignment that does what the name says elsewhere; empty if there is none."""
    from rookery.config.reading import meant_key

    key = meant_key(name)
    flag = next((option for option, sets_key in FLAGS.items() if sets_key == key), None)
    if flag in own:
        return str(flag)
    if key is not None and sets:
        return f"{bare(key)}={value}"
    return f"--set {key}={value}" if key is not None and "--set" in own else ""
