"""What a `file:` bucket remembers beside an object: CRC-32C and user metadata, in `.tierd-meta/objects/<key>.json`.

Written before the object's new content gets its name. It counts only when it belongs to the content that is there
(size, and either the modification time or, for small objects, the CRC itself); otherwise it is as if absent, as in a
plain copy of somebody's bucket. Objects above SMALL_BYTES are written once and never again under their key (segments),
so for them the size is enough.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tierd.remote import crc

SMALL_BYTES = 1024 * 1024
_READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The content of one meta file."""

    crc32c: int
    size: int
    mtime_ns: int
    metadata: Mapping[str, str]

    @property
    def etag(self) -> str:
        return content_etag(self.crc32c, self.size)


def content_etag(crc32c: int, size: int) -> str:
    """ETag of content whose CRC is known; it survives a move to another file system."""
    return f'"{crc32c:08x}-{size}"'


def stat_etag(facts: os.stat_result) -> str:
    """ETag of content that nobody has summed up yet."""
    return f'"m{facts.st_mtime_ns}-{facts.st_size}"'


def parse_content_etag(etag: str) -> tuple[int, int] | None:
    """CRC and size out of `content_etag`; None for other ETags."""
    checksum, dash, size = etag.strip('"').partition("-")
    try:
        return (int(checksum, 16), int(size)) if dash and len(checksum) == 8 else None
    except ValueError:
        return None


def encode_meta(meta: Meta) -> bytes:
    return json.dumps(asdict(meta), separators=(",", ":")).encode()


def load_meta(path: Path) -> Meta | None:
    """None when absent or not readable as such: then nothing is known."""
    try:
        raw = json.loads(path.read_bytes())
        return Meta(
            crc32c=int(raw["crc32c"]),
            size=int(raw["size"]),
            mtime_ns=int(raw["mtime_ns"]),
            metadata={str(name): str(value) for name, value in raw["metadata"].items()},
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError, AttributeError):
        return None


def belongs(meta: Meta, facts: os.stat_result, path: Path) -> bool:
    """True when *meta* describes the content that *path* has (its stat is *facts*). May read a small file."""
    if meta.size != facts.st_size:
        return False
    return meta.mtime_ns == facts.st_mtime_ns or meta.size > SMALL_BYTES or file_crc(path) == meta.crc32c


def file_crc(path: Path) -> int:
    """CRC-32C of a file's content."""
    checksum = 0
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_READ_BYTES):
            checksum = crc.crc32c(piece, checksum)
    return checksum
