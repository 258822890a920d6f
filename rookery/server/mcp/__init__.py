"""MCP: Rookery as tools and resources of an AI assistant, over standard input or HTTP.

    await serve_stdio(plane, "operate")                     # `rookery mcp`
    door = build_mcp(plane)                                 # `rookery serve`, behind the Guard
    Route("/mcp", endpoint=door.endpoint); async with door.lifespan(): ...

The tools are data (`tools`, `reading`, `waiting`), made from the same list of commands
as REST. `server` puts them into the SDK, which takes a second to import: only the functions
here do. An assistant is not the owner typing: whatever it sends is of origin "network", and held
to the owner's allow-list even on the owner's own machine.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from anyio import to_thread

from rookery.control.tokens import Scope, Token

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane
    from rookery.server.mcp.http import McpDoor
    from rookery.server.security.limits import RateLimits

READY_S = 30.0


def build_mcp(plane: ControlPlane, limits: RateLimits | None = None) -> McpDoor:
    """The way in over HTTP, for those whom the Guard has put into their request's state.

    `limits` are the Guard's: every call of MCP is a POST, so changes are counted here.
    """
    from rookery.server.mcp.http import http_door

    return http_door(plane, limits)


async def serve_stdio(plane: ControlPlane, scope: Scope = "admin") -> None:
    """Serve the assistant at the other end of standard input until it hangs up.

    Standard output carries the protocol alone: whatever this process prints, then and afterwards,
    goes to standard error.
    """
    from rookery.control.create import author
    from rookery.server.mcp.server import RookeryServer

    me = Token("stdio", scope, author())
    await to_thread.run_sync(plane.follower.ready.wait, READY_S)
    try:
        await RookeryServer(plane, lambda: me).run_stdio_async()
    finally:
        os.dup2(2, 1)  # what was printed meanwhile may still wait in a buffer
