"""Reaching an object store through fsspec: in bounded time, and in one line where it cannot be.

    remote = Remote("s3://bucket/prefix")
    remote.call(lambda files, root: files.cat_file(f"{root}/x"))

What may pass by itself (silence, a broken connection, an overloaded server) is tried again for a
moment; what will not (no credentials, no bucket, no permission) is told at once. Where the store
is and who we are is the machine's own affair, as its other tools have it (AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, ~/.aws): never the run's. Nothing of theirs gets into an error.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rookery.errors import InputError, MissingExtra, StoreRefused, UnknownName, first_line

PATIENCE_S = 20.0  # that a store which is away is tried again
ATTEMPT_S = 15.0  # that one attempt may take, and besides
LEAST_BYTES_S = 1 << 20  # a second for each such part of what it carries
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0  # between attempts; doubles
_EXTRAS = {"s3": ("stores", "s3fs"), "gs": ("gcs", "gcsfs"), "gcs": ("gcs", "gcsfs")}
_OPTIONS: dict[str, dict[str, Any]] = {  # we try again ourselves, and know for how long
    "s3": {
        "config_kwargs": {
            "connect_timeout": 5,
            "read_timeout": ATTEMPT_S,
            "retries": {"total_max_attempts": 1},
        }
    }
}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "PermanentRedirect"}
_MISUSED = (NotImplementedError, ValueError, TypeError)  # it cannot be written, or never be meant

T = TypeVar("T")


def check_installed(uri: str) -> None:
    """Without importing anything: what a store of this kind needs is here."""
    scheme = uri.partition("://")[0]
    extra, package = _EXTRAS.get(scheme, ("stores", "fsspec"))
    if any(importlib.util.find_spec(each) is None for each in ("fsspec", package)):
        raise MissingExtra(f"checkpoint.uri {scheme}://", extra)


class Remote:
    """One place in a store, opened when it is first used."""

    def __init__(
        self, uri: str, patience_s: float = PATIENCE_S, attempt_s: float = ATTEMPT_S
    ) -> None:
        self.uri, self._patience_s, self._attempt_s = uri, patience_s, attempt_s
        self._place: tuple[Any, str] | None = None

    def call(self, work: Callable[[Any, str], T], size: int = 0) -> T:
        """What `work` makes of the file system and the path of this place in it.

        FileNotFoundError is for the caller to understand; whatever else goes wrong is one line.
        """
        until, pause_s = time.monotonic() + self._patience_s, _PAUSE_S
        while True:
            try:
                limit_s = self._attempt_s + size / LEAST_BYTES_S
                return bounded(lambda: work(*self._open()), limit_s)
            except InputError:
                raise
            except Exception as error:
                if isinstance(error, FileNotFoundError) and _code(error) not in _NO_BUCKET:
                    raise
                if (why := _refused(error, self.uri)) is not None:
                    raise StoreRefused(why) from None
                if time.monotonic() + pause_s >= until:
                    raise StoreRefused(_silent(error, self.uri)) from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _open(self) -> tuple[Any, str]:
        if self._place is None:
            self._place = _file_system(self.uri)
        return self._place


def bounded(work: Callable[[], T], limit_s: float) -> T:
    """What `work` returns or raises; TimeoutError where it does neither in time. Then it goes on
    in its thread, which nobody waits for, not even the end of the process."""
    done: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:  # noqa: BLE001 raised below, in the thread that waits
            done.put((None, error))

    threading.Thread(target=run, name="store", daemon=True).start()
    try:
        found, error = done.get(timeout=limit_s)
    except queue.Empty:
        raise TimeoutError(f"no answer in {limit_s:.0f} s") from None
    if error is not None:
        raise error
    return found  # type: ignore[return-value]  # None only where that is what it returned


def _file_system(uri: str) -> tuple[Any, str]:
    check_installed(uri)
    import fsspec

    scheme = uri.partition("://")[0]
    if scheme not in fsspec.available_protocols():
        known = fsspec.available_protocols()
        raise UnknownName("kind of store", scheme, known, "use file:DIRECTORY or s3://")
    options = {"use_listings_cache": False, "skip_instance_cache": True, **_OPTIONS.get(scheme, {})}
    try:
        made, root = fsspec.core.url_to_fs(uri, **options)
    except ImportError as error:
        said = first_line(error)
        raise InputError(f"checkpoint.uri {scheme}:// needs a package more: {said}") from None
    if hasattr(made, "retries"):  # of s3fs, beside botocore's
        made.retries = 1
    return made, root.rstrip("/")


# --- what is wrong, in words ---------------------------------------------------------------------


def _refused(error: BaseException, uri: str) -> str | None:
    """What will be the same in a minute; None for what may pass."""
    kind, code = type(error).__name__, _code(error)
    bucket = uri.partition("://")[2].partition("/")[0]
    if "Credential" in kind or "TokenRetrieval" in kind or kind == "ProfileNotFound":
        needs = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run `aws configure`"
        if uri.startswith(("gs:", "gcs:")):
            needs = "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth`"
        return f"{uri} needs credentials, and this machine has none that fit: {needs}"
    if code in _NO_BUCKET:
        return f"{uri}: there is no bucket {bucket} here: make it, or correct checkpoint.uri"
    if isinstance(error, PermissionError):
        said = f" ({code})" if code else ""
        return (
            f"{uri}: access is refused{said}: check the credentials of this machine, and that they "
            f"may list, read, write and delete in {bucket}"
        )
    if kind == "ParamValidationError" or isinstance(error, _MISUSED):
        return f"{uri} cannot be used as a store ({kind}): correct checkpoint.uri"
    return None


def _silent(error: BaseException, uri: str) -> str:
    """It was tried for long enough."""
    return (
        f"{uri} does not answer{_endpoint(uri)} ({_code(error) or type(error).__name__}); what was "
        "saved before is kept. See that the store can be reached from here, then resume the run"
    )


def _endpoint(uri: str) -> str:
    """Where it was looked for, without what stands before an @."""
    if not uri.startswith("s3:"):
        return ""
    said = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not said:
        return ""
    return f" at {urlsplit(said).netloc.rpartition('@')[2]} (AWS_ENDPOINT_URL)"


def _code(error: BaseException | None) -> str:
    """What the store itself calls it, wherever it hangs in the chain."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        error = error.__cause__ or error.__context__
    return ""
