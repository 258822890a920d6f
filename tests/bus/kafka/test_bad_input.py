"""A cluster that cannot be used: one line that says what to do, soon, and never a secret.

The cluster here is real, with TLS, log-ins and permissions; so is everything that is mistaken for
one.
"""

from __future__ import annotations

import http.server
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from rookery.bus import EARLIEST
from rookery.bus.kafka.bus import KafkaBus
from rookery.bus.kafka.settings import CONFIG_VARIABLE, KafkaSettings
from rookery.control.bus_topics import TOPICS
from tools.kafka.broker import Cluster, Security

if TYPE_CHECKING:
    from tests.conftest import Cli

SOON_S = 30.0
PASSWORD = "castle-4711-secret"
GUESTS = "guest-0815-secret"
WRONG = "wrong-2342-secret"
USERS = {"rook": PASSWORD, "guest": GUESTS}
SMALL = ("--envs-per-actor", 8, "--set", "actors.rollout_steps=32")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Log-ins over TLS; `rook` may do everything, `guest` nothing that no test allows it."""
    security = Security(users=USERS, tls=True, admins=("rook",))
    directory = tmp_path_factory.mktemp("secured")
    with Cluster(directory=directory, listener_security=security) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for `elsewhere.example` with its key, in one file; it vouches for itself."""
    path = tmp_path_factory.mktemp("stranger") / "stranger.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=elsewhere"),
            *("-addext", "subjectAltName=DNS:elsewhere.example", "-keyout", path, "-out", path),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return path


def write(path: Path, *, user: str = "rook", password: str = PASSWORD, ca: str = "") -> Path:
    """A bus config as docs/kafka.md shows it."""
    content: dict[str, Any] = {"tls": {"ca": ca} if ca else {}}
    content["sasl"] = {"mechanism": "SCRAM-SHA-512", "username": user, "password": password}
    path.write_text(yaml.safe_dump(content))
    return path


def authority(cluster: Cluster) -> str:
    return cluster.client_settings()["ssl.ca.location"]


def refused(cli: Cli, servers: str, file: Path | None, *verb: object) -> str:
    """The one line of a verb that names this cluster; in time, and without any password."""
    began = time.monotonic()
    options = ("--bus-config", file) if file else ()
    said = cli.refused(*(verb or ("runs", "list")), "--bus", f"kafka://{servers}", *options)
    assert time.monotonic() - began < SOON_S
    assert not any(word in said for word in (PASSWORD, GUESTS, WRONG))
    return said


# --- not a cluster -------------------------------------------------------------------------------


@contextmanager
def serving(handle: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server on loopback that treats each connection like this; yields its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    handle(connection)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    host, port = server.getsockname()
    yield f"{host}:{port}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(SOON_S)


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def web() -> Iterator[str]:
    """The address of an HTTP server."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(SOON_S)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that is taken, and nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    "verb", [("runs", "list"), pytest.param(("train", "CartPole-v1"), marks=pytest.mark.soak)]
)
def test_nobody_listens(cli: Cli, nobody: str, verb: tuple[str, ...]) -> None:
    said = refused(cli, nobody, None, *verb)
    assert f"no Kafka broker answers at {nobody}" in said and "Connection refused" in said


def test_something_else_listens(cli: Cli, web: str) -> None:
    said = refused(cli, web, None)
    assert f"{web} answers, but not as Kafka: check the port" in said and "--bus-config" in said


@pytest.mark.soak
def test_something_else_listens_where_tls_is_expected(cli: Cli, web: str, tmp_path: Path) -> None:
    said = refused(cli, web, write(tmp_path / "bus.yaml"))
    assert f"{web} answers, but not as Kafka with TLS" in said and "check the port" in said


# --- not for us ----------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_secured_cluster_is_asked_without_security(cli: Cli, secured: Cluster) -> None:
    said = refused(cli, secured.servers, None)
    assert "answers, but not as Kafka" in said and "TLS or SASL" in said


@pytest.mark.soak
def test_a_wrong_password(cli: Cli, secured: Cluster, tmp_path: Path) -> None:
    file = write(tmp_path / "bus.yaml", password=WRONG, ca=authority(secured))
    said = refused(cli, secured.servers, file)
    assert "refused the log-in of 'rook'" in said and "check sasl in the bus config" in said


@pytest.mark.soak
def test_an_authority_that_did_not_sign(
    cli: Cli, secured: Cluster, stranger: Path, tmp_path: Path
) -> None:
    said = refused(cli, secured.servers, write(tmp_path / "bus.yaml", ca=str(stranger)))
    assert "is not trusted" in said and "tls.ca" in said


@pytest.mark.soak
def test_a_certificate_for_another_host(cli: Cli, stranger: Path, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(stranger)

    def greet(connection: socket.socket) -> None:
        connection.settimeout(SOON_S)
        context.wrap_socket(connection, server_side=True).recv(1)

    with serving(greet) as address:
        said = refused(cli, address, write(tmp_path / "bus.yaml", ca=str(stranger)))
    assert "is for another host" in said and "127.0.0.1" in said


@pytest.mark.soak
def test_an_authority_that_is_no_certificate(cli: Cli, secured: Cluster, tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("not one")
    said = refused(cli, secured.servers, write(tmp_path / "bus.yaml", ca="ca.pem"))
    assert "tls.ca cannot be used" in said


@pytest.mark.soak
def test_no_permission_at_all(cli: Cli, secured: Cluster, tmp_path: Path) -> None:
    file = write(tmp_path / "bus.yaml", user="guest", password=GUESTS, ca=authority(secured))
    said = refused(cli, f"{secured.servers}/nobodys", file)
    assert "does not let 'guest' use topic 'nobodys." in said and "ask its owner" in said


# --- let in --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(shared_cli: Cli, secured: Cluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a run over SASL_SSL, whose password is in a file outside the home."""
    file = write(tmp_path_factory.mktemp("secret") / "bus.yaml", ca=authority(secured))
    shared_cli.environment["ROOKERY_BUS"] = f"kafka://{secured.servers}/team"
    shared_cli.environment[CONFIG_VARIABLE] = str(file)
    done = shared_cli("train", "CartPole-v1", *SMALL, "--actors", 2, "--steps", 6_000, "--json")
    (shared_cli.home.path.parent / "output").write_text(done.stdout + done.stderr)
    assert done.json["status"] == "finished" and done.json["env_steps"] >= 6_000
    return str(done.json["run"])


@pytest.mark.soak
def test_a_run_trains_over_sasl_and_tls(shared_cli: Cli, trained: str) -> None:
    shown = shared_cli("runs", "show", trained, "--json").json
    assert shown["status"] == "finished" and shown["balance"]["exact"]
    assert shown["balance"]["trained"] >= 6_000


@pytest.mark.soak
def test_no_file_of_a_run_holds_the_password(shared_cli: Cli, trained: str) -> None:
    directory = shared_cli.home.path.parent  # the home and what was printed
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files) and directory / "output" in files
    holding = [str(path) for path in files if PASSWORD.encode() in path.read_bytes()]
    assert holding == []


