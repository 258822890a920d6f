"""A server with TLS, and who connects without a word."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from rookery.server.security import handshakes
from rookery.server.security.connections import Connections
from rookery.server.security.wire import http_connections

PATIENCE_S = 20.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


@pytest.fixture
def cert(tmp_path: Path) -> Path:
    path = tmp_path / "both.pem"
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-nodes", "-keyout", str(path), "-out", str(tmp_path / "cert.pem")),
        *("-subj", "/CN=localhost", "-days", "1"),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    path.write_text(path.read_text() + (tmp_path / "cert.pem").read_text())
    return path


@contextlib.contextmanager
def served(cert: Path) -> Iterator[tuple[str, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http_connections(Connections(16)),
        loop=handshakes.LOOP,
        lifespan="off",
        log_config=None,
        ssl_certfile=cert,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listener.close()
    assert not thread.is_alive()


def test_who_does_not_shake_hands_is_not_waited_for(
    cert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "HANDSHAKE_S", 3.0)
    trusting = ssl.create_default_context(cafile=str(cert))
    trusting.check_hostname = False
    with served(cert) as place, socket.create_connection(place, PATIENCE_S) as silent:
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(1) == b""
        with (
            socket.create_connection(place, PATIENCE_S) as plain,
            trusting.wrap_socket(plain) as shaken,
        ):
            shaken.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b"here" in shaken.makefile("rb").read()
