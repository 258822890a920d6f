"""Watching over a WebSocket: a true server, a true viewer's process, a true policy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest
import websockets
from websockets.asyncio.client import ClientConnection

from tests.conftest import Cli, Served

TIMEOUT_S = 90.0
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def run(shared_cli: Cli) -> str:
    done = shared_cli(
        *("train", "CartPole-v1", "--steps", 2000, "--launcher", "inline", "--json"),
        *("--set", "actors.envs_per_actor=4"),
    )
    return str(done.json["run"])


@pytest.fixture(scope="module")
def server(shared_cli: Cli, run: str) -> Served:
    (shared_cli.home.path / "rookery.yaml").write_text("server: {viewers: 2}\n")
    return shared_cli.serve()


class Watcher:
    """A client that knows the contract."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def say(self, kind: str, **said: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **said}))

    async def hear(self) -> Any:
        return json.loads(await asyncio.wait_for(self.socket.recv(), TIMEOUT_S))

    async def hear_until(self, condition: Callable[[Any], bool]) -> Any:
        while not condition(heard := await self.hear()):
            continue
        return heard

    async def hear_the_rest(self, last: Any) -> Any:
        """The last frame of a game that is paused: one may have been under way, and no more."""
        for _ in range(2):
            try:
                last = json.loads(await asyncio.wait_for(self.socket.recv(), 1.0))
            except TimeoutError:
                return last
        raise AssertionError("frames come while it is paused")

    async def closed(self) -> tuple[int, str]:
        """The code it was closed with, and what was said before."""
        said = ""
        try:
            while True:
                said = (await self.hear()).get("detail", "")
        except websockets.ConnectionClosed as closed:
            assert closed.rcvd is not None
            return closed.rcvd.code, said


@asynccontextmanager
async def watching(server: Served, token: str | None = None) -> AsyncIterator[Watcher]:
    address = server.url.replace("http", "ws", 1) + "/api/v1/watch"
    async with websockets.connect(address, max_size=None) as socket:
        watcher = Watcher(socket)
        if token != "":
            await watcher.say("hello", token=token or server.token)
        yield watcher


async def begin(watcher: Watcher, run: str, **asked: Any) -> Any:
    assert (await watcher.hear())["type"] == "ready"
    await watcher.say("watch", run=run, **asked)
    return await watcher.hear()


def viewers(cli: Cli) -> list[psutil.Process]:
    found = []
    for process in cli.processes():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            found += [process] if "viewer" in process.cmdline() else []
    return found


async def none_left(cli: Cli) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while viewers(cli):
            await asyncio.sleep(0.05)


async def test_it_plays_pauses_steps_and_goes_on(server: Served, shared_cli: Cli, run: str) -> None:
    async with watching(server) as watcher:
        begun = await begin(watcher, run, fps=50.0)
        assert begun["type"] == "watching" and begun["playing"] and begun["fps"] == 50.0
        first = await watcher.hear()
        assert (first["type"], first["episode"], first["step"]) == ("frame", 1, 0)
        later = await watcher.hear_until(lambda frame: frame["step"] == 3)
        assert later["playing"] and later["picture"].startswith("data:image/png;base64,")

        await watcher.say("pause")
        await watcher.say("step")
        one = await watcher.hear_until(lambda frame: not frame["playing"])
        await watcher.say("step")
        two = await watcher.hear()
        assert (two["episode"], two["step"]) in [
            (one["episode"], one["step"] + 1),
            (one["episode"] + 1, 0),
        ]
        for _ in range(5):  # none is lost, however fast they are asked for
            await watcher.say("step")
        five = [await watcher.hear() for _ in range(5)]
        assert [frame["playing"] for frame in five] == [False] * 5
        last = await watcher.hear_the_rest(five[-1])
        await watcher.say("restart")
        fresh = await watcher.hear_until(lambda frame: frame["episode"] > last["episode"])
        assert fresh["step"] == 0
        assert len(viewers(shared_cli)) == 1

        await watcher.say("play")
        assert (await watcher.hear_until(lambda frame: frame["step"] == 2))["playing"]
    await none_left(shared_cli)


