"""A line to the host of a run, by its name in the cluster: it is found again when it is restarted.

It goes past Ray's calls where the host can be reached so (`direct`). A call that got no answer is
sent again to whoever has the name then; the host knows publications by their numbers, so none is
there twice.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, TaskCancelledError

from rookery.bus.ray.direct import DirectLine, patience_s
from rookery.errors import BusError

ANSWER_S = 15.0  # a host that does not answer for so long is frozen, cut off or gone
PATIENCE_S = 180.0  # that a host is waited for
AGAIN_S = 0.25
TOLD_AFTER_S = 1.0

logger = logging.getLogger(__name__)


class HostLine:
    """One process's line; safe to use from several threads."""

    def __init__(
        self,
        namespace: str,
        name: str,
        method: str = "call",
        patience_s: float = PATIENCE_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self.name = f"ray:{name}"
        self._namespace, self._actor = namespace, name
        self._method, self._patience_s, self._answer_s = method, patience_s, answer_s
        self._lock = threading.Lock()
        self._host: tuple[Any, DirectLine | None] | None = None  # its handle, and the way past Ray
        self._away_since: float | None = None
        self._why = ""

    @property
    def trouble(self) -> str | None:
        since = self._away_since
        away_s = time.monotonic() - since if since is not None else 0.0
        if away_s < TOLD_AFTER_S:
            return None
        return f"the host of the bus has been away for {away_s:.0f} s: {self._why}"

    def ask(self, content: bytes) -> bytes:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                found = self._sent(content)
            except (RayError, OSError, ValueError) as error:  # the last: nobody has the name
                self.close()
                self._away_since = self._away_since or time.monotonic()
                self._why = _reason(error)
                if time.monotonic() >= deadline:
                    raise BusError(
                        f"the host of the bus {self.name} did not come back within "
                        f"{self._patience_s:g} s: {self._why}"
                    ) from error
                time.sleep(AGAIN_S)
                continue
            self._away_since = None
            return found

    def close(self) -> None:
        """Until somebody asks again."""
        with self._lock:
            host, self._host = self._host, None
        if host is not None and host[1] is not None:
            host[1].close()

    def _sent(self, content: bytes) -> bytes:
        if not ray.is_initialized():  # or Ray would start a cluster of its own for the asking
            raise BusError(f"{self.name} is on a Ray cluster, which this process has left")
        with self._lock:
            self._host = self._host or self._found()
            handle, direct = self._host
        if direct is not None:
            return direct.ask(content)
        call = getattr(handle, self._method).remote(content)
        answer: bytes = ray.get(call, timeout=patience_s(self._answer_s, content))
        return answer

    def _found(self) -> tuple[Any, DirectLine | None]:
        handle = ray.get_actor(self._actor, self._namespace)
        return handle, self._reached(ray.get(handle.direct.remote(), timeout=ANSWER_S))

    def _reached(self, address: bytes) -> DirectLine | None:
        """None: a network lets nobody through, or there is nothing to be reached."""
        try:
            return DirectLine(address, self._method, self._answer_s) if address else None
        except OSError as error:
            logger.info("%s is called by Ray: %s", self.name, error)
            return None


def _reason(error: Exception) -> str:
    match error:
        case TimeoutError():
            return "it does not answer"
        case OSError():
            return "its connection broke"
        case RayActorError():
            return "it ended, or its node cannot be reached"
        case TaskCancelledError():
            return "the call was cancelled"
        case ValueError():
            return "it is being started"
        case _:
            return " ".join(str(error).split())[:200]
