"""Recorded frames, with what tells one from another."""

from pathlib import Path
from typing import NamedTuple

from kit.golden import golden
from tierd.wire.api import API


class Recorded(NamedTuple):
    name: str
    api_key: int
    version: int
    raw: bytes


def recorded(kind: str, *api_keys: int, served: bool = True) -> list[Recorded]:
    """Frames of one *kind* ("request" or "response"), those of *api_keys* or all, by default only versions served."""
    found = []
    for path in sorted(_folder().glob(f"*.{kind}")):
        key, version = path.name.split(".")[:2]
        frame = Recorded(path.name, int(key), int(version[1:]), path.read_bytes())
        if api_keys and frame.api_key not in api_keys:
            continue
        versions = API.get(frame.api_key)
        if served and (versions is None or not versions.first <= frame.version <= versions.last):
            continue
        found.append(frame)
    return found


def _folder() -> Path:
    root = golden("wire")
    inner = root / "wire"
    return inner if inner.is_dir() else root
