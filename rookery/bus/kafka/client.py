"""librdkafka's clients as Rookery uses them, and its errors in words that say what to do."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from rookery.bus.kafka.settings import KafkaSettings
from rookery.errors import BusError, BusRefused, ConfigError

T = TypeVar("T")
REACH_S = 10.0  # how long a cluster may take to answer for the first time
DELIVERY_S = 3600.0  # how long a message waits for a cluster that went away
TRY_S = 3.0  # of one question: who went away while it was asked never answers it
SILENT_S = 15.0  # without an answer: a broker that is frozen keeps its connections open
LOOK_S = 1.0  # how long a question may take that nobody depends on
PAUSE_S = 0.02
MESSAGE_BYTES = 900_000  # below the brokers' default limit, with room for key and headers

SECURITY = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,
)
_AWAY = (
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,  # of a broker that is frozen
    KafkaError._ALL_BROKERS_DOWN,
    -137,  # _DESTROY_BROKER, which older clients do not name: it left while it was asked
)
RETRIED = (  # what a broker says of its own state; the client tries again
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
_PASSING = (
    *RETRIED,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
)
_NOT_ALLOWED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


class Health:
    """Whether the cluster answers, as the clients' error callbacks tell it."""

    def __init__(self, servers: str, user: str = "") -> None:
        self.servers, self._user = servers, user
        self._lock = threading.RLock()  # whatever is collected meanwhile may call `note`
        self.last: Any = None  # the newest error of a connection
        self.refusal: Any = None  # that of a log-in or of TLS, until the cluster answers
        self.reached = False  # whether the cluster has ever answered
        self._down_since: float | None = None

    def note(self, error: Any) -> None:
        with self._lock:
            if error.code() in SECURITY:
                self.refusal = error
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                self.last = error
            elif self._down_since is None:
                self._down_since = time.monotonic()

    def unanswered(self) -> None:
        with self._lock:
            if self._down_since is None:
                self._down_since = time.monotonic()

    def answered(self) -> None:
        with self._lock:
            self._down_since = None
            self.refusal = None
            self.reached = True

    @property
    def trouble(self) -> str | None:
        """One line while no broker can be reached; None when all is well."""
        since = self._down_since
        if since is None:
            return None
        return f"no broker of {self.servers} answers since {time.monotonic() - since:.0f} s"

    def explain(self, error: Any, topic: str = "") -> BusError:
        """What a person should read instead of a client's error."""
        if isinstance(error, KafkaException):
            error = error.args[0]
        with self._lock:
            last, refusal = self.last, self.refusal
        code = error.code()
        if code in SECURITY or refusal is not None:
            return self._refused(error if code in SECURITY else refusal)
        if code in _NOT_ALLOWED:
            return self._not_allowed(error, topic)
        if code in _AWAY:
            said = f" ({short(last)})" if last is not None else ""
            return BusError(
                f"no Kafka broker answers at {self.servers}{said}: check the address, and that "
                "what listens there is Kafka with the same security"
            )
        return BusError(f"Kafka at {self.servers}: {short(error)}")

    def _refused(self, error: Any) -> BusRefused:
        if error.code() == KafkaError._SSL:
            return BusRefused(
                f"{self.servers}: TLS failed ({short(error)}): check tls in the bus config"
            )
        who = f" of {self._user!r}" if self._user else ""
        return BusRefused(
            f"{self.servers} refused the log-in{who} ({short(error)}): check sasl in the bus config"
        )

    def _not_allowed(self, error: Any, topic: str) -> BusRefused:
        who = repr(self._user) if self._user else "us"
        what = f"use topic {topic!r}" if topic else "do this"
        return BusRefused(
            f"{self.servers} does not let {who} {what} ({short(error)}): ask its owner for "
            "Read, Write and Create on this topic, or on all of its prefix"
        )


def short(error: Any) -> str:
    """A client's words without addresses, thread names, retry counts and advice on its own keys."""
    text = error.str()
    for mark in (" (after ", " (in state", ": broker certificate could not"):
        text = text.split(mark)[0]
    text = re.sub(r"^\S+?(/bootstrap|/\d+): ", "", text)
    return " ".join(re.sub(r"error:[0-9A-F]{8}:", "", text).split())[:200]


class Clients:
    """Makes the clients of one bus."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.settings = settings
        self.health = Health(settings.servers, settings.client.get("sasl.username", ""))
        self._common: dict[str, Any] = {
            "bootstrap.servers": settings.servers,
            "client.id": "rookery",
            "error_cb": self.health.note,
            "logger": _silent,
            "socket.timeout.ms": int(SILENT_S * 1000),
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
            **settings.client,
        }

    def producer(self) -> Any:
        return self._made(
            Producer,
            {
                **self._common,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "queue.buffering.max.kbytes": 128 << 10,
                "retry.backoff.ms": 50,
            },
        )

    def consumer(self) -> Any:
        return self._made(
            Consumer,
            {
                **self._common,
                "group.id": f"rookery-{uuid.uuid4().hex}",  # positions are ours, never the group's
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",  # a reader that retention overtook goes on there
                "enable.partition.eof": False,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 2,
                "fetch.error.backoff.ms": 50,
                "max.partition.fetch.bytes": 8 << 20,
                "queued.max.messages.kbytes": 32 << 10,
            },
        )

    def admin(self) -> Any:
        return self._made(AdminClient, self._common)

    def _made(self, kind: Callable[[dict[str, Any]], Any], config: dict[str, Any]) -> Any:
        """A client; certificates and keys are read when it is made."""
        try:
            return kind(config)
        except KafkaException as error:
            why = short(error.args[0]).partition(": ")[2]
            key, _, fault = why.partition(" failed: ")
            named = {"ssl.ca.location": "tls.ca", "ssl.certificate.location": "tls.cert"}
            named |= {"ssl.key.location": "tls.key or tls.key_password"}
            raise ConfigError(
                f"bus config: {named.get(key, key)} cannot be used: {fault or 'not valid'}"
            ) from None

    def answers(self, client: Any) -> bool:
        """Whether the cluster answers now, without waiting for it for long."""
        try:
            client.list_topics(timeout=LOOK_S)
        except KafkaException:
            self.health.unanswered()
            return False
        self.health.answered()
        return True

    def asked(self, client: Any, question: Callable[[], T], away_s: float = DELIVERY_S) -> T:
        """The answer, asked for again while a leader is being elected or a topic is being made.

        A cluster that has answered before and is away is waited for, for so long.
        """
        began = since = time.monotonic()  # since it was away
        is_back = False  # it answers: one that was away knows its topics a while later
        while True:
            try:
                answer = question()
            except KafkaException as error:
                code, now = error.args[0].code(), time.monotonic()
                is_late = now - since >= min(REACH_S, max(LOOK_S, away_s))
                # with all brokers away a client may know no more than that there is no leader
                is_away = code in _AWAY or (
                    code in _PASSING and is_late and not self.answers(client)
                )
                may_wait = self.health.reached and now - began < away_s
                if is_away and may_wait:
                    self.health.unanswered()
                    since, is_back = now, False
                elif code in _PASSING and is_late and may_wait and not is_back:
                    since, is_back = now, True
                elif code not in _PASSING or is_late:
                    raise self.health.explain(error) from None
                time.sleep(PAUSE_S)
            else:
                self.health.answered()
                return answer


class _Silent:
    """What librdkafka logs reaches people through Health instead."""

    def log(self, *_: object, **__: object) -> None:
        return


_silent = _Silent()
