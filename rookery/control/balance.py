"""Every step accounted for: produced = trained + dropped + in flight.

`produced` is what the actors numbered (the newest record of each on the bus), `in_flight` what lies
on the bus past the learner's position or waits in its half-built batches, `trained` and `dropped`
what its ledger says. No term is found by subtraction, so a wrong count shows. Where a bus has no
snapshots the newest records are looked up before the unread ones are counted, and whatever came in
between is counted on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rookery.bus import Bus
from rookery.messages import EXPERIENCES, LedgerSummary


class Balance(msgspec.Struct, frozen=True, kw_only=True):
    """Agent steps of the training policies."""

    produced: int
    trained: int
    dropped: dict[str, int]
    in_flight: int

    @property
    def exact(self) -> bool:
        return self.produced == self.trained + sum(self.dropped.values()) + self.in_flight


def balance(bus: Bus | None, ledger: LedgerSummary) -> Balance:
    """The balance at this moment, for the ledger as the learner last told it."""
    produced = dict(ledger.seen)
    unread = 0
    if bus is not None:
        with bus.snapshot():
            for actor, headers in bus.newest_headers(EXPERIENCES).items():
                produced[actor] = max(produced.get(actor, 0), count(headers, "steps_total"))
            start = ledger.position or (0,) * len(bus.end(EXPERIENCES))
            counted = dict(ledger.seen)  # a position may lie before it, a message come twice
            for headers in bus.headers(EXPERIENCES, start):
                actor, total = headers.get("actor", ""), count(headers, "steps_total")
                if total > counted.get(actor, -1):
                    unread += count(headers, "steps")
                if actor:
                    counted[actor] = max(counted.get(actor, -1), total)
                    produced[actor] = max(produced.get(actor, 0), total)
    return Balance(
        produced=sum(produced.values()),
        trained=ledger.trained,
        dropped=ledger.dropped,
        in_flight=unread + ledger.pending,
    )


def count(headers: Mapping[str, str], name: str) -> int:
    """0 where there is none, as in a message that is not ours."""
    text = headers.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0
