"""Kinds of settings that name a place: addresses, directories, the bucket's URL; and secrets."""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class HostPort:
    """Where something listens or is reached. Port 0 = any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """`host:port`, `[v6]:port` or `:port` (this machine only). Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError("not HOST:PORT with a port from 0 to 65535")
        if host.startswith("[") != host.endswith("]") or (":" in host and not host.startswith("[")):
            raise ValueError("write an IPv6 address in brackets: [::1]:9092")
        return cls(host.strip("[]") or LOOPBACK, int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than localhost counts as reachable from elsewhere."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def is_wildcard(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Address:
    @property
    def allowed(self) -> str:
        return "HOST:PORT"

    def read(self, raw: object) -> HostPort:
        if isinstance(raw, HostPort):
            return raw
        if not isinstance(raw, str):
            raise ValueError("not HOST:PORT")
        return HostPort.parse(raw)

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Place:
    """A file or directory; made absolute by `load`."""

    @property
    def allowed(self) -> str:
        return "path"

    def read(self, raw: object) -> Path:
        if isinstance(raw, Path):
            return raw
        if not isinstance(raw, str) or not raw:
            raise ValueError("not a path")
        return Path(raw)

    def show(self, value: object) -> str:
        return str(value)


@dataclass(frozen=True, slots=True)
class Places:
    """One path or a list of them."""

    none: bool = False
    """Whether there may be none."""

    @property
    def allowed(self) -> str:
        return "path, or list of paths" + (", or nothing" if self.none else "")

    def read(self, raw: object) -> tuple[Path, ...]:
        several = raw if isinstance(raw, list | tuple) else [raw]
        return tuple(Place().read(one) for one in several if one != "" or not self.none)

    def show(self, value: object) -> str:
        return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Bucket:
    """`s3://bucket/prefix` or `file:DIR`."""

    @property
    def allowed(self) -> str:
        return "s3://BUCKET/PREFIX or file:DIR"

    def read(self, raw: object) -> str:
        if not isinstance(raw, str):
            raise ValueError("not a URL")
        parts = urlsplit(raw)
        if parts.scheme == "s3" and parts.netloc:
            return raw
        if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path:
            return raw
        raise ValueError("not a bucket's URL")

    def show(self, value: object) -> str:
        return str(value)


def absolute_bucket(url: str, base: Path) -> str:
    """The URL as it is stored: `file:` with an absolute directory, *base* being what a relative one starts from."""
    parts = urlsplit(url)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        return url  # not a directory of ours: `Bucket` refuses what is wrong
    path = unquote(parts.path) if url.startswith("file://") else url.removeprefix("file:")
    return f"file:{absolute(Path(path), base)}"


def absolute(path: Path, base: Path) -> Path:
    """Absolute and without `.` and `..`; symbolic links stay as they are."""
    return Path(os.path.normpath(base / path.expanduser()))


@dataclass(frozen=True, slots=True)
class Secret:
    """Never shown."""

    @property
    def allowed(self) -> str:
        return "text, never shown"

    def read(self, raw: object) -> SecretStr:
        if isinstance(raw, SecretStr):
            return raw
        if not isinstance(raw, str):
            raise ValueError("not a text: put it in quotes")
        return SecretStr(raw)

    def show(self, value: object) -> str:
        return "(secret)"