@pytest.mark.soak
def test_no_message_on_the_bus_holds_the_password(
    secured: Cluster, trained: str, tmp_path: Path
) -> None:
    file = write(tmp_path / "bus.yaml", ca=authority(secured))
    settings = KafkaSettings.of(f"kafka://{secured.servers}/team", str(file))
    assert settings.client["sasl.password"] == PASSWORD and PASSWORD not in repr(settings)
    bus = KafkaBus(settings)
    count = 0
    for topic in [topic.name for topic in TOPICS] + ["newest"]:
        subscription = bus.subscribe(topic, EARLIEST)
        while records := subscription.poll(0.0, limit=1024):
            count += len(records)
            for record in records:
                assert PASSWORD.encode() not in record.payload
                assert PASSWORD not in f"{record.key} {record.headers}"
    bus.close()
    assert count > 50


@pytest.mark.soak
def test_no_view_of_a_run_holds_the_password(shared_cli: Cli, trained: str) -> None:
    for verb in (
        ("config", "show", "CartPole-v1"),
        ("config", "show", "CartPole-v1", "--json"),
        ("runs", "show", trained, "--json"),
        ("why", trained),
        ("bus", "topics", trained),
        ("bus", "tail", "commands.control"),
    ):
        done = shared_cli(*verb)
        assert PASSWORD not in done.stdout + done.stderr


@pytest.mark.soak
def test_whoever_may_only_read_can_look_and_not_train(
    shared_cli: Cli, secured: Cluster, trained: str, tmp_path: Path
) -> None:
    allow(secured, "guest", "team.", AclOperation.READ)
    file = write(tmp_path / "bus.yaml", user="guest", password=GUESTS, ca=authority(secured))
    as_guest = {CONFIG_VARIABLE: str(file)}
    rows = shared_cli("runs", "list", "--json", env=as_guest).json["runs"]
    assert [row["run"] for row in rows] == [trained]
    said = shared_cli.refused("train", "CartPole-v1", *SMALL, "--steps", 1000, env=as_guest)
    assert "does not let 'guest' use topic 'team.commands.control'" in said


def allow(cluster: Cluster, user: str, prefix: str, operation: AclOperation) -> None:
    """Let a user do this with all topics of a prefix."""
    binding = AclBinding(
        ResourceType.TOPIC,
        prefix,
        ResourcePatternType.PREFIXED,
        f"User:{user}",
        "*",
        operation,
        AclPermissionType.ALLOW,
    )
    admin = AdminClient(cluster.client_settings())
    for future in admin.create_acls([binding]).values():
        future.result(SOON_S)
