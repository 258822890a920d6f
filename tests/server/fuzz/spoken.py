"""`rookery mcp` at the other end of a pipe, which is told what nobody should say.

    bad = await speak([sys.executable, "-m", "rookery", "mcp"], environment, lines, log)

After each portion it is asked whether it is still there; it has to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from tests.server.fuzz.calls import INITIALIZE

PORTION = 50
ANSWER_S = 60.0
MOST_LINE = 64 << 20


async def speak(
    command: Sequence[str], environment: Mapping[str, str], lines: Iterable[bytes], log: Path
) -> list[str]:
    """Say all of it; returns what must not have been."""
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=dict(environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            limit=MOST_LINE,
        )
    try:
        bad = await _speak(process, lines)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(ANSWER_S):
            if code := await process.wait():
                bad.append(f"it ended with {code}")
        return bad
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _speak(process: asyncio.subprocess.Process, lines: Iterable[bytes]) -> list[str]:
    bad: list[str] = []
    await _ask(process, b"", "hello", "initialize", INITIALIZE, bad)
    left, number = iter(lines), 0
    while said := b"".join(line + b"\n" for line in islice(left, PORTION)):
        try:
            await _ask(process, said, f"there? {number}", "ping", {}, bad)
        except (TimeoutError, EOFError, ConnectionError) as problem:
            return [*bad, f"no answer after portion {number}: {problem!r}\n  said {said[:4000]!r}"]
        number += 1
    return bad


async def _ask(
    process: asyncio.subprocess.Process,
    before: bytes,
    id: str,
    method: str,
    params: dict[str, Any],
    bad: list[str],
) -> None:
    assert process.stdin is not None and process.stdout is not None
    question = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
    process.stdin.write(before + json.dumps(question).encode() + b"\n")
    async with asyncio.timeout(ANSWER_S):
        while True:
            line = await process.stdout.readline()
            if not line:
                raise EOFError("it has ended")
            if b"an error inside the server" in line or b"Traceback" in line:
                bad.append(f"it said {line[:500]!r}")
            if json.loads(line).get("id") == id:
                return
