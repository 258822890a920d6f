"""A line between two learners of a crew: frames over TCP, and a word when the other end is gone.

A thread reads whatever comes, so that the end of the other process is noticed at once, whatever
this one is doing. Nothing that is read is believed before its frame was checked.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable

from rookery.errors import CrewLost, MessageError
from rookery.messages.crew import CrewMessage, Over, decode_crew

_LENGTH = struct.Struct("<Q")
MOST_BYTES = 64 << 30
_AHEAD = 4  # messages that are read before they are asked for: leaders are ahead by one or two
_SILENT_S = 30  # without an answer of the other machine, before it counts as gone


class Line:
    """One end, from when both know each other on. `lost` is called by its thread, at most once."""

    def __init__(self, connection: socket.socket, name: str, lost: Callable[[str], None]) -> None:
        self.name = name
        self._connection, self._lost = connection, lost
        self._came: queue.Queue[CrewMessage] = queue.Queue(_AHEAD)
        self._closed = False
        keep_alive(connection)
        self._thread = threading.Thread(target=self._read, name=f"line to {name}", daemon=True)
        self._thread.start()

    def send(self, payload: bytes) -> None:
        try:
            send(self._connection, payload)
        except OSError as error:
            raise CrewLost(gone(self.name)) from error

    def receive(self, timeout_s: float | None = None) -> CrewMessage | None:
        """The next message; None when the time is up."""
        try:
            return self._came.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def close(self) -> None:
        """In good order: that the other end closes it too is no loss."""
        self._closed = True
        with contextlib.suppress(OSError):  # its own thread may have closed it
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_SILENT_S)

    def _read(self) -> None:
        try:
            while True:
                message = decode_crew(receive(self._connection, MOST_BYTES))
                self._closed |= isinstance(message.word, Over)
                self._came.put(message)
        except (OSError, MessageError) as error:
            if not self._closed:
                self._lost(gone(self.name, error))
        finally:
            self._connection.close()


def gone(name: str, error: Exception | None = None) -> str:
    why = f" ({error})" if isinstance(error, MessageError) else ""
    return f"{name} is gone{why}: learners of one run end together, and begin anew together"


def keep_alive(connection: socket.socket) -> None:
    """A machine that fell off the network says no farewell."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _SILENT_S // 3), ("TCP_KEEPINTVL", 5)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _SILENT_S)


def send(connection: socket.socket, payload: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(payload)))
    connection.sendall(payload)


def receive(connection: socket.socket, most: int) -> bytearray:
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if length > most:
        raise MessageError(f"a message of {length} bytes, over {most}")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytearray:
    found = bytearray(count)
    view, at = memoryview(found), 0
    while at < count:
        got = connection.recv_into(view[at:])
        if not got:
            raise ConnectionError("closed by the other end")
        at += got
    return found
