"""The page's types are made from web/openapi.json, which must be what the server says of itself."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

WEB = Path(__file__).resolve().parents[2] / "web"


def test_the_document_behind_the_pages_types_is_current() -> None:
    spec = importlib.util.spec_from_file_location("document", WEB / "document.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.FILE.read_text() == script.text(), "run: python web/document.py"


def test_the_lock_file_names_no_registry() -> None:
    lock = (WEB / "package-lock.json").read_text()
    assert '"resolved"' not in lock
    assert lock.count('"integrity"') >= lock.count('"node_modules/') > 0


def test_the_page_asks_nobody_else() -> None:
    allowed = {"http://www.w3.org/2000/svg", "http://127.0.0.1:7860"}
    files = [path for path in (WEB / "src").rglob("*") if path.suffix in (".ts", ".svelte", ".css")]
    found = {
        url
        for path in [*files, WEB / "index.html", WEB / "vite.config.ts"]
        if path.name != "schema.ts"
        for url in re.findall(r"https?://[^\s'\"`)<]+", path.read_text())
    }
    assert found <= allowed
