"""A line to the host of a run, by its name in the cluster: it is found again when it is restarted.

A call that got no answer is sent again to whoever has the name then; the host knows publications by
their numbers, so none is there twice.
"""

from __future__ import annotations

import time
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, TaskCancelledError

from rookery.bus.ray.calls import joined, parted
from rookery.errors import BusError

ANSWER_S = 15.0  # a host that does not answer for so long is frozen, cut off or gone
PATIENCE_S = 180.0  # that a host is waited for
AGAIN_S = 0.25
TOLD_AFTER_S = 1.0


class HostLine:
    """One process's line; safe to use from several threads."""

    def __init__(
        self, namespace: str, name: str, method: str = "call", patience_s: float = PATIENCE_S
    ) -> None:
        self.name = f"ray:{name}"
        self._namespace, self._actor = namespace, name
        self._method, self._patience_s = method, patience_s
        self._handle: Any = None
        self._away_since: float | None = None
        self._why = ""

    @property
    def trouble(self) -> str | None:
        since = self._away_since
        away_s = time.monotonic() - since if since is not None else 0.0
        if away_s < TOLD_AFTER_S:
            return None
        return f"the host of the bus has been away for {away_s:.0f} s: {self._why}"

    def ask(self, content: bytes, parts: int = 1) -> bytes:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                found = self._sent(content, parts)
            except (RayError, ValueError) as error:  # the latter: nobody has the name
                self._handle = None
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

    def _sent(self, content: bytes, parts: int) -> bytes:
        if not ray.is_initialized():  # or Ray would start a cluster of its own for the asking
            raise BusError(f"{self.name} is on a Ray cluster, which this process has left")
        if self._handle is None:
            self._handle = ray.get_actor(self._actor, self._namespace)
        method = getattr(self._handle, self._method).options(num_returns=parts)
        asked = method.remote(parts, *parted(content))
        found: bytes | list[bytes] = ray.get(asked, timeout=ANSWER_S)
        return found if isinstance(found, bytes) else joined(found)


def _reason(error: Exception) -> str:
    match error:
        case GetTimeoutError():
            return "it does not answer"
        case RayActorError():
            return "it ended, or its node cannot be reached"
        case TaskCancelledError():
            return "the call was cancelled"
        case ValueError():
            return "it is being started"
        case _:
            return " ".join(str(error).split())[:200]
