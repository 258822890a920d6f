"""How a driver calls what it placed: the same from a node of the cluster and from a client of it.

A client's every look at a reference is a request to the cluster, and may be kept waiting there. So
each call is given a future, that Ray fills in: to look at it costs nothing, and nobody is blocked.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any


def asked(method: Any, *arguments: Any) -> Future[Any]:
    """A call's answer when it comes, or its error; raises what kept its actor from being made."""
    found: Future[Any] = method.remote(*arguments).future()
    return found
