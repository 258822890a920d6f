"""The server's OpenAPI document, from which the page's types are made.

    python web/document.py && npm --prefix web run types

A test compares the file with what the server says of itself.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from rookery.control.tokens import TokenStore
from rookery.server.app import build_api
from rookery.server.control_plane import ControlPlane
from rookery.server.http.openapi import document
from rookery.server.http.request_metrics import HttpMeter
from rookery.server.security.tickets import Tickets

FILE = Path(__file__).parent / "openapi.json"


def text() -> str:
    """No request is answered, so nobody needs to stand behind the routes."""
    nobody: Any = None
    app = build_api(cast(ControlPlane, nobody), cast(TokenStore, nobody), Tickets(), HttpMeter())
    found = document(app)
    found["info"]["version"] = "0"  # not a part of the contract: a release changes no type
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
