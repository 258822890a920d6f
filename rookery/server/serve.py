"""`rookery serve` and `rookery mcp`: the control plane in a process.

One server to a home, by a lock. It carries the runs (`FleetThread`), follows all that happens
(`Follower`) and opens the doors: REST, the stream and MCP over HTTP, or MCP over standard input.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rookery.config.models import RestartConfig
from rookery.control.home import Home
from rookery.control.lease import SERVER as LOCK
from rookery.control.lease import SERVER_PLACE as PLACE
from rookery.control.lease import evict, holder, take_lock, wait_for_lock
from rookery.control.settings import ServerSettings, Settings, check_bind
from rookery.control.tokens import TokenStore
from rookery.errors import InputError, UnknownName
from rookery.launchers.ray.link import Links
from rookery.output import print_json

if TYPE_CHECKING:
    from rookery.server.control_plane import ControlPlane

TOKEN = "server.token"
SERVED = ("local", "ray")  # launchers that a server may have for all runs
OTHER_PORTS = 10  # that are tried after the usual one, where nobody asked for a certain one
GRACEFUL_S = 5
BACKLOG = 128  # connections that wait to be taken: all of them at once find descriptors
SWITCH_S = 0.001  # that a thread which reads files may hold up the one that answers
LOCK_PATIENCE_S = 0.5  # others look at the lock for a moment

logger = logging.getLogger(__name__)


def main(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; the workers checkpoint, and go on with the next server."""
    home = Home.default()
    home.check_writable()
    settings = _settings(home, arguments)
    check_bind(settings.server, arguments.insecure_bind)
    os.umask(0o077)  # whatever the server and its workers write is the owner's alone
    sys.setswitchinterval(SWITCH_S)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    with _only_server(home), _listening(settings.server, arguments.port is None) as listener:
        port = listener.getsockname()[1]
        settings = _with(settings, server={"port": port})
        tokens = TokenStore(home.path / "tokens.json")
        url, token = _url(settings.server), _owners_token(home.path, tokens)
        with _links(settings) as links, control_plane(home, settings, True, links) as plane:
            place = {
                "url": url,
                "pid": os.getpid(),
                "cpus": settings.cpus or links.cpus(settings.launcher, settings.ray.here()),
                "launcher": settings.launcher,
            }

            def ready() -> None:
                _write_private(home.path / PLACE, json.dumps(place))
                _announce(home, url, token, arguments.json)

            _serve(plane, tokens, settings, listener, ready)
        (home.path / PLACE).unlink(missing_ok=True)
    return 0


def mcp_main(arguments: argparse.Namespace) -> int:
    """MCP over standard input; carries runs itself where no server does."""
    import asyncio

    home = Home.default()
    home.check_writable()
    settings = home.settings
    os.umask(0o077)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    from rookery.server.mcp import serve_stdio

    lock = take_lock(home.path / LOCK)
    carries = lock is not None
    if sys.stdin.isatty():  # somebody typed it, where an assistant's program should be
        hint = "an assistant talks MCP to this on standard input; Ctrl-C ends it"
        _hang_up_on_interrupt()
        print(f"rookery: {hint}", file=sys.stderr, flush=True)
    with lock or contextlib.nullcontext(), control_plane(home, settings, carries) as plane:
        asyncio.run(serve_stdio(plane, arguments.scope))
    return 0


def _hang_up_on_interrupt() -> None:
    """Ctrl-C ends standard input: whoever waits for a line of a terminal can't be interrupted."""
    typed, (reads, writes), (asked, ask) = os.dup(0), os.pipe(), os.pipe()
    os.dup2(reads, 0)
    os.close(reads)

    def hand_on() -> None:
        while typed in (ready := select.select([typed, asked], [], [])[0]) and asked not in ready:
            if not (found := os.read(typed, 65536)):
                break
            os.write(writes, found)
        os.close(writes)

    threading.Thread(target=hand_on, daemon=True).start()
    signal.signal(signal.SIGINT, lambda *_: os.write(ask, b"."))


@contextlib.contextmanager
def _links(settings: Settings) -> Iterator[Links]:
    """To the cluster that runs are placed on, if there is one; what is wrong with it is said before
    anything listens."""
    links = Links()
    try:
        if settings.launcher == "ray":
            links.to(settings.ray.here()).wait()
        yield links
    finally:
        links.close()


@contextlib.contextmanager
def control_plane(
    home: Home, settings: Settings, carries: bool, links: Links | None = None
) -> Iterator[ControlPlane]:
    """The plane of a home with everything that it stands on; `carries`: runs live under it, on this
    machine or on what `links` lead to."""
    from rookery.server.control_plane import ControlPlane
    from rookery.server.feed.follower import Follower
    from rookery.server.fleet_thread import FleetThread

    links = links or Links()

    def cpus() -> int:
        return settings.cpus or links.cpus(settings.launcher, settings.ray.here())

    carrier = FleetThread(home, cpus, links) if carries else None
    follower = Follower(home)
    if carrier is not None:
        carrier.start()
    try:
        follower.start()
        try:
            link = links.to(settings.ray.here()) if settings.launcher == "ray" else None
            ask_nodes = link.nodes if link is not None else None
            yield ControlPlane(home, follower, settings, fleet=carrier, ask_nodes=ask_nodes)
        finally:
            follower.close()
    finally:
        if carrier is not None:
            carrier.close()


