"""How to reach a Kafka cluster: from a URI, and from a file that stays on this machine.

    settings = KafkaSettings.of("kafka://b1:9093,b2:9093/team-a", "kafka.yaml")

What the file says of security never becomes part of a run's config, nor of any text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from rookery.bus import Bus, BusPlace
from rookery.config.bus import MOST_EXPERIENCE_MB, BusConfig
from rookery.errors import ConfigError, InputError, UnknownName

CONFIG_VARIABLE = "ROOKERY_BUS_CONFIG"
SCHEME = "kafka://"

_TLS = {"ca": "ssl.ca.location", "cert": "ssl.certificate.location", "key": "ssl.key.location"}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True)
class KafkaSettings:
    servers: str  # host:port,host:port
    prefix: str = ""  # of every topic's name
    per_run: bool = False  # a topic of each kind for each run, instead of one for all
    partitions: int = 1
    replication: int = -1  # -1: the broker's own default
    experience_mb: int = 1024
    experience_hours: float = 24.0
    client: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets

    @classmethod
    def of(cls, uri: str, file: str | None = None) -> KafkaSettings:
        """The settings of `kafka://host:port,host:port[/prefix]` and of a file, if one is named."""
        servers, _, prefix = uri.removeprefix(SCHEME).partition("/")
        if "@" in uri:
            raise ConfigError(
                "a bus's URI holds no user and no password, since others can read it: put them "
                "under sasl into a file, and name that with --bus-config"
            )
        if not all(_is_address(server) for server in servers.split(",")):
            raise ConfigError(
                f"bus {uri!r}: write kafka://host:port, or several as host:port,host:port"
            )
        settings = cls(servers, checked_prefix(prefix))
        file = file or os.environ.get(CONFIG_VARIABLE)
        return settings.with_file(Path(file)) if file else settings

    @property
    def uri(self) -> str:
        return SCHEME + self.servers + (f"/{self.prefix}" if self.prefix else "")

    def with_file(self, path: Path) -> KafkaSettings:
        try:
            content = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError):
            raise ConfigError(f"{path} is not YAML: see docs/kafka.md for an example") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path} is not a mapping: see docs/kafka.md for an example")
        known = ("prefix", "tls", "sasl")
        for name in content:
            if name not in known:
                raise UnknownName(f"key of {path.name}", str(name), known)
        prefix = self.prefix or checked_prefix(str(content.get("prefix") or ""))
        return replace(self, prefix=prefix, client=_security(path, content))


def checked_prefix(prefix: str) -> str:
    """With a dot at its end, unless it ends like that or with a dash."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", prefix):
        raise ConfigError(f"prefix {prefix!r}: use letters, digits, dots, dashes, underscores")
    return prefix if not prefix or prefix[-1] in "._-" else prefix + "."


def _is_address(server: str) -> bool:
    found = re.fullmatch(r"(?:[^\s:\[\]]+|\[[^\s\]]+\]):(\d{1,5})", server)
    return found is not None and 0 < int(found[1]) < 65536


def _security(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """librdkafka's own names for TLS and SASL. Values are never put into an error's text."""
    client: dict[str, str] = {}
    if "tls" in content:
        client |= _tls(path, _mapping(path, "tls", content["tls"], (*_TLS, "key_password")))
    if "sasl" in content:
        names = ("mechanism", "username", "password")
        client |= _sasl(path, _mapping(path, "sasl", content["sasl"], names))
    if "tls" in content or "sasl" in content:
        kind = ("SASL_" if "sasl" in content else "") + ("SSL" if "tls" in content else "PLAINTEXT")
        client["security.protocol"] = kind
    return client


def _tls(path: Path, found: Mapping[str, str]) -> dict[str, str]:
    """An empty part is TLS with the authorities that this machine trusts."""
    client: dict[str, str] = {}
    for name in _TLS.keys() & found.keys():
        file = path.parent / Path(found[name]).expanduser()
        if not file.is_file():
            raise ConfigError(f"{path.name}: tls.{name}: there is no file {file}")
        client[_TLS[name]] = str(file)
    if ("cert" in found) != ("key" in found):
        raise ConfigError(f"{path.name}: tls.cert and tls.key go together: write both or none")
    if "key_password" in found:
        client["ssl.key.password"] = _secret(path, "tls.key_password", found["key_password"])
    return client


def _sasl(path: Path, found: Mapping[str, str]) -> dict[str, str]:
    mechanism = found.get("mechanism", "PLAIN")
    if mechanism not in _MECHANISMS:
        raise UnknownName("SASL mechanism", mechanism, _MECHANISMS)
    if "username" not in found or "password" not in found:
        raise ConfigError(f"{path.name}: sasl needs a username and a password")
    return {
        "sasl.mechanism": mechanism,
        "sasl.username": found["username"],
        "sasl.password": _secret(path, "sasl.password", found["password"]),
    }


def _mapping(path: Path, name: str, value: object, known: tuple[str, ...]) -> dict[str, str]:
    """A part of the file; numbers are taken as text, anything deeper is refused."""
    if not isinstance(value, dict | None):
        raise ConfigError(f"{path.name}: {name} is a mapping of {', '.join(known)}")
    found: dict[str, str] = {}
    for key, each in (value or {}).items():
        if key not in known:
            raise UnknownName(f"key of {name} in {path.name}", str(key), known)
        if isinstance(each, dict | list | None):
            raise ConfigError(f"{path.name}: {name}.{key} is not text")
        found[key] = str(each)
    return found


def _secret(path: Path, name: str, text: str) -> str:
    """The text itself, or `$NAME`: that of an environment variable."""
    if not text.startswith("$"):
        return text
    found = os.environ.get(text[1:])
    if found is None:
        raise ConfigError(f"{path.name}: {name}: the environment variable {text[1:]} is not set")
    return found


class KafkaBusConfig(BusConfig):
    """A cluster. Where it is and how to log in is each machine's own affair, not the run's."""

    kind: Literal["kafka"] = "kafka"
    topics: Literal["shared", "per-run"] = Field(
        default="shared", description="one set of topics for all runs, or one for each"
    )
    partitions: int = Field(default=1, ge=1, description="of `experiences`, when it is made")
    replication: int = Field(default=-1, ge=-1, description="copies; -1: the brokers' default")
    max_experience_mb: int = Field(
        default=1024,
        ge=8,
        le=MOST_EXPERIENCE_MB,
        description="kept experience; retention takes what is older",
    )
    experience_hours: float = Field(default=24.0, gt=0, description="that experience is kept")


class KafkaRunBus:
    Config = KafkaBusConfig

    @staticmethod
    def open(place: BusPlace) -> Bus:
        from rookery.bus.open import kafka_bus

        if place.cluster is None:
            raise InputError(
                f"run {place.run} is on Kafka: say where with --bus kafka://HOST:PORT or "
                "ROOKERY_BUS"
            )
        asked = place.config
        settings = replace(
            place.cluster,
            per_run=asked.topics == "per-run",
            partitions=asked.partitions,
            replication=asked.replication,
            experience_mb=asked.max_experience_mb,
            experience_hours=asked.experience_hours,
        )
        return kafka_bus(settings, place.run, place.warn)

    read = open
