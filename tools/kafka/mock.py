"""The broker that is built into librdkafka, for tests that need faults at exact moments.

    with MockCluster(brokers=2) as mock:
        mock.create_topic("experiences")                   # one partition; it makes none itself
        bus = KafkaBus(KafkaSettings(mock.servers))
        mock.fail_requests(PRODUCE, [KafkaError.NOT_LEADER_FOR_PARTITION] * 3)
        mock.down()                                        # all brokers; their ports stay theirs
        mock.up()

It starts in milliseconds, needs no Java, and listens on loopback for any process, but it is a model
and not Kafka: it ends with its process, keeps 5 MiB a partition, has no admin API, and trusts an
idempotent producer without looking at its sequence numbers. So what was on its way when a
connection broke may be appended twice. And where one of several requests on their way fails, its
messages are lost: the client takes it for granted that a later success includes them. Publish one
by one around such faults; tests of exactly these need a real broker.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence

from confluent_kafka import cimpl

from rookery.errors import BusError

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3  # requests, by their number in the protocol
PAUSE_S = 0.002

_PRODUCER = 0  # the kind of handle: the cluster needs one to belong to, whichever
_NAMED = ctypes.c_char_p
_HANDLE = ctypes.c_void_p
_SIGNATURES: dict[str, tuple[object, tuple[object, ...]]] = {
    "rd_kafka_new": (_HANDLE, (ctypes.c_int, _HANDLE, _NAMED, ctypes.c_size_t)),
    "rd_kafka_conf_new": (_HANDLE, ()),
    "rd_kafka_conf_set": (ctypes.c_int, (_HANDLE, _NAMED, _NAMED, _NAMED, ctypes.c_size_t)),
    "rd_kafka_destroy": (None, (_HANDLE,)),
    "rd_kafka_err2str": (_NAMED, (ctypes.c_int,)),
    "rd_kafka_mock_cluster_new": (_HANDLE, (_HANDLE, ctypes.c_int)),
    "rd_kafka_mock_cluster_destroy": (None, (_HANDLE,)),
    "rd_kafka_mock_cluster_bootstraps": (_NAMED, (_HANDLE,)),
    "rd_kafka_mock_set_controller_id": (None, (_HANDLE, ctypes.c_int32)),
    "rd_kafka_mock_topic_create": (ctypes.c_int, (_HANDLE, _NAMED, ctypes.c_int, ctypes.c_int)),
    "rd_kafka_mock_broker_set_down": (ctypes.c_int, (_HANDLE, ctypes.c_int32)),
    "rd_kafka_mock_broker_set_up": (ctypes.c_int, (_HANDLE, ctypes.c_int32)),
    "rd_kafka_mock_broker_set_rtt": (ctypes.c_int, (_HANDLE, ctypes.c_int32, ctypes.c_int)),
    "rd_kafka_mock_partition_set_leader": (
        ctypes.c_int,
        (_HANDLE, _NAMED, ctypes.c_int32, ctypes.c_int32),
    ),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        (_HANDLE, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)),
    ),
    "rd_kafka_mock_clear_request_errors": (None, (_HANDLE, ctypes.c_int16)),
}


def _librdkafka() -> ctypes.CDLL:
    """The very library that confluent_kafka is linked with: a symbol that is not in the extension
    itself is looked up in what it loaded, wherever its wheel keeps that."""
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name, None)
        if function is None:
            raise BusError(f"this librdkafka lacks {name}: 2.16 has it, install confluent-kafka")
        function.restype, function.argtypes = result, arguments
    return library


class MockCluster:
    """Brokers, numbered from 1 as in their metadata."""

    def __init__(self, brokers: int = 2) -> None:
        self.brokers = range(1, brokers + 1)
        self._library = _librdkafka()
        reason = ctypes.create_string_buffer(512)
        silent = self._library.rd_kafka_conf_new()
        self._library.rd_kafka_conf_set(silent, b"log_level", b"0", reason, len(reason))
        self._owner = self._library.rd_kafka_new(_PRODUCER, silent, reason, len(reason))
        if not self._owner:
            raise BusError(f"librdkafka could not be started: {reason.value.decode()}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._owner, brokers)
        if not self._cluster:
            self._library.rd_kafka_destroy(self._owner)
            raise BusError("librdkafka could not start its own brokers: is loopback usable?")
        self.set_controller(1)

    def __enter__(self) -> MockCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def servers(self) -> str:
        """bootstrap.servers of its clients."""
        found = self._library.rd_kafka_mock_cluster_bootstraps(self._open())
        return str(found.decode())

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """A client that is allowed to make one would get 4 partitions, whatever it wanted."""
        self._tell("topic_create", name.encode(), partitions, len(self.brokers))

    def set_controller(self, broker: int) -> None:
        """Who answers for the admin API: that there is none. With 0 nobody does."""
        self._library.rd_kafka_mock_set_controller_id(self._open(), broker)

    # --- faults ----------------------------------------------------------------------------------

    def down(self, *brokers: int) -> None:
        """Break the connections of these brokers, or of all, and refuse new ones."""
        for broker in brokers or self.brokers:
            self._tell("broker_set_down", broker)

    def up(self, *brokers: int) -> None:
        """Listen again, on the same ports and with the same data. Leaders stay what they were."""
        for broker in brokers or self.brokers:
            self._tell("broker_set_up", broker)

    def round_trip(self, milliseconds: int) -> None:
        """How long each answer of each broker takes from now on."""
        for broker in self.brokers:
            self._tell("broker_set_rtt", broker, milliseconds)

    def fail_requests(self, api_key: int, errors: Sequence[int]) -> None:
        """Answer the next requests of this kind with these codes of `KafkaError`, whoever asks.

        Nothing is appended by a request that fails. `_TRANSPORT` breaks its connection."""
        codes = (ctypes.c_int * len(errors))(*errors)
        push = self._library.rd_kafka_mock_push_request_errors_array
        push(self._open(), api_key, len(errors), codes)

    def stop_failing(self, api_key: int) -> None:
        """Forget the errors that no request has met yet."""
        self._library.rd_kafka_mock_clear_request_errors(self._open(), api_key)

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """A planned election: the new leader has all that the old one had."""
        if broker not in self.brokers:  # librdkafka would crash when next asked who leads
            raise BusError(f"there is no broker {broker}: they are numbered from 1")
        self._tell("partition_set_leader", topic.encode(), partition, broker)

    def close(self) -> None:
        if self._cluster:
            self._library.rd_kafka_mock_cluster_destroy(self._cluster)
            self._library.rd_kafka_destroy(self._owner)
            self._cluster = None

    def _open(self) -> int:
        if not self._cluster:
            raise BusError("the mock cluster was closed")
        return int(self._cluster)

    def _tell(self, what: str, *arguments: object) -> None:
        """Have the brokers' thread do something. It would miss for a second what comes right after
        another such call, before it has gone back to sleep: rd_kafka_mock_cluster_io_poll."""
        time.sleep(PAUSE_S)
        code = getattr(self._library, f"rd_kafka_mock_{what}")(self._open(), *arguments)
        if code:
            reason = self._library.rd_kafka_err2str(code).decode()
            raise BusError(f"librdkafka's broker refused: {reason}")
