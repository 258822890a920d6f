"""docs/security.md is true: its commands run, and its settings are read as it says."""

from __future__ import annotations

from pathlib import Path

import yaml

from rookery.config.reading import build
from rookery.control.allow import player_refused, refused
from rookery.control.settings import FILE, Settings
from tests.conftest import Cli
from tests.docs.pages import blocks, commands, fences, text_of, words

PAGE = "docs/security.md"
TEXT = text_of(PAGE)


def test_its_commands_run(cli: Cli) -> None:
    (fence,) = fences(PAGE, "sh")
    create, listing, revoke = (words(line)[1:] for line in commands(fence))
    made = cli(*create, "--json").json
    assert made["scope"] == "read" and made["label"] == "dashboard"
    assert made["expires_s"] - made["created_s"] == 8 * 3600
    assert made["id"] in cli(*listing).stdout
    cli(*revoke[:-1], made["id"])
    assert made["id"] not in cli(*listing).stdout


def test_its_allow_list_allows_what_it_says(tmp_path: Path) -> None:
    allow_block, server_block = blocks(PAGE, "yaml")
    (tmp_path / FILE).write_text(allow_block)
    allow = Settings.load(tmp_path).allow
    assert refused(build({"environment": {"id": "my_package.envs:Maze"}}), allow) is None
    assert refused(build({"environment": {"id": "other_package:Maze"}}), allow) is not None
    assert player_refused("engine:stockfish", allow) is None
    assert player_refused("onnx:/data/models/a.onnx", allow) is None
    assert player_refused("onnx:/etc/a.onnx", allow) is not None
    (tmp_path / FILE).write_text(server_block)
    server = Settings.load(tmp_path).server
    assert not server.is_loopback and server.allowed_hosts == ("lab.example.org",)
    assert yaml.safe_load(server_block)["server"]["tls_cert"] == server.tls_cert


def test_a_server_for_others_needs_tls(cli: Cli) -> None:
    refusal = cli.refused("serve", "--host", "0.0.0.0", "--port", 0)
    assert "--insecure-bind" in refusal and "tls_cert" in refusal


def test_its_numbers_are_the_defaults() -> None:
    server = Settings().server
    assert f"({server.max_body_kb // 1024} MiB by default" in TEXT
    assert f"{server.requests_per_s:g} reads and {server.changes_per_s:g} changes" in TEXT
