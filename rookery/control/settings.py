"""What the owner of a home decides for everyone who uses it: `rookery.yaml` in the home.

    allow:
      code: ["my_package.envs:Maze"]
      files: [/data/models/*]
    cpus: 8
    server: {host: 0.0.0.0, tls_cert: cert.pem, tls_key: key.pem, allowed_hosts: [lab.example.org]}

A run's config says what a run is and may come from anyone; this file is the owner's own word, and
nothing that comes over the network can change it. Without the file the defaults hold: loopback
only, and nobody far away names code, a program, a file or a host.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rookery.config.misfits import Place, misfits
from rookery.config.models import LauncherName
from rookery.errors import ConfigError, InputError, nearest_names
from rookery.launchers.ray.settings import RaySettings

FILE = "rookery.yaml"

_HOST = re.compile(r"([A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Patterns = tuple[Annotated[str, Field(min_length=1)], ...]


class Allow(_Part):
    """What a config from the network may name; shell patterns, in which * also stands for /."""

    code: Patterns = Field(default=(), description="module:name, like my_package.envs:Maze")
    binaries: Patterns = Field(default=(), description="engines, by name or path")
    files: Patterns = Field(default=(), description="paths, like /data/models/*.onnx")
    hosts: Patterns = Field(default=(), description="host names in an environment's kwargs")


class ServerSettings(_Part):
    """How `rookery serve` listens, and how much it takes from whom."""

    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=7860, ge=0, le=65535, description="0: any that is free")
    allowed_hosts: tuple[str, ...] = Field(
        default=(), description="names that clients reach this server by, NAME or NAME:PORT"
    )
    tls_cert: str = Field(default="", description="PEM file of the certificate and its chain")
    tls_key: str = Field(default="", description="PEM file of its private key")
    max_body_kb: int = Field(default=1024, ge=1, le=65536, description="largest request body")
    requests_per_s: float = Field(default=600.0, gt=0, description="of one token, in the long run")
    burst: int = Field(default=1200, ge=1, description="requests of one token at once")
    changes_per_s: float = Field(default=20.0, gt=0, description="of one token, in the long run")
    change_burst: int = Field(default=60, ge=1, description="changes by one token at once")
    connections: int = Field(
        default=1024, ge=64, description="at a time, or as many as there are file descriptors for"
    )
    stream_clients: int = Field(default=512, ge=1, description="that follow the stream at a time")
    stream_queue: int = Field(
        default=1024, ge=1, description="messages kept for a slow client before some are left out"
    )

    viewers: int = Field(
        default=4, ge=0, description="people who watch a policy play at a time, a process for each"
    )

    @field_validator("allowed_hosts")
    @classmethod
    def _are_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _HOST.fullmatch(host):
                raise ValueError(
                    f"server.allowed_hosts: {host!r} is not a host: write NAME, NAME:PORT or "
                    "[IPV6]:PORT, each name in full"
                )
        return tuple(host.lower() for host in hosts)

    @model_validator(mode="after")
    def _has_both(self) -> ServerSettings:
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("server.tls_cert and server.tls_key go together: set both or neither")
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name that must be looked up may mean more."""
        host = self.host.strip("[]").lower()
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False


class Settings(_Part):
    """All of `rookery.yaml`."""

    allow: Allow = Allow()
    trust_bus: bool = Field(
        default=False, description="take commands on the bus that nobody signed"
    )
    cpus: int | None = Field(
        default=None, ge=1, description="that runs of a server may use; null: the machine's cores"
    )
    server: ServerSettings = ServerSettings()
    launcher: LauncherName = Field(
        default="local", description="of a server, for runs that ask for no other"
    )
    ray: RaySettings = RaySettings()

    @classmethod
    def load(cls, home_path: Path) -> Settings:
        """The home's settings, or one ConfigError line that names the file and the key."""
        path = home_path / FILE
        values = _read(path)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(f"{path}: {_explain(error)}") from None


def check_bind(server: ServerSettings, insecure: bool) -> None:
    """Refuse to be reachable from elsewhere in plain text, unless somebody insists."""
    for key, file in (("tls_cert", server.tls_cert), ("tls_key", server.tls_key)):
        if file and not os.access(file, os.R_OK):
            raise InputError(f"server.{key}: cannot read {file!r}: name a PEM file")
    if server.is_loopback or server.tls_cert or insecure:
        return
    raise InputError(
        f"server.host {server.host!r} can be reached from other machines, and without TLS anyone "
        "on the way can read the tokens and take over every run: set server.tls_cert and "
        "server.tls_key, or keep to 127.0.0.1 behind an SSH tunnel or a proxy with TLS, or say "
        "--insecure-bind if the network is yours alone"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot read {path}: {reason}") from None
    import yaml

    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:  # nothing but comments
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of settings, like `cpus: 4`")
    return values


# --- error texts ---------------------------------------------------------------------------------


def _explain(error: ValidationError) -> str:
    found = error.errors(include_url=False)
    return " ".join(misfits(found, _unknown, repeat=True).split())


def _unknown(place: Place) -> str:
    key = ".".join(map(str, place))
    near = _nearest(key)
    return f"unknown setting {key!r}" + (f"; did you mean {near}?" if near else "")


def _nearest(key: str) -> str | None:
    """The setting most like an unknown one: the same word elsewhere, or a similar one."""
    known = list(_keys(Settings, ""))
    parent, _, last = key.rpartition(".")
    for names in ([k for k in known if k.rpartition(".")[0] == parent], known):
        by_last = {name.rpartition(".")[2]: name for name in reversed(names)}
        if last in by_last:
            return by_last[last]
        if near := nearest_names(last, by_last, 1):
            return by_last[near[0]]
    return None


def _keys(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield prefix + name
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _keys(field.annotation, f"{prefix}{name}.")
