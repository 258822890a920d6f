"""Values that nobody should send: drawn by a schema, then broken, then written down badly.

rng = random.Random("seed 7")
value = mutated(sample(schema, definitions, rng), rng)
body = written(value, rng)
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from random import Random
from typing import Any

Schema = Mapping[str, Any]

TEXTS = (
    "",
    " ",
    "last",
    "*",
    ".",
    "..",
    "../../../../etc/passwd",
    "/etc/passwd",
    "os:system",
    "script:random",
    "engine:stockfish",
    "policy",
    "policy@3",
    "CartPole-v1",
    "algorithm.learning_rate",
    "player_0",
    "true",
    "null",
    "NaN",
    "-1",
    "1e999",
    "0x10",
    "9" * 18,
    "9" * 60,
    "9" * 5000,
    "\u0663\u0663",  # digits, but no ASCII ones
    "\u00b2-run",
    "\x00",
    "a\x00b",
    "\r\nSet-Cookie: a=b",
    "\x1b[31mred",
    "\u202egnp.exe",
    "\ufeff",
    "\ud800",
    "\U0001f4a5" * 40,
    "a\u0301" * 200,
    "%00%0d%0a",
    "%",
    "{{7*7}}",
    "${jndi:ldap://127.0.0.1/a}",
    "' OR 1=1 --",
    "<script>alert(1)</script>",
    "(a+)+$" + "a" * 60,
    "a" * 129,
    "a" * 501,
    "a" * 4001,
    "rk_00000000_" + "a" * 43,
)
NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 64, 65, 1000, 1001),
    *(2**31 - 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40, 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1e-320, 1e308, 3e9, math.nan, math.inf, -math.inf),
)
MOST_DEPTH = 90  # more than the server reads


def text(rng: Random) -> str:
    if rng.random() < 0.8:
        return rng.choice(TEXTS)
    return "".join(chr(rng.randrange(1, 0x2FFF)) for _ in range(rng.randrange(1, 12)))


def hostile(rng: Random) -> Any:
    match rng.randrange(12):
        case 0 | 1 | 2:
            return text(rng)
        case 3 | 4 | 5:
            return rng.choice(NUMBERS)
        case 6:
            return rng.choice((True, False, None))
        case 7:
            return [hostile(rng) for _ in range(rng.randrange(4))]
        case 8:
            return {text(rng): hostile(rng) for _ in range(rng.randrange(4))}
        case 9:
            return deep(rng)
        case 10 if rng.random() < 0.05:
            return wide(rng, rng.choice((65, 1001, 5000, 20_000)))
        case _:
            return rng.choice(([], {}, [[]], [None], {"": None}))


def deep(rng: Random) -> Any:
    found: Any = rng.choice(NUMBERS)
    for _ in range(rng.randrange(2, MOST_DEPTH)):
        found = [found] if rng.random() < 0.5 else {text(rng): found}
    return found


def wide(rng: Random, most: int) -> Any:
    if rng.random() < 0.5:
        return [rng.choice(("a", 1, None))] * most
    return {f"{rng.choice(('k', 'algorithm.', 'seat'))}{number}": 1 for number in range(most)}


# --- by a schema ---------------------------------------------------------------------------------


def sample(schema: Schema, definitions: Mapping[str, Schema], rng: Random, depth: int = 0) -> Any:
    """Something that mostly fits; patterns are not read, so that names rarely do."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return sample(definitions[name], definitions, rng, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return sample(rng.choice(schema[several]), definitions, rng, depth)
    if "default" in schema and rng.random() < 0.3:
        return schema["default"]
    match schema.get("type"):
        case "object":
            return _object(schema, definitions, rng, depth)
        case "array":
            items = schema.get("items", {})
            length = rng.randrange(3) if depth < 6 else 0
            return [sample(items, definitions, rng, depth + 1) for _ in range(length)]
        case "string":
            return rng.choice(TEXTS[:22])
        case "integer" | "number" as kind:
            low, high = schema.get("minimum", 0), schema.get("maximum", 1000)
            found = rng.choice((low, high, (low + high) / 2, 1))
            return int(found) if kind == "integer" else found
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
    return hostile(rng)


def _object(schema: Schema, definitions: Mapping[str, Schema], rng: Random, depth: int) -> Any:
    needed = schema.get("required", ())
    found = {
        name: sample(part, definitions, rng, depth + 1)
        for name, part in schema.get("properties", {}).items()
        if name in needed or rng.random() < (0.4 if depth < 4 else 0.1)
    }
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping) or more is True:
        part = more if isinstance(more, Mapping) else {}
        for _ in range(rng.randrange(3)):
            found[rng.choice(TEXTS[:22])] = sample(part, definitions, rng, depth + 1)
    return found


def mutated(value: Any, rng: Random) -> Any:
    """The same with one place changed, somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return {**value, text(rng): hostile(rng)}
            case _:
                return {**value, key: mutated(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated(value[at], rng), *value[at + 1 :]]
    return hostile(rng)


# --- written down --------------------------------------------------------------------------------


def written(value: Any, rng: Random, broken: float = 0.15) -> bytes:
    """As JSON, of which that share is none."""
    body = json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")
    if rng.random() >= broken:
        return body
    at = rng.randrange(len(body) + 1)
    match rng.randrange(11):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
        case 2:
            return body[:at] + rng.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\0")) + body[at:]
        case 3:
            return b"\xef\xbb\xbf" + body
        case 4:
            return body.decode(errors="replace").encode(rng.choice(("utf-16", "utf-32-le")))
        case 5:
            return body + rng.choice((b"}", b",", body, b"\n\n", b"// why"))
        case 6:
            return b"[" * rng.choice((64, 65, 5000)) + body
        case 7:
            return b'{"a":' * rng.choice((64, 65, 3000)) + body
        case 8:
            return body.replace(b'"', b"'")
        case 9:
            return rng.randbytes(rng.randrange(1, 200))
        case _:
            return rng.choice((b"", b" ", b"nul", b'"', b"-", b"1e5", b"[1,]", b'{"a":1,"a":2}'))
