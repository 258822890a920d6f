"""Where a cluster is and how to log in: from a URI and a file, refused in words without secrets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rookery.bus.kafka.settings import CONFIG_VARIABLE, KafkaBusConfig, KafkaSettings
from rookery.config.reading import validate
from rookery.errors import ConfigError, InputError, UnknownName

DOCS = Path(__file__).resolve().parents[3] / "docs" / "kafka.md"
URI = "kafka://127.0.0.1:9092"
SECRET = "hunter2-castle"


@pytest.fixture(autouse=True)
def _no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)


def write(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "kafka.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


# --- the URI -------------------------------------------------------------------------------------


def test_a_uri_names_servers_and_a_prefix() -> None:
    settings = KafkaSettings.of("kafka://b1:9093,b2:9093/team-a")
    assert (settings.servers, settings.prefix) == ("b1:9093,b2:9093", "team-a.")
    assert KafkaSettings.of("kafka://[::1]:9092").servers == "[::1]:9092"


def test_a_prefix_is_kept_apart_from_the_topics_name() -> None:
    assert KafkaSettings.of(f"{URI}/team_").prefix == "team_"
    assert KafkaSettings.of(f"{URI}/team.").prefix == "team."
    assert KafkaSettings.of(URI).prefix == ""


def test_settings_give_the_uri_that_leads_back_to_them() -> None:
    settings = KafkaSettings.of("kafka://b1:9093,b2:9093/team")
    assert KafkaSettings.of(settings.uri) == settings


@pytest.mark.parametrize(
    "uri",
    [
        "kafka://",
        "kafka://host",
        "kafka://host:",
        "kafka://host:port",
        "kafka://host:99999",
        "kafka://host:0",
        "kafka://:9092",
        "kafka://a:1,,b:2",
        "kafka://a:1, b:2",
        "kafka://::1:9092",
        "sqlite:x",
    ],
)
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="write kafka://host:port"):
        KafkaSettings.of(uri)


@pytest.mark.parametrize("prefix", ["a/b", "a b", "ä", "x" * 101])
def test_what_is_no_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        KafkaSettings.of(f"{URI}/{prefix}")


def test_a_password_in_a_uri_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match="--bus-config") as caught:
        KafkaSettings.of(f"kafka://rook:{SECRET}@host:9092")
    assert SECRET not in str(caught.value)


# --- the file ------------------------------------------------------------------------------------


def test_a_file_gives_security_in_the_clients_own_words(tmp_path: Path) -> None:
    for name in ("ca.pem", "me.pem", "me.key"):
        (tmp_path / name).write_text("")
    file = write(
        tmp_path,
        f"""
        prefix: team-a
        tls: {{ca: ca.pem, cert: {tmp_path}/me.pem, key: me.key, key_password: 1234}}
        sasl: {{mechanism: SCRAM-SHA-512, username: rook, password: {SECRET}}}
        """,
    )
    settings = KafkaSettings.of(URI, file)
    assert settings.prefix == "team-a."
    assert settings.client == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(tmp_path / "ca.pem"),  # beside the file, wherever we are
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "me.key"),
        "ssl.key.password": "1234",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "rook",
        "sasl.password": SECRET,
    }


def test_the_examples_in_the_docs_are_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, file = re.findall(r"```yaml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    for name in ("ca.pem", "me.pem", "me.key"):
        (tmp_path / name).write_text("")
    for name in ("KEY_PASSWORD", "ROOKERY_PASSWORD"):
        monkeypatch.setenv(name, SECRET)
    settings = KafkaSettings.of(URI, write(tmp_path, file))
    assert settings.client["security.protocol"] == "SASL_SSL" and settings.prefix == "team-a."
    config = validate({"environment": {"id": "CartPole-v1"}, **yaml.safe_load(run)})
    assert config.bus == KafkaBusConfig()  # it shows the defaults


PROTOCOLS = {
    "": None,
    "tls:": "SSL",  # never in plain text, where TLS was asked for in whatever way
    "tls: {}": "SSL",
    "sasl: {username: rook, password: x}": "SASL_PLAINTEXT",
    "tls:\nsasl: {username: rook, password: x}": "SASL_SSL",
}


@pytest.mark.parametrize(("text", "protocol"), PROTOCOLS.items())
def test_what_is_written_decides_on_the_protocol(
    tmp_path: Path, text: str, protocol: str | None
) -> None:
    settings = KafkaSettings.of(URI, write(tmp_path, text))
    assert settings.client.get("security.protocol") == protocol


def test_the_variable_names_the_file_where_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CONFIG_VARIABLE, write(tmp_path, "prefix: from-a-file"))
    assert KafkaSettings.of(URI).prefix == "from-a-file."
    assert KafkaSettings.of(f"{URI}/mine").prefix == "mine."  # what was typed wins


def test_a_secret_can_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "sasl: {username: rook, password: $ROOK_PASSWORD}")
    with pytest.raises(ConfigError, match="ROOK_PASSWORD is not set"):
        KafkaSettings.of(URI, file)
    monkeypatch.setenv("ROOK_PASSWORD", SECRET)
    assert KafkaSettings.of(URI, file).client["sasl.password"] == SECRET


def test_secrets_are_no_part_of_what_settings_look_like(tmp_path: Path) -> None:
    file = write(tmp_path, f"sasl: {{username: rook, password: {SECRET}}}")
    settings = KafkaSettings.of(URI, file)
    assert SECRET not in f"{settings!r} {settings} {settings.uri}"


FILES: dict[str, tuple[str | bytes, str]] = {
    "unknown key": ("sals: {username: rook}", "did you mean sasl"),
    "unknown key inside": (f"sasl: {{user: rook, password: {SECRET}}}", "username"),
    "unknown mechanism": (f"sasl: {{mechanism: SCRAM, password: {SECRET}}}", "SCRAM-SHA-512"),
    "no username": (f"sasl: {{password: {SECRET}}}", "a username and a password"),
    "no password": ("sasl: {username: rook}", "a username and a password"),
    "an empty log-in": ("sasl:", "a username and a password"),
    "no mapping": (f"sasl: {SECRET}", "a mapping of"),
    "a list": (f"sasl: {{username: rook, password: [{SECRET}]}}", "sasl.password is not text"),
    "no file": ("tls: {ca: missing.pem}", "tls.ca: there is no file"),
    "no text for a file": ("tls: {ca: [a.pem]}", "tls.ca is not text"),
    "a key without its certificate": ("tls: {key: kafka.yaml}", "go together"),
    "not YAML": (f"sasl: {{password: {SECRET}", "not YAML"),
    "not text": (b"\xff\xfe\x00", "not YAML"),
    "not a mapping at all": (f"- {SECRET}", "not a mapping"),
    "a prefix that is none": ("prefix: a/b", "prefix"),
}


@pytest.mark.parametrize(("text", "says"), FILES.values(), ids=FILES)
def test_a_file_with_a_mistake_is_refused_without_its_secrets(
    tmp_path: Path, text: str | bytes, says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        KafkaSettings.of(URI, write(tmp_path, text))
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot read missing\.yaml"):
        KafkaSettings.of(URI, "missing.yaml")


def test_unknown_keys_are_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownName) as caught:
        KafkaSettings.of(URI, write(tmp_path, "prefx: a"))
    assert caught.value.nearest == ("prefix",)
