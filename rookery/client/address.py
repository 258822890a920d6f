"""Where a server is, and the token for it: as named, from the environment, or of this home."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from rookery.errors import InputError, Unauthorized

if TYPE_CHECKING:
    import ssl

SERVER_VARIABLE, TOKEN_VARIABLE = "ROOKERY_SERVER", "ROOKERY_TOKEN"


@dataclass(frozen=True)
class Address:
    """A server, and the token that lets us in."""

    url: str  # without a slash at its end
    token: str = field(repr=False)

    @property
    def is_secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Trusts what the system trusts, and the certificates in $SSL_CERT_FILE."""
        if not self.is_secure:
            return None
        import ssl

        return ssl.create_default_context()


def find_address(
    url: str | None = None, token: str | None = None, insecure: bool = False
) -> Address:
    """The server that is named, or $ROOKERY_SERVER, or the one that runs in this home.

    The token: as given, the URL's own (`#token=`), $ROOKERY_TOKEN, or, only for the server of
    this home, the one that it keeps there.
    """
    here = _server_here()
    named = url or os.environ.get(SERVER_VARIABLE) or (here.url if here is not None else "")
    if not named:
        raise InputError(
            f"no server is known: start one here with rookery serve, or name one with "
            f"{SERVER_VARIABLE}=http://HOST:PORT"
        )
    base, own = _split(named)
    token = token or own or os.environ.get(TOKEN_VARIABLE)
    if not token and here is not None and _is_same(base, here.url):
        token = here.token
    if not token:
        raise Unauthorized(
            f"no token for {base}: set {TOKEN_VARIABLE}, or use the link that rookery serve prints"
        )
    if not token.isascii() or not token.isprintable() or " " in token:
        raise Unauthorized(f"the token for {base} is none: it looks like rk_...")
    if not insecure and not base.startswith("https:") and not _is_loopback(base):
        raise InputError(
            f"{base} is far away and without TLS, where anybody on the way reads the token: "
            "use https, or insecure=True"
        )
    return Address(base, token)


def _split(text: str) -> tuple[str, str]:
    """The address, and the token in its fragment, if there is one."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if host is None or parts.scheme not in ("http", "https") or parts.username or parts.query:
        shown = text.partition("#")[0]
        raise InputError(f"{shown!r} is no address of a server: it looks like http://HOST:PORT")
    shown = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
    return base, parse_qs(parts.fragment).get("token", [""])[0]


def _server_here() -> Address | None:
    """The server of this home as its files have it; it may have died since."""
    home = Path(os.environ.get("ROOKERY_HOME") or "runs").absolute()
    try:
        url = json.loads((home / "server.json").read_text(encoding="utf-8"))["url"]
        token = (home / "server.token").read_text(encoding="ascii").strip()
        base, _ = _split(str(url))
    except (OSError, ValueError, KeyError, TypeError, InputError):
        return None
    host = urlsplit(base).hostname or ""
    if host in ("0.0.0.0", "::"):  # it listens everywhere, also here
        shown = f"[{host}]" if ":" in host else host
        base = base.replace(shown, "[::1]" if ":" in host else "127.0.0.1", 1)
    return Address(base, token)


def _is_same(a: str, b: str) -> bool:
    """Whether two addresses lead to one server, as far as can be told without asking."""
    one, other = urlsplit(a), urlsplit(b)
    same_port = (one.scheme, one.port) == (other.scheme, other.port)
    return a == b or (same_port and _is_loopback(a) and _is_loopback(b))


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