def _serve(
    plane: ControlPlane,
    tokens: TokenStore,
    settings: Settings,
    listener: socket.socket,
    ready: Callable[[], None],
) -> None:
    """Call `ready` once requests are answered and signals heard, and answer until one comes."""
    import uvicorn

    from rookery.server.app import build_app
    from rookery.server.security.connections import Connections, room_for
    from rookery.server.security.handshakes import LOOP
    from rookery.server.security.refusals import quieten_server_log
    from rookery.server.security.wire import WebSocketConnection, http_connections

    quieten_server_log()
    connections = Connections(room_for(settings.server.connections))
    config = uvicorn.Config(
        build_app(plane, tokens, settings),
        http=http_connections(connections),
        ws=WebSocketConnection,
        loop=LOOP,
        backlog=BACKLOG,
        log_config=None,
        access_log=False,  # addresses may hold tickets; /metrics counts requests
        server_header=False,
        proxy_headers=False,
        ws_max_size=128 << 10,  # above the stream's own bound, which answers in words
        ws_per_message_deflate=False,  # a frame is made once for all who get it
        timeout_graceful_shutdown=GRACEFUL_S,
        ssl_certfile=settings.server.tls_cert or None,
        ssl_keyfile=settings.server.tls_key or None,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started and not self.should_exit:
                ready()

    server = Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again when it is done
        signal.signal(number, lambda *_: setattr(server, "should_exit", True))
    server.run(sockets=[listener])


# --- before it listens ---------------------------------------------------------------------------


def _settings(home: Home, arguments: argparse.Namespace) -> Settings:
    """The home's settings, and what the command line says instead."""
    asked = {"host": arguments.host, "port": arguments.port}
    server = {key: value for key, value in asked.items() if value is not None}
    found = _with(home.settings, server=server)
    told = {"cpus": arguments.cpus, "launcher": arguments.launcher}
    found = _with(found, **{key: value for key, value in told.items() if value is not None})
    if found.launcher not in SERVED:
        raise UnknownName("launcher of a server", found.launcher, SERVED)
    return found


def _with(settings: Settings, server: dict[str, Any] | None = None, **values: Any) -> Settings:
    part = ServerSettings.model_validate({**settings.server.model_dump(), **(server or {})})
    return settings.model_copy(update={**values, "server": part})


@contextlib.contextmanager
def _only_server(home: Home) -> Iterator[None]:
    """One that is frozen is ended: its runs go on with this one."""
    path = home.path / LOCK
    lock = wait_for_lock(path, LOCK_PATIENCE_S)
    if lock is None and (ended := evict(path, RestartConfig().silent_s)) is not None:
        logger.warning("the server before this one, %s", ended)
        lock = wait_for_lock(path, LOCK_PATIENCE_S)
    if lock is None:
        raise InputError(f"a server of {home.path} runs already{_where(home.path)}{_how(path)}")
    with lock:
        yield


def _how(path: Path) -> str:
    """What is the matter with it, if anything is."""
    found = holder(path)
    if found is None or not found.seen.stopped:
        return ""
    left = max(1, math.ceil(RestartConfig().silent_s - found.silent_s))
    return (
        f"; {found} is frozen: let it go on with kill -CONT {found.progress.pid}, or try again "
        f"in {left} s to take over"
    )


def _where(path: Path) -> str:
    try:
        return f" at {json.loads((path / PLACE).read_text())['url']}"
    except (OSError, ValueError, KeyError):
        return ""


@contextlib.contextmanager
def _listening(server: ServerSettings, may_move: bool) -> Iterator[socket.socket]:
    """The bound socket; the usual port may be taken by something else, then the next free one."""
    host = server.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    ports = range(server.port, server.port + (OTHER_PORTS if may_move and server.port else 1))
    error: OSError | None = None
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as failed:
            error = failed
            listener.close()
            continue
        with listener:
            yield listener
        return
    reason = error.strerror if error is not None else "no port"
    raise InputError(f"cannot listen on {host}:{server.port}: {reason}; choose another --port")


def _owners_token(path: Path, tokens: TokenStore) -> str:
    """The token in the printed link: the same as last time while it holds."""
    file = path / TOKEN
    with contextlib.suppress(OSError, UnicodeDecodeError):
        text = file.read_text(encoding="ascii").strip()
        known = tokens.check(text, time.time())
        if known is not None and known.scope == "admin":
            return text
    text = tokens.create("admin", None, "owner").token
    _write_private(file, text)
    return text


def _write_private(path: Path, text: str) -> None:
    """Whole or not at all, and readable by its owner alone."""
    temporary = path.with_suffix(f".{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(text + "\n")
    os.replace(temporary, path)


def _url(server: ServerSettings) -> str:
    scheme = "https" if server.tls_cert else "http"
    host = f"[{server.host}]" if ":" in server.host else server.host
    return f"{scheme}://{host}:{server.port}"


def _announce(home: Home, url: str, token: str, as_json: bool) -> None:
    link = f"{url}/#token={token}"
    if as_json:
        print_json({"url": url, "link": link, "token": token, "pid": os.getpid()})
    else:
        print(f"Rookery serves the runs of {home.path}\n\n    {link}\n")
        print("Ctrl-C ends it after a checkpoint of each run; they go on with the next server.")
    sys.stdout.flush()
