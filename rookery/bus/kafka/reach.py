"""The first contact with a cluster: an answer, or one line that says why there is none.

librdkafka tells little of what went wrong before it was connected, so the address itself is asked:
whether anything listens, and whether its certificate is one to trust.
"""

from __future__ import annotations

import socket
import ssl
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from rookery.bus.kafka.client import Clients, short
from rookery.bus.kafka.settings import KafkaSettings
from rookery.errors import BusAway, BusRefused

ANSWER_S = 8.0  # a broker that has just started, or a far one, may take a while
TRY_S = 0.5
UNKNOWN_HOST_S = 3.0  # a name that is unknown now will rarely be known soon
PROBE_S = 1.0


def reach(clients: Clients, client: Any) -> None:
    """Return when the cluster answers; a refused log-in is told at once, silence after ANSWER_S."""
    health, start = clients.health, time.monotonic()
    while True:
        began = time.monotonic()
        try:
            client.list_topics(timeout=TRY_S)
            break
        except KafkaException as error:
            client.poll(0)  # what went wrong comes by callbacks
            patience = UNKNOWN_HOST_S if _is_unknown(health.last) else ANSWER_S
            if health.refusal is not None or time.monotonic() - start > patience:
                raise _refusal(clients, error) from None
            time.sleep(max(0.0, TRY_S / 2 - (time.monotonic() - began)))
    health.answered()


def _refusal(clients: Clients, error: KafkaException) -> BusRefused:
    settings, health = clients.settings, clients.health
    servers, last = settings.servers, health.last
    if health.refusal is not None and health.refusal.code() != KafkaError._SSL:
        return BusRefused(str(health.explain(error)))
    listening = None if _is_unknown(last) else _first_listening(servers)
    if listening is None:
        said = f" ({short(last)})" if last is not None else ""
        return BusAway(
            f"no Kafka broker answers at {servers}{said}: check the address, and that it runs"
        )
    if not _has_tls(settings):
        wants = "TLS or SASL, which go into --bus-config FILE"
        return BusAway(
            f"{listening} answers, but not as Kafka: check the port, that its broker is not "
            f"frozen, and whether it wants {wants}"
        )
    fault = _certificate_fault(settings)
    if fault is None:
        return BusAway(
            f"{listening} answers, but not as Kafka with TLS ({short(last) if last else 'silence'})"
            ": check the port, and tls and sasl in the bus config"
        )
    if "mismatch" in fault:
        return BusRefused(
            f"the certificate of {servers} is for another host ({fault}): connect to a name that "
            "is in it"
        )
    return BusRefused(
        f"the certificate of {servers} is not trusted ({fault}): name the authority that signed "
        "it as tls.ca in the bus config"
    )


def _is_unknown(error: Any) -> bool:
    return error is not None and error.code() == KafkaError._RESOLVE


def _has_tls(settings: KafkaSettings) -> bool:
    return "SSL" in settings.client.get("security.protocol", "")


def _addresses(servers: str) -> list[tuple[str, int]]:
    pairs = (server.rpartition(":") for server in servers.split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in pairs]


def _first_listening(servers: str) -> str | None:
    """The first address that takes a connection."""
    for host, port in _addresses(servers):
        try:
            socket.create_connection((host, port), PROBE_S).close()
        except OSError:
            continue
        return f"{host}:{port}"
    return None


def _certificate_fault(settings: KafkaSettings) -> str | None:
    """What OpenSSL has against a server's certificate."""
    context = ssl.create_default_context(cafile=settings.client.get("ssl.ca.location"))
    for host, port in _addresses(settings.servers):
        try:
            with socket.create_connection((host, port), PROBE_S) as plain:
                context.wrap_socket(plain, server_hostname=host).close()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message.rstrip(".")
        except OSError:
            continue
    return None
