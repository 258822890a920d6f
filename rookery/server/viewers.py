"""The server's side of `rookery viewer`: the process that plays for one person who watches.

The code of environments and players runs there and never in the server. It ends with the
conversation, and dies with the server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rookery.server.child_process import Child, ChildFrozen, ChildLost
from rookery.viewing import Order, Refused, Reply, Watch

DEADLINE_S = 180.0  # for one reply: a large game compiles, an engine thinks
MAX_REPLY_BYTES = 16 << 20

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Reply] = msgspec.json.Decoder(Reply).decode


class ViewerProcess:
    """One process, started by its first order."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._child = Child(("viewer",), environment, MAX_REPLY_BYTES)
        self._watch: Watch | None = None  # what it shows

    async def ask(self, order: Order) -> Reply:
        """What the process replies; if it can't, a `Refused` that says why.

        One that was frozen is replaced by another, which begins anew with what was watched.
        """
        if isinstance(order, Watch):
            self._watch = order
        try:
            try:
                return _decode(await self._child.ask(_encode(order), DEADLINE_S))
            except ChildFrozen:
                return _decode(await self._child.ask(_encode(self._watch or order), DEADLINE_S))
        except ChildLost as lost:
            return Refused(f"the process that plays {lost}; try again, or watch something else")

    async def close(self) -> None:
        await self._child.close()
