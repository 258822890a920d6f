"""One run, driven through REST, the command line, MCP and the Python client in turn.

After each step every door tells the same story of it: they are translations of one log.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from rookery.client import Client
from tests.conftest import Cli, Served

TIMEOUT_S = 60.0
CONFIG = {
    "environment": {"id": "CartPole-v1"},
    "actors": {"envs_per_actor": 8, "rollout_steps": 32},
    "stop": {"steps": 1_000_000_000},
}
SAME = ("run", "status", "desired", "actors", "actors_wanted", "hyperparameters", "owner")


class Doors:
    """Four ways in (MCP by both of its transports), with one way to look through each."""

    def __init__(
        self, cli: Cli, server: Served, client: Client, http: McpClient, stdio: McpClient
    ) -> None:
        self.cli, self.server, self.client, self.http, self.stdio = cli, server, client, http, stdio
        self.run = ""

    async def views(self) -> dict[str, dict[str, Any]]:
        """What each door says of the run; those that block do so in a thread."""
        shown = ("runs", "show", self.run, "--json", "--server", self.server.url)
        return {
            "REST": await asyncio.to_thread(self.server.api, "GET", f"/runs/{self.run}"),
            "CLI": (await asyncio.to_thread(self.cli, *shown)).json,
            "client": (await asyncio.to_thread(self.client.run(self.run).detail)).model_dump(),
            "MCP over HTTP": await self.tool(self.http, "get_run"),
            "MCP over stdio": await self.tool(self.stdio, "get_run"),
        }

    async def agree(self, **expected: Any) -> None:
        """All doors come to say what is expected, and then the same."""
        async with asyncio.timeout(TIMEOUT_S):
            while not await self.says(expected):
                await asyncio.sleep(0.05)
            while True:
                found = await self.views()
                told = [{key: view[key] for key in SAME} for view in found.values()]
                if all(one == told[0] for one in told):
                    break
        assert await self.says(expected)

    async def says(self, expected: dict[str, Any]) -> bool:
        """Whether the first door says so."""
        found = await asyncio.to_thread(self.server.api, "GET", f"/runs/{self.run}")
        whole = {**found, **found["hyperparameters"]}
        return all(whole[key] == value for key, value in expected.items())

    async def tool(self, door: McpClient, name: str, **arguments: Any) -> dict[str, Any]:
        done = await door.call_tool(name, {"run": self.run, **arguments})
        assert not done.is_error, done
        assert isinstance(done.structured_content, dict)
        return done.structured_content

    async def type(self, *words: object) -> dict[str, Any]:
        done = await asyncio.to_thread(self.cli, *words, "--json", "--server", self.server.url)
        found: dict[str, Any] = done.json
        return found


@asynccontextmanager
async def open_doors(cli: Cli, server: Served) -> AsyncIterator[Doors]:
    child = StdioServerParameters(
        command=sys.executable, args=["-m", "rookery", "mcp"], env=cli.environment
    )
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=server.headers, timeout=TIMEOUT_S)
        )
        streams = streamable_http_client(f"{server.url}/mcp", http_client=http)
        over_http = await stack.enter_async_context(
            McpClient(streams, read_timeout_seconds=TIMEOUT_S)
        )
        over_stdio = await stack.enter_async_context(
            McpClient(child, read_timeout_seconds=TIMEOUT_S)
        )
        client = stack.enter_context(Client(server.url, server.token))
        yield Doors(cli, server, client, over_http, over_stdio)


async def drive(cli: Cli, server: Served) -> None:
    async with open_doors(cli, server) as doors:
        created = await asyncio.to_thread(server.api, "POST", "/runs", {"config": CONFIG})
        doors.run = created["run"]
        await doors.agree(status="running", actors=1)

        await doors.type("scale", doors.run, "--actors", 2, "--reason", "by CLI")
        await doors.agree(actors=2, actors_wanted=2)

        rate = {"values": {"algorithm.learning_rate": 5e-4}, "reason": "by MCP"}
        await doors.tool(doors.http, "set_hyperparameters", **rate)
        await doors.agree(**{"algorithm.learning_rate": 5e-4})

        remote = doors.client.run(doors.run)
        await asyncio.to_thread(remote.pause, reason="by client")
        await doors.agree(status="paused", desired="paused")

        await doors.tool(doors.stdio, "resume_run", reason="by MCP")
        await doors.agree(status="running", actors=2)

        path = f"/runs/{doors.run}/scale-actors"
        await asyncio.to_thread(server.api, "POST", path, {"count": 0, "reason": "by REST"})
        await doors.agree(actors=0, actors_wanted=0)

        await doors.type("set", doors.run, "entropy_coef=0.02", "--reason", "by CLI")
        await doors.agree(**{"algorithm.entropy_coef": 0.02})

        await asyncio.to_thread(remote.stop, reason="by client")
        await doors.agree(status="stopped", desired="stopped", owner="")

        audits = [
            (await asyncio.to_thread(server.api, "GET", f"/runs/{doors.run}/audit"))["entries"],
            (await doors.type("audit", doors.run))["entries"],
            [entry.model_dump() for entry in await asyncio.to_thread(remote.audit)],
            (await doors.tool(doors.http, "get_audit"))["entries"],
            (await doors.tool(doors.stdio, "get_audit"))["entries"],
        ]
        assert all(audit == audits[0] for audit in audits)
        assert [(e["kind"], e["outcome"], e["reason"]) for e in audits[0]][2:] == [
            ("scale_actors", "accepted", "by CLI"),
            ("set_hyperparameters", "accepted", "by MCP"),
            ("pause_run", "accepted", "by client"),
            ("resume_run", "accepted", "by MCP"),
            ("scale_actors", "accepted", "by REST"),
            ("set_hyperparameters", "accepted", "by CLI"),
            ("stop_run", "accepted", "by client"),
        ]


def test_all_doors_tell_the_same_story(cli: Cli) -> None:
    server = cli.serve("--cpus", 8)
    asyncio.run(asyncio.wait_for(drive(cli, server), 240))
    assert server.interrupt().code == 0
