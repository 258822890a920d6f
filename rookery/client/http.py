"""Asking a server over HTTP, and what its refusals mean.

    http = Http(find_address(), timeout_s=30.0)
    http.read(RunPage, "/runs", {"limit": 100})
    http.change(Answer, "POST", "/runs/last/pause", {"reason": "lunch"})

Every change carries a key by which the server knows it again, so that it can be sent once more
after a connection broke, and acts once.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from rookery.client.address import Address
from rookery.errors import (
    Forbidden,
    InputError,
    Rejected,
    RookeryError,
    ServerFailed,
    Unauthorized,
    Unreachable,
)
from rookery.foreign import one_line

if TYPE_CHECKING:
    import httpx2
    from pydantic import BaseModel

API = "/api/v1"
FIRST_PAUSES_S = (0.1, 0.3)  # before tries again, where the server was never heard of yet
PAUSES_S = (0.1, 0.3, 1.0, 2.0, 4.0)  # where it was: it may be starting anew
LONGEST_WAIT_S = 10.0  # that a server may ask for before a try again
BUSY = (429, 503)

M = TypeVar("M", bound="BaseModel")


class Http:
    """One server over kept connections; any thread may ask."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._made: httpx2.Client | None = None
        self._known = False  # it has answered before

    def close(self) -> None:
        if self._made is not None:
            self._made.close()
            self._made = None

    def read(self, model: type[M], path: str, query: Mapping[str, Any] | None = None) -> M:
        return self._as(model, self.plain(path, query))

    def plain(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """What a GET answers, as plain data."""
        return self._asked("GET", path, query, None, {}, again=True)

    def change(
        self,
        model: type[M],
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> M:
        """A request that acts once, however often it has to be sent."""
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        return self._as(model, self._asked(method, path, query, body, headers, again=True))

    def once(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request that the server would not know again: it is not repeated once it was sent."""
        return self._asked(method, path, None, body, {}, again=False)

    def _asked(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        again: bool,
    ) -> Any:
        import httpx2

        content = None if body is None else _encoded(body)
        sent = {**headers, **({} if body is None else {"Content-Type": "application/json"})}
        tries, give_up_at = 0, time.monotonic() + 2 * self._timeout_s
        while True:
            pauses = PAUSES_S if self._known else FIRST_PAUSES_S
            pause_s = pauses[tries] if tries < len(pauses) else None
            tries += 1
            try:
                response = self._client().request(
                    method, API + path, params=_given(query), content=content, headers=sent
                )
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                was_sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
                too_late = pause_s is None or time.monotonic() > give_up_at
                if too_late or (was_sent and not again):
                    raise Unreachable(f"no answer from {self.address.url}: {_why(error)}") from None
                time.sleep(pause_s or 0.0)
                continue
            self._known = True
            if response.status_code in BUSY and pause_s is not None and again:
                time.sleep(_wait_s(response, pause_s))
                continue
            return self._content(response)

    def _client(self) -> httpx2.Client:
        if self._made is None:
            import httpx2

            tls = self.address.tls
            self._made = httpx2.Client(
                base_url=self.address.url,
                headers=self.address.headers,
                timeout=httpx2.Timeout(self._timeout_s, connect=min(self._timeout_s, 10.0)),
                verify=tls if tls is not None else False,
                trust_env=self.address.is_secure,  # a proxy on the way must not see the token
            )
        return self._made

    def _content(self, response: httpx2.Response) -> Any:
        if response.status_code == 204:
            return None
        try:
            found = json.loads(response.content)
        except ValueError:
            found = None
        if response.is_success and found is not None:
            return found
        raise refusal(self.address.url, response.status_code, found)

    def _as(self, model: type[M], data: Any) -> M:
        from pydantic import ValidationError

        try:
            return model.model_validate(data)
        except ValidationError:
            raise ServerFailed(
                f"{self.address.url} answers with something else than a {model.__name__}: "
                "use one version of Rookery everywhere"
            ) from None


def refusal(url: str, status: int, problem: Any) -> RookeryError:
    """A problem+json as the error that it stands for."""
    detail = problem.get("detail") if isinstance(problem, dict) else None
    line = one_line(detail) if isinstance(detail, str) and detail else ""
    if status == 401:
        return Unauthorized(line or f"{url} does not know the token")
    if status == 403:
        return Forbidden(line or f"{url} does not allow this")
    if status == 409:
        return Rejected(line or f"{url} cannot do this now")
    if 400 <= status < 500:
        return InputError(line or f"{url} refuses: status {status}; is it a Rookery server?")
    return ServerFailed(f"{url} failed: {line or f'status {status}'}")


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"this cannot be sent as JSON: {one_line(str(error))}") from None


def _given(query: Mapping[str, Any] | None) -> dict[str, str]:
    """Without what was left out; in the spelling of JSON."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (query or {}).items()
        if value is not None and value != ""
    }


def _wait_s(response: httpx2.Response, pause_s: float) -> float:
    try:
        asked_s = float(response.headers.get("Retry-After", ""))
    except ValueError:
        return pause_s
    return min(max(asked_s, pause_s), LONGEST_WAIT_S)


def _why(error: Exception) -> str:
    kind = type(error).__name__
    text = one_line(str(error))
    if "Timeout" in kind:
        return "it took too long"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"{text}; trust its certificate with SSL_CERT_FILE=cert.pem"
    if kind == "ConnectError":
        return f"{text or 'no connection'}; is rookery serve running there?"
    return text or kind
