"""What fastmcp's client sees, run by the Python that has it: steps in, what they gave out.

    python fastmcp_steps.py '{"url": ..., "token": ...}' < steps.json       # or {"command": [...]}

A step is ["tools"], ["call", tool, arguments] or ["read", address]. Whoever is asked to type a
run's id types the one that the question names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from fastmcp.exceptions import ToolError
from mcp import MCPError

TIMEOUT_S = 300.0


async def confirm(message: str, response_type: Any, params: Any, context: Any) -> dict[str, str]:
    return {"run": message.split()[2].rstrip("?")}


async def step(client: Client[Any], what: str, *asked: Any) -> dict[str, Any]:
    if what == "tools":
        tools = [tool.model_dump(mode="json", by_alias=True) for tool in await client.list_tools()]
        return {"data": {"tools": tools}}
    try:
        if what == "call":
            done = await client.call_tool(asked[0], asked[1], timeout=TIMEOUT_S)
            assert done.data is not None  # made of the output schema, and checked by it
            return {"data": done.structured_content}
        (part,) = await client.read_resource(asked[0])
        return {"data": json.loads(part.text)}
    except (ToolError, MCPError) as error:
        return {"error": str(error)}


async def main() -> None:
    target = json.loads(sys.argv[1])
    if "url" in target:
        headers = {"Authorization": f"Bearer {target['token']}"}
        transport: Any = StreamableHttpTransport(target["url"], headers=headers)
    else:
        command, *arguments = target["command"]
        transport = StdioTransport(command=command, args=arguments, env=dict(os.environ))
    async with Client(transport, elicitation_handler=confirm) as client:
        found = [await step(client, *asked) for asked in json.load(sys.stdin)]
    json.dump(found, sys.stdout)


asyncio.run(main())
