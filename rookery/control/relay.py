"""Hands on what workers elsewhere have to say for the log.

The log is a file of the owner's machine, which workers on other nodes do not reach. They publish
their events on the run's own bus, signed with the run's key and each with its place among its
writer's; the owner looks at them and appends them to the log, signed with its own. What is handed
on twice, as an owner died in between, has its place already and is known as a copy.
"""

from __future__ import annotations

import logging

from rookery.bus import EARLIEST, Bus, Outgoing, Record
from rookery.config.models import RunConfig
from rookery.control.home import Home
from rookery.control.signing import PLACE, SIGNATURE, placed
from rookery.errors import MessageError
from rookery.messages import (
    EVENTS,
    CommandAccepted,
    CommandRejected,
    Event,
    RunOwned,
    decode_json,
)

NOT_A_WORKERS = (CommandAccepted, CommandRejected, RunOwned)  # only an owner says these

logger = logging.getLogger(__name__)


class Relay:
    def __init__(self, home: Home, run: str, config: RunConfig, bus: Bus) -> None:
        self._home, self._run, self._bus = home, run, bus
        self._key = home.run_key(run, config)
        self._said = bus.subscribe(EVENTS, EARLIEST)

    def hand_on(self) -> bool:
        """Whether there was anything."""
        records = self._said.poll(0.0)
        good = [self._signed(record) for record in records if self._is_good(record)]
        if good:
            self._home.control.publish(good)
        if records:
            self._bus.retain(EVENTS, self._said.position())
        return bool(good)

    def _is_good(self, record: Record) -> bool:
        place, signature = record.headers.get(PLACE, ""), record.headers.get(SIGNATURE, "")
        content = placed(place, record.payload)
        try:
            event: Event = decode_json(record.payload, Event)
        except MessageError as error:
            logger.warning("%s offset %d: skipped: %s", record.topic, record.offset, error)
            return False
        if event.run != self._run or isinstance(event, NOT_A_WORKERS):
            logger.warning("%s offset %d: not a worker's to say", record.topic, record.offset)
            return False
        return bool(place) and self._key.signed(signature, EVENTS, self._run, content)

    def _signed(self, record: Record) -> Outgoing:
        place = record.headers[PLACE]
        content = placed(place, record.payload)
        signature = self._home.signing_key().sign(EVENTS, self._run, content)
        return Outgoing(EVENTS, record.payload, self._run, {SIGNATURE: signature, PLACE: place})
