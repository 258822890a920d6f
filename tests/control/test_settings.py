"""The owner's own word: read whole, refused in one line, and no way to be reachable by accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rookery.control.settings import FILE, Allow, ServerSettings, Settings, check_bind
from rookery.errors import ConfigError, InputError


def load(tmp_path: Path, text: str) -> Settings:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    return Settings.load(tmp_path)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = Settings.load(tmp_path)
    assert settings == Settings()
    assert settings.allow == Allow(code=(), binaries=(), files=(), hosts=())
    assert not settings.trust_bus
    assert settings.server.is_loopback


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_a_file_of_comments_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert load(tmp_path, text) == Settings()


def test_everything_that_is_written_is_read(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        """
        allow: {code: ["my.envs:*"], binaries: [stockfish], files: [/data/*], hosts: [a.example]}
        trust_bus: true
        cpus: 3
        server: {host: "::1", port: 0, allowed_hosts: [Lab.Example.org, "lab:8443"], max_body_kb: 5}
        """,
    )
    assert settings.allow.code == ("my.envs:*",)
    assert settings.allow.binaries == ("stockfish",)
    assert settings.allow.files == ("/data/*",)
    assert settings.allow.hosts == ("a.example",)
    assert settings.trust_bus
    assert settings.cpus == 3
    assert settings.server.allowed_hosts == ("lab.example.org", "lab:8443")
    assert settings.server.max_body_kb == 5


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("alow: {}", "unknown setting 'alow'; did you mean allow?"),
        ("allow: {codes: []}", "did you mean allow.code?"),
        ("server: {prot: 1}", "did you mean server.port?"),
        ("port: 80", "did you mean server.port?"),
        ("code: []", "did you mean allow.code?"),
        ("allow: {code: my_mod}", "allow.code"),
        ("allow: {code: ['']}", "allow.code.0"),
        ("cpus: 0", "cpus"),
        ("cpus: many", "(got 'many')"),
        ("server: {port: 70000}", "server.port"),
        ("server: {requests_per_s: .inf}", "server.requests_per_s"),
        ("server: {tls_cert: a.pem}", "tls_key go together"),
        ("server: {tls_key: a.pem}", "tls_key go together"),
        ("server: {allowed_hosts: ['*']}", "'*' is not a host"),
        ("server: {allowed_hosts: ['http://a']}", "is not a host"),
        ("server: {allowed_hosts: ['a b']}", "is not a host"),
        ('server: {allowed_hosts: ["a\\r\\nb"]}', "is not a host"),
        ("- a", "not a mapping"),
        ("a: [", "not valid YAML"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
        ("trust_bus: 2020-13-45", "not valid YAML"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_key(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert FILE in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot read"):
        Settings.load(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir()
    with pytest.raises(ConfigError, match="cannot read"):
        Settings.load(tmp_path)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_loopback_needs_nothing(host: str) -> None:
    check_bind(ServerSettings(host=host), insecure=False)


FAR = ["0.0.0.0", "::", "192.168.1.5", "lab.example.org", "", "127.0.0.1.example.org", "127.1"]


@pytest.mark.parametrize("host", FAR)
def test_an_address_that_others_reach_needs_tls_or_a_flag(host: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_bind(ServerSettings(host=host), insecure=False)
    said = str(caught.value)
    assert "\n" not in said
    assert "--insecure-bind" in said
    assert "tls_cert" in said
    assert "read the tokens" in said
    check_bind(ServerSettings(host=host), insecure=True)
    pem = tmp_path / "a.pem"
    pem.write_text("x")
    check_bind(ServerSettings(host=host, tls_cert=str(pem), tls_key=str(pem)), insecure=False)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_tls_without_its_files_is_said_before_it_listens(host: str, tmp_path: Path) -> None:
    server = ServerSettings(host=host, tls_cert=str(tmp_path / "no.pem"), tls_key="no.key")
    with pytest.raises(InputError, match=r"server\.tls_cert: cannot read"):
        check_bind(server, insecure=True)


def test_settings_and_guard_are_light_to_import() -> None:
    heavy = ["jax", "numpy", "gymnasium", "fastapi", "starlette", "uvicorn", "yaml"]
    code = (
        "import sys, rookery.control.settings, rookery.server.security.guard;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
