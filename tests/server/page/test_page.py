"""The page's files: anyone may read them, nothing else can be reached, the policy is strict."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from rookery.server.page import POLICY, Page


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / "built" / "assets").mkdir(parents=True)
    (tmp_path / "built" / "index.html").write_text("<!doctype html><title>Rookery</title>")
    (tmp_path / "built" / "assets" / "index-1a2b.js").write_text("1")
    (tmp_path / "built" / "assets" / "index-1a2b.js.gz").write_bytes(b"packed")
    (tmp_path / "built" / "digest").write_text("0")
    (tmp_path / "secret.js").write_text("secret")
    return tmp_path / "built"


def test_the_page_is_asked_for_anew_and_its_assets_are_kept(built: Path) -> None:
    client = TestClient(Page(built))
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["cache-control"] == "no-cache"
    asset = client.get("/assets/index-1a2b.js", headers={"Accept-Encoding": "identity"})
    assert asset.text == "1" and "immutable" in asset.headers["cache-control"]
    for answer in (page, asset):
        assert answer.headers["content-security-policy"] == POLICY
    same = client.get("/", headers={"If-None-Match": page.headers["etag"]})
    assert same.status_code == 304 and not same.content


def test_what_the_build_packed_is_sent_packed(built: Path) -> None:
    client = TestClient(Page(built))
    with client.stream(
        "GET", "/assets/index-1a2b.js", headers={"Accept-Encoding": "gzip"}
    ) as found:
        assert found.headers["content-encoding"] == "gzip"
        assert b"".join(found.iter_raw()) == b"packed"


@pytest.mark.parametrize(
    "path",
    ["/assets/none.js", "/assets/../secret.js", "/assets/%2e%2e/%2e%2e/secret.js", "/digest"],
)
def test_no_other_file_can_be_reached(built: Path, path: str) -> None:
    found = TestClient(Page(built)).get(path)
    assert found.status_code == 404 and "secret" not in found.text


def test_without_a_build_it_says_what_to_do(tmp_path: Path) -> None:
    found = TestClient(Page(tmp_path)).get("/")
    assert found.status_code == 503 and "make page" in found.text
    assert found.headers["content-type"].startswith("text/plain")


def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    assert POLICY.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in POLICY and "http" not in POLICY