async def test_something_else_is_shown_by_the_same_process(
    server: Served, shared_cli: Cli, run: str
) -> None:
    async with watching(server) as watcher:
        begun = await begin(watcher, run, weights="no-such-checkpoint")
        assert begun["type"] == "refused" and "no-such-checkpoint" in begun["detail"]
        await watcher.say("step")  # there is nothing to step: nothing is said
        (process,) = viewers(shared_cli)
        await watcher.say("watch", run=run, seed=7)
        begun = await watcher.hear()
        assert begun["type"] == "watching" and not begun["playing"]
        assert (await watcher.hear())["step"] == 0  # paused, its beginning is shown
        checkpoint = begun["choices"][1]
        await watcher.say("watch", run=run, weights=checkpoint)
        assert (await watcher.hear())["weights"] == checkpoint
        assert viewers(shared_cli) == [process]


async def test_a_viewer_that_dies_is_told_and_replaced(
    server: Served, shared_cli: Cli, run: str
) -> None:
    async with watching(server) as watcher:
        await begin(watcher, run)
        (process,) = viewers(shared_cli)
        process.kill()
        refused = await watcher.hear_until(lambda reply: reply["type"] == "refused")
        assert "died" in refused["detail"]
        await watcher.say("watch", run=run)
        assert (await watcher.hear())["type"] == "watching"


@pytest.mark.soak
async def test_a_viewer_that_is_frozen_is_replaced(
    server: Served, shared_cli: Cli, run: str
) -> None:
    async with watching(server) as watcher:
        await begin(watcher, run)
        (process,) = viewers(shared_cli)
        process.suspend()
        await watcher.hear_until(lambda reply: reply["type"] == "watching")
        await watcher.hear_until(lambda reply: reply["type"] == "frame")
        (another,) = viewers(shared_cli)
        assert another.pid != process.pid


@asynccontextmanager
async def seated(server: Served, number: int) -> AsyncIterator[None]:
    """So many watch at once; a place is given back a moment after its viewer has ended."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            async with contextlib.AsyncExitStack() as stack:
                all_of = [await stack.enter_async_context(watching(server)) for _ in range(number)]
                if all([(await each.hear())["type"] == "ready" for each in all_of]):
                    yield
                    return


async def test_no_more_watch_than_may(server: Served, run: str) -> None:
    async with seated(server, 2), watching(server) as third:
        assert await third.closed() == (4429, "all 2 viewers are taken: try again later")
    async with seated(server, 1):
        pass


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"type": "bogus"}, 4400),
        ({"type": "hello", "token": "again"}, 4400),
        ({"type": "speed", "fps": 1000}, 4400),
        ({"type": "watch", "run": "../../etc"}, 4400),
        ({"type": "watch", "run": "x", "extra": 1}, 4400),
    ],
)
async def test_what_is_no_message_ends_the_conversation(
    server: Served, said: dict[str, Any], code: int
) -> None:
    async with watching(server) as watcher:
        assert (await watcher.hear())["type"] == "ready"
        await watcher.socket.send(json.dumps(said))
        assert (await watcher.closed())[0] == code


async def test_nobody_watches_without_a_token(server: Served, shared_cli: Cli) -> None:
    await none_left(shared_cli)  # of the tests before
    async with watching(server, token="rk_00000000_" + "x" * 43) as watcher:
        assert (await watcher.closed())[0] == 4401
    async with watching(server, token="") as watcher:
        await watcher.say("watch", run="x")
        assert (await watcher.closed())[0] == 4401
    assert not viewers(shared_cli)


async def test_a_viewer_does_not_outlive_a_server_that_is_killed(cli: Cli) -> None:
    done = cli("train", "CartPole-v1", "--steps", 500, "--launcher", "inline", "--json")
    server = cli.serve()
    async with watching(server) as watcher:
        assert (await begin(watcher, done.json["run"]))["type"] == "watching"
        assert len(viewers(cli)) == 1
        server.process.kill()
        server.process.wait(30)
        await none_left(cli)
