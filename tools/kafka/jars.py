"""The jars of a Kafka server, from Maven Central into the user's cache.

`jars.txt` pins each jar and its SHA-256; nothing else is ever kept. ROOKERY_MAVEN names
another repository, and the usual proxy variables are followed.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rookery.errors import InputError, UnknownName

KAFKA_VERSION = "4.3.1"
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
TABLE = Path(__file__).with_name("jars.txt")
AT_ONCE = 8
TRIES = 3
TIMEOUT_S = 30.0


class Jar(NamedTuple):
    """One line of the table."""

    kafka: str  # the version of Kafka that needs it
    coordinates: str  # group:artifact:version
    sha256: str

    @property
    def name(self) -> str:
        _, artifact, version = self.coordinates.split(":")
        return f"{artifact}-{version}.jar"

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{self.name}"


def jars(version: str = KAFKA_VERSION) -> Path:
    """The directory with all jars of this version of Kafka; downloads the missing ones."""
    table = read_table()
    needed = [jar for jar in table if jar.kafka == version]
    if not needed:
        raise UnknownName("version of Kafka", version, {jar.kafka for jar in table})
    place = kafka_cache() / version
    missing = [jar for jar in needed if not (place / jar.name).exists()]
    if missing:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place) as part, ThreadPoolExecutor(AT_ONCE) as pool:
            for jar, data in zip(missing, pool.map(download, missing), strict=True):
                written = Path(part) / jar.name
                written.write_bytes(data)
                written.replace(place / jar.name)
        for stale in place.glob("*.jsa"):  # what kafka_java made from the jars of before
            stale.unlink(missing_ok=True)
    return place


def kafka_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rookery" / "kafka"


def read_table() -> list[Jar]:
    lines = TABLE.read_text().splitlines()
    return [Jar(*line.split()) for line in lines if line and not line.startswith("#")]


def download(jar: Jar) -> bytes:
    """The content of one jar, which has the checksum of the table."""
    url = f"{(os.environ.get('ROOKERY_MAVEN') or MAVEN_CENTRAL).rstrip('/')}/{jar.path}"
    data = _get(url)
    found = hashlib.sha256(data).hexdigest()
    if found != jar.sha256:
        raise InputError(
            f"wrong checksum: {url} has SHA-256 {found}, and {jar.name} must have {jar.sha256}; "
            "it was not kept (ROOKERY_MAVEN names another repository)"
        )
    return data


def _get(url: str) -> bytes:
    for tries_left in reversed(range(TRIES)):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                content: bytes = answer.read()
                return content
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if refused or not tries_left:
                raise InputError(
                    f"cannot download {url}: {error} (ROOKERY_MAVEN names another repository)"
                ) from error
    raise AssertionError("unreachable: the last try returns or raises")
