"""A store of checkpoints on another node's disk, through the host of its run.

    store = open_store("ray:NAMESPACE/HOST/checkpoints")        # a worker's side
    answer({"checkpoints": FileStore(...)}, content)            # the host's

For clusters whose nodes share no disk: whoever trains or plays elsewhere saves and loads by calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rookery.bus.ray.calls import Call, Done, decode_call, encode, failed, result_of
from rookery.errors import CheckpointGone, DamagedCheckpoint, MessageError, StoreError

if TYPE_CHECKING:
    from rookery.checkpoints.store import CheckpointStore

ERRORS = {
    "CheckpointGone": CheckpointGone,
    "DamagedCheckpoint": DamagedCheckpoint,
    "StoreError": StoreError,
}
METHODS = ("save", "load", "names", "delete", "clear_leftovers")
LOADS_S = 120.0  # of a large checkpoint through calls of Ray, which come as a whole


def answer(stores: Mapping[str, CheckpointStore], content: bytes) -> bytes:
    """Do what a call asks of one of the stores."""
    try:
        call = decode_call(content)
        which, *arguments = call.arguments
        if call.method not in METHODS or which not in stores:
            raise StoreError(f"a host of a run knows no {call.method!r} of {which!r}")
        store = stores[which]
        if call.method == "save" and _is_saved(store, *arguments):
            return encode(Done(None))  # the answer to the first call was lost
        return encode(Done(getattr(store, call.method)(*arguments)))
    except (StoreError, MessageError, TypeError, ValueError) as error:
        return encode(failed(error))


def _is_saved(store: CheckpointStore, name: str, files: Mapping[str, bytes]) -> bool:
    return name in store.names() and store.load(name) == files


class HostedStore:
    """A worker's side; `ask` carries a call to the host and waits for it."""

    def __init__(self, ask: Callable[[bytes], bytes], which: str) -> None:
        self._ask, self._which = ask, which

    def save(self, name: str, files: Mapping[str, bytes]) -> None:
        self._call("save", name, {key: bytes(content) for key, content in files.items()})

    def load(self, name: str, only: Collection[str] = ()) -> dict[str, bytes]:
        return msgspec.convert(self._call("load", name, list(only)), dict[str, bytes])

    def names(self) -> list[str]:
        return msgspec.convert(self._call("names"), list[str])

    def delete(self, name: str) -> None:
        self._call("delete", name)

    def clear_leftovers(self) -> None:
        self._call("clear_leftovers")

    def _call(self, method: str, *arguments: Any) -> Any:
        content = encode(Call(method, [self._which, *arguments]))
        return result_of(self._ask(content), ERRORS)


def hosted_store(place: str) -> HostedStore:
    """At `NAMESPACE/HOST/WHICH`; only inside the cluster."""
    from rookery.bus.ray.line import HostLine

    namespace, host, which = place.split("/")
    return HostedStore(HostLine(namespace, host, "store", answer_s=LOADS_S).ask, which)
