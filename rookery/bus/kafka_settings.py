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
from typing import Any

import yaml

from rookery.errors import ConfigError, UnknownName

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
        hosts = servers.split(",")
        if not all(re.fullmatch(r"[^\s:]+:\d{1,5}|\[[^\]]+\]:\d{1,5}", host) for host in hosts):
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
        except yaml.YAMLError:
            raise ConfigError(f"{path} is not YAML: see docs/kafka.md for an example") from None
        if not isinstance(content, dict):
            raise ConfigError(f"{path} is not a mapping: see docs/kafka.md for an example")
        known = ("prefix", "tls", "sasl")
        for name in content:
            if name not in known:
                raise UnknownName(f"key of {path.name}", str(name), known)
        prefix = checked_prefix(str(content.get("prefix", self.prefix)))
        return replace(self, prefix=prefix, client=_security(path, content))


def checked_prefix(prefix: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,100}", prefix):
        raise ConfigError(f"prefix {prefix!r}: use letters, digits, dots, dashes, underscores")
    return prefix


def _security(path: Path, content: Mapping[str, Any]) -> dict[str, str]:
    """librdkafka's own names for TLS and SASL. Values are never put into an error's text."""
    tls, sasl = content.get("tls"), content.get("sasl")
    client: dict[str, str] = {}
    if tls is not None:
        for name, value in _mapping(path, "tls", tls, (*_TLS, "key_password")).items():
            if name in _TLS and not Path(value).expanduser().is_file():
                raise ConfigError(f"{path.name}: tls.{name}: there is no file {value}")
            if name in _TLS:
                client[_TLS[name]] = str(Path(value).expanduser())
            else:
                client["ssl.key.password"] = _secret(path, "tls.key_password", value)
    if sasl is not None:
        found = _mapping(path, "sasl", sasl, ("mechanism", "username", "password"))
        mechanism = found.get("mechanism", "PLAIN")
        if mechanism not in _MECHANISMS:
            raise UnknownName("SASL mechanism", str(mechanism), _MECHANISMS)
        if "username" not in found or "password" not in found:
            raise ConfigError(f"{path.name}: sasl needs a username and a password")
        client |= {
            "sasl.mechanism": mechanism,
            "sasl.username": str(found["username"]),
            "sasl.password": _secret(path, "sasl.password", found["password"]),
        }
    if client or tls is not None:
        kind = ("SASL_" if sasl is not None else "") + ("SSL" if tls is not None else "PLAINTEXT")
        client["security.protocol"] = kind
    return client


def _mapping(path: Path, name: str, value: object, known: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name}: {name} is a mapping of {', '.join(known)}")
    for key in value:
        if key not in known:
            raise UnknownName(f"key of {name} in {path.name}", str(key), known)
    return value


def _secret(path: Path, name: str, value: object) -> str:
    """The value itself, or `$NAME`: that of an environment variable."""
    text = str(value)
    if not text.startswith("$"):
        return text
    found = os.environ.get(text[1:])
    if found is None:
        raise ConfigError(f"{path.name}: {name}: the environment variable {text[1:]} is not set")
    return found
