"""What a driver has placed: a worker, and the host of a run, with what is known of each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.exceptions import RayError

from rookery.launchers.log_file import bound
from rookery.launchers.ray.calling import asked
from rookery.launchers.ray.ends import Ended
from rookery.launchers.ray.words import HostOrder, Order
from rookery.launchers.ray.worker import Birth, End, Glance
from rookery.worker.progress import Mirror

LOOK_S = 1.0
UNANSWERED_S = 3.0  # since the last answer: then its node is asked
HELD_UP_S = 1.0  # of the driver itself: then each worker has its time again
SAY_S = 0.5  # to say where it hangs
HOST_STARTS_S = 90.0  # a loaded machine starts a process slowly
HOST_SILENT_S = 15.0

_knocks = ThreadPoolExecutor(32, "knock")

_births = msgspec.msgpack.Decoder(Birth)
_ends = msgspec.msgpack.Decoder(End)
_glances = msgspec.msgpack.Decoder(Glance)


class PlacedWorker:
    def __init__(
        self,
        order: Order,
        handle: Any,
        briefed: tuple[Any, ...],
        reaches: Callable[[str], bool],
    ) -> None:
        """`reaches`: whether a node can be reached, by its id."""
        self.order, self.handle = order, handle
        self.birth: Birth | None = None
        self.ended: Ended | None = None
        self.killed_at: float | None = None
        self._since = time.monotonic()
        self._stop_by: float | None = None
        self._glance: Future[bytes] | None = None
        self._looked = self._heard = self._minded = self._knocked = 0.0
        self._reaches = reaches
        self._knock: Future[bool] | None = None
        self._mirror = Mirror(Path(order.progress)) if order.progress else None
        self._briefed = briefed
        self.call: Future[bytes] = asked(handle.born)  # then its work: another version's may differ

    @property
    def host(self) -> str:
        return self.birth.host if self.birth is not None else ""

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._since

    def ask_to_stop(self) -> None:
        if self._stop_by is None:
            self._stop_by = time.monotonic() + self.order.grace_s
            if self.birth is None:
                self.end()  # it waits for a place: nobody will miss it
                self.ended = Ended(0, "it had not begun")
            else:
                self.handle.stop.remote()

    def end(self) -> None:
        """At once. One that hangs says where first, if it can."""
        if self.killed_at is None:
            self.killed_at = time.monotonic()
            if self.birth is not None and self.ended is None:
                self._note(asked(self.handle.say_where), self._keep, SAY_S)
            ray.kill(self.handle)

    def look(self) -> None:
        """Take up what it said, and ask again; whoever does not answer gives no sign of life."""
        now = time.monotonic()
        if now - self._minded > HELD_UP_S:
            self._heard = now
        self._minded = now
        if self._stop_by is not None and now > self._stop_by:
            self.end()
        if self.birth is None:
            return
        if self._glance is not None and self._glance.done():
            self._note(self._glance, self._note_glance)
            self._glance = None
        if self._glance is None and now - self._looked >= LOOK_S:
            self._glance, self._looked = asked(self.handle.look), now
        if self._mirror is not None and now - self._heard >= UNANSWERED_S:
            self._judge_node(self._mirror, now)

    def _judge_node(self, mirror: Mirror, now: float) -> None:
        """Code of its environment may keep a worker from answering: its node decides, which a
        thread asks."""
        if self._knock is None and now - self._knocked >= LOOK_S:
            assert self.birth is not None
            self._knock, self._knocked = _knocks.submit(self._reaches, self.birth.node), now
        if self._knock is None or not self._knock.done():
            return
        knock, self._knock = self._knock, None
        if knock.exception() is None:
            (mirror.find if knock.result() else mirror.lose)()

    def take(self, content: bytes) -> Ended | None:
        """What its call has answered: its birth, after which it works, or its end."""
        if self.birth is None:
            self.birth = _births.decode(content)
            return self._begin(self.birth)
        end = _ends.decode(content)
        self._keep(end.log)
        ray.kill(self.handle)
        return Ended(end.code)

    def _begin(self, birth: Birth) -> Ended | None:
        if birth.version != (ours := version("rookery")):
            ray.kill(self.handle)
            why = f"node {birth.host} has Rookery {birth.version}, and this machine {ours}"
            return Ended(1, f"{why}: install the same on both", final=True)
        self.call = asked(self.handle.work, *self._briefed)
        return None

    def forget(self) -> None:
        if self._mirror is not None:
            self._mirror.close()

    def _note(
        self, answer: Future[bytes], note: Callable[[bytes], None], timeout_s: float = 0.0
    ) -> None:
        """An answer, if it is there; where it is an error, its call tells the same."""
        try:
            content = answer.result(timeout_s)
        except (RayError, TimeoutError):
            return
        note(content)

    def _note_glance(self, content: bytes) -> None:
        self._heard = time.monotonic()
        glance = _glances.decode(content)
        self._keep(glance.log)
        if self._mirror is not None and glance.known:
            self._mirror.show(glance.count, glance.doing, glance.same_s, glance.silent_s)

    def _keep(self, log: bytes) -> None:
        if log and self.order.log:
            with contextlib.suppress(OSError):  # of a full disk: a log has a gap, and all goes on
                with open(self.order.log, "ab") as file:
                    file.write(log)
                bound(Path(self.order.log))


class PlacedHost:
    def __init__(self, order: HostOrder, handle: Any) -> None:
        self.order, self.handle = order, handle
        self._sign: Future[bytes] | None = None
        self._silent_s = HOST_STARTS_S
        self._heard = self._asked = time.monotonic()

    def lives(self) -> bool:
        """Asked about every second; one that is silent for long is ended."""
        now = time.monotonic()
        if self.handle is None:
            return False
        if self._sign is None:
            if now - self._asked >= LOOK_S:
                self._sign, self._asked = asked(self.handle.alive), now
            return True
        if self._sign.done():
            sign, self._sign = self._sign, None
            if sign.exception() is not None:
                return self._renew(now)
            self._heard, self._silent_s = now, HOST_SILENT_S
        elif now - max(self._heard, self._asked) > self._silent_s:
            return self._renew(now)
        return True

    def end(self) -> None:
        if self.handle is not None:
            ray.kill(self.handle)

    def _renew(self, now: float) -> bool:
        self.end()  # one that died keeps its name while somebody has a handle of it
        self.handle = self._sign = None
        self._heard = self._asked = now
        self._silent_s = HOST_STARTS_S
        return False
