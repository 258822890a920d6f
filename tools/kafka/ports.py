"""Ports that stay ours while a Kafka node is down."""

from __future__ import annotations

import errno
import socket

from rookery.errors import InputError

CONNECT_S = 2.0


def reserve(host: str, port: int = 0) -> socket.socket:
    """Hold a port, a free one for 0, without listening on it.

    On Linux a node may listen where we only hold, and nobody is given the port by chance.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((host, port))
    except (OSError, OverflowError) as error:
        holder.close()
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            raise InputError(
                f"port {port} of {host} is taken: choose another, or stop what listens there"
            ) from None
        raise InputError(f"cannot listen on {host}:{port}: {error}") from None
    return holder


def listens(address: str) -> bool:
    """Whether somebody takes connections at `host:port`."""
    host, port = address.rsplit(":", 1)
    with socket.socket() as probe:
        probe.settimeout(CONNECT_S)
        return probe.connect_ex((host, int(port))) == 0
