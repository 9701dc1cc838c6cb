"""The recorded buckets of Aiven's plugin (tests/golden/PROVENANCE.md): as files, in memory, as rows of a catalog."""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from kit.clock import FakeClock
from kit.golden import golden
from kit.remote_log import Rows
from tierd.remote import crc
from tierd.remote.keyring import KeyRing, load_ring
from tierd.remote.keys import Keys, SegmentName
from tierd.remote.memory import MemoryStore
from tierd.tiering.intake import list_segments, row_of

VARIANTS = ("plain", "plain-chunks", "txn", "zstd", "enc", "enc-nocomp", "txn-enc")
TRANSFORMED = ("zstd", "enc", "enc-nocomp", "txn-enc")
KEYS = Keys("tier/")


@cache
def recorded_ring() -> KeyRing:
    """The key that protects the recordings, under the id that they were made with."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key1.pem"
        shutil.copy(golden("aiven") / "keys" / "private.pem", file)
        return load_ring([file])


def manifests(variant: str) -> list[Path]:
    found = sorted((golden("aiven") / f"bucket-{variant}").rglob("*.rsm-manifest"))
    assert found
    return found


def local_segment(variant: str, name: SegmentName, suffix: str) -> Path:
    """The file that the broker had."""
    return golden("aiven") / f"local-{variant}" / f"{name.topic}-{name.partition}" / f"{name.base:020d}{suffix}"


def recorded_bucket(variant: str) -> tuple[MemoryStore, Rows]:
    """A bucket in memory, and its segments as tierd takes them in."""
    store, rows, root = MemoryStore(FakeClock()), Rows(), golden("aiven") / f"bucket-{variant}"
    for path in root.rglob("*.*"):
        data = path.read_bytes()
        store.put(path.relative_to(root).as_posix(), data, crc32c=crc.crc32c(data))
    for found in list_segments(store, KEYS, "tier/"):
        row = row_of(store, KEYS, found, {})
        assert row is not None
        rows.segments.append(row.remote)
    return store, rows
