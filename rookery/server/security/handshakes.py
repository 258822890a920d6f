"""TLS handshakes, held to a time: uvicorn has no setting for it, and the library's own is 60 s.

    uvicorn.Config(app, loop=LOOP, ssl_certfile="cert.pem", ssl_keyfile="key.pem")

A connection is counted (`Connections`) from its handshake's end on.
"""

from __future__ import annotations

from asyncio import AbstractServer
from typing import Any

import uvloop

HANDSHAKE_S = 5.0
LOOP = f"{__name__}:HandshakeLoop"


class HandshakeLoop(uvloop.Loop):
    """uvloop, whose servers do not wait for who is slow to shake hands."""

    async def create_server(  # type: ignore[override]  # whatever it is given
        self, *args: Any, ssl: Any = None, **options: Any
    ) -> AbstractServer:
        if ssl is not None:
            options["ssl_handshake_timeout"] = HANDSHAKE_S
        return await super().create_server(*args, ssl=ssl, **options)
