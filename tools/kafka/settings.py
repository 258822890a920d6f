"""What a Kafka node is told: its `server.properties`, and what clients must know to be let in.

Brokers and controllers talk to each other in plain text on loopback, as the user ANONYMOUS, on
listeners of their own; a `Security` is about the listeners for clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rookery.errors import InputError

SCRAM = "SCRAM-SHA-512"
MECHANISMS = ("PLAIN", SCRAM)


@dataclass(frozen=True)
class Security:
    """How clients prove who they are, and whether that matters.

    Security(users={"rook": "castle"})                     PLAIN and SCRAM-SHA-512, no encryption
    Security(tls=True)                                     encryption, anybody may come
    Security(users={...}, tls=True, admins=("rook",))      others may do what an ACL allows
    """

    users: Mapping[str, str] = field(default_factory=dict)  # name -> password
    tls: bool = False  # with a certificate authority made for this cluster
    admins: tuple[str, ...] = ()  # may do everything; when given, an authorizer looks at the rest

    def __post_init__(self) -> None:
        strangers = set(self.admins) - set(self.users)
        if strangers:
            raise InputError(f"admins without a password in users: {', '.join(sorted(strangers))}")

    @property
    def protocol(self) -> str:
        if self.users:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"


@dataclass(frozen=True)
class Node:
    """Where one node lives; its index is Kafka's node.id."""

    index: int
    directory: Path
    listeners: Mapping[str, str]  # name -> host:port of CLIENTS, BETWEEN, CONTROLLER, perhaps ALSO

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"


@dataclass(frozen=True)
class Plan:
    """A cluster before it runs."""

    directory: Path
    nodes: tuple[Node, ...]
    security: Security
    settings: Mapping[str, str]  # have the last word in server.properties

    @property
    def authority(self) -> Path:
        """The certificate that clients trust."""
        return self.directory / "authority.pem"

    @property
    def keystore(self) -> Path:
        """The nodes' key and certificate."""
        return self.directory / "keystore.pem"

    def servers(self, listener: str) -> str:
        return ",".join(node.listeners[listener] for node in self.nodes)


def server_properties(plan: Plan, node: Node) -> str:
    """The text of a node's `server.properties`."""
    lines = {
        **_place(plan, node),
        **_replication(replicas=min(3, len(plan.nodes))),
        "auto.create.topics.enable": "false",
        "num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed node is missed after this long, and may not come back before.
        "broker.session.timeout.ms": 3000,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.dedupe.buffer.size": 16 * 2**20,  # Kafka's 128 MiB come from the heap at once
        **_security(plan),
        **plan.settings,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def _place(plan: Plan, node: Node) -> dict[str, object]:
    protocols = {name: "PLAINTEXT" for name in node.listeners}
    protocols |= dict.fromkeys(_for_clients(node), plan.security.protocol)
    voters = [f"{other.index}@{other.listeners['CONTROLLER']}" for other in plan.nodes]
    return {
        "process.roles": "broker,controller",
        "node.id": node.index,
        "controller.quorum.voters": ",".join(voters),
        "listeners": ",".join(f"{name}://{at}" for name, at in node.listeners.items()),
        "listener.security.protocol.map": ",".join(f"{k}:{v}" for k, v in protocols.items()),
        "inter.broker.listener.name": "BETWEEN",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": node.data,
    }


def _replication(replicas: int) -> dict[str, object]:
    """Kafka's own topics are as safe as ours; each of their partitions costs time to make."""
    in_sync = max(1, replicas - 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": replicas,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _security(plan: Plan) -> dict[str, object]:
    security, lines = plan.security, dict[str, object]()
    if security.users:
        modules = "org.apache.kafka.common.security"
        users = " ".join(f'user_{name}="{word}"' for name, word in security.users.items())
        plain = f"{modules}.plain.PlainLoginModule required {users};"
        lines["sasl.enabled.mechanisms"] = ",".join(MECHANISMS)
        for name in _for_clients(plan.nodes[0]):
            prefix = f"listener.name.{name.lower()}"
            lines[f"{prefix}.plain.sasl.jaas.config"] = plain
            scram = f"{modules}.scram.ScramLoginModule required;"
            lines[f"{prefix}.{SCRAM.lower()}.sasl.jaas.config"] = scram
    if security.tls:
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": plan.keystore}
    if security.admins:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        masters = ";".join(f"User:{name}" for name in ("ANONYMOUS", *security.admins))
        lines |= {"authorizer.class.name": authorizer, "super.users": masters}
    return lines


def _for_clients(node: Node) -> Sequence[str]:
    return [name for name in node.listeners if name in ("CLIENTS", "ALSO")]


def client_properties(plan: Plan, user: str = "", mechanism: str = SCRAM) -> dict[str, str]:
    """What a client of librdkafka must be told; it is the first user unless one is named."""
    security = plan.security
    lines = {"bootstrap.servers": plan.servers("CLIENTS"), "security.protocol": security.protocol}
    if security.tls:
        lines["ssl.ca.location"] = str(plan.authority)
    if security.users:
        user = user or next(iter(security.users))
        lines["sasl.mechanism"] = mechanism
        lines["sasl.username"] = user
        lines["sasl.password"] = security.users[user]
    return lines
