"""What is on disk before a Kafka node starts: settings, certificates, a formatted directory."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from rookery.errors import BusError, InputError
from tools.kafka.java import Runtime, spawn
from tools.kafka.settings import SCRAM, Node, Plan, server_properties

FORMAT_S = 60.0  # one second on an idle machine
LOG_LINES = 15


def prepare(plan: Plan, nodes: Sequence[Node], runtime: Runtime) -> None:
    """Write the settings of these nodes, and format those that are new."""
    for node in nodes:
        node.directory.mkdir(parents=True, exist_ok=True)
        node.properties.write_text(server_properties(plan, node))
    if plan.security.tls and not plan.keystore.exists():
        hosts = {at.rsplit(":", 1)[0] for at in plan.nodes[0].listeners.values()}
        make_certificates(plan.authority, plan.keystore, sorted(hosts))
    _format(plan, [node for node in nodes if not (node.data / "meta.properties").exists()], runtime)


def _format(plan: Plan, nodes: Sequence[Node], runtime: Runtime) -> None:
    users = plan.security.users.items()
    scram = [f"--add-scram={SCRAM}=[name={name},password={word}]" for name, word in users]
    running = []
    for node in nodes:
        told = ("format", "-t", _cluster_id(plan), "-c", str(node.properties), *scram)
        command = runtime.command("kafka.tools.StorageTool", *told)
        running.append(spawn(command, runtime.environment, node.log))
    for node, process in zip(nodes, running, strict=True):
        if process.wait(FORMAT_S):
            raise node_failed(node, "could not format its directory")


def _cluster_id(plan: Plan) -> str:
    path = plan.directory / "cluster-id"
    if not path.exists():
        path.write_text(new_cluster_id())
    return path.read_text()


def new_cluster_id() -> str:
    """A UUID as Kafka writes it, but never one that its command line takes for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def node_failed(node: Node, what: str) -> BusError:
    """An error with the end of the node's log."""
    text = node.log.read_text(errors="replace") if node.log.exists() else ""
    last = text.splitlines()[-LOG_LINES:]
    return BusError("\n".join([f"Kafka node {node.index} {what}; the end of {node.log}:", *last]))


def make_certificates(authority: Path, keystore: Path, hosts: Sequence[str]) -> None:
    """A certificate authority, and a key store in PEM with a certificate of it for these hosts."""
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650"]
    authority_key, certificate = authority.with_suffix(".key"), keystore.with_suffix(".crt")
    names = ",".join(["DNS:localhost", *(f"IP:{host}" for host in hosts)])
    owner = [*key, "-subj", "/CN=rookery test authority"]
    _openssl(*owner, "-keyout", authority_key, "-out", authority)
    leaf = [*key, "-subj", "/CN=rookery test broker", "-addext", f"subjectAltName={names}"]
    leaf += ["-addext", "basicConstraints=critical,CA:FALSE"]
    signed = ["-CA", authority, "-CAkey", authority_key]
    draft = keystore.with_suffix(".draft")
    _openssl(*leaf, *signed, "-keyout", draft, "-out", certificate)
    draft.write_text(draft.read_text() + certificate.read_text())
    draft.replace(keystore)


def _openssl(*arguments: object) -> None:
    command = ["openssl", "req", "-x509", *map(str, arguments)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError("openssl makes the certificates: apt install openssl") from None
    if done.returncode:
        raise InputError(f"openssl made no certificate: {' '.join(done.stderr.split())}")
