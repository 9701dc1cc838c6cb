"""Heads: per partition, what the bucket holds and where the log starts; one object, changed by compare-and-swap.

A head is an index of the manifests plus three facts that are nowhere else in the bucket: log start, accepted gaps, and
the epoch lineage that decides which segments count. It may lag behind the manifests, never run ahead of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.documents import Document, Id, NewerFormat
from tierd.remote.errors import ClaimLost, NotFound, PreconditionFailed
from tierd.remote.keys import HeadKey, Keys
from tierd.remote.manifest import EpochStart
from tierd.remote.store import ObjectStore

_TRIES = 5

OnRotten = Callable[[bytes, str], None]
"""Given the bytes of a head that does not parse, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadEntry:
    """A committed segment over offsets [base, next_base), with what a reader needs to do without its manifest."""

    base: int
    next_base: int
    segment_id: Id
    size_bytes: int
    """Of the segment; 0: the range is empty and no object exists."""
    index_sizes: tuple[int, ...]
    """Stored sizes of the parts of `.indexes` in their order, four or five; empty for an empty range."""
    largest_timestamp_ms: int | None = None
    largest_timestamp_offset: int | None = None
    append_ms: int | None = None
    records: int | None = None
    log_crc: int | None = None
    indexes_crc: int | None = None
    epochs: tuple[EpochStart, ...] = ()
    stored_bytes: int | None = None
    """Of the `.log` object when it is compressed or encrypted: then the manifest is needed to read it."""
    key_id: str | None = None
    """The key under which its objects are encrypted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Offsets [start, stop) that are lost, and that somebody has accepted to be."""

    start: int
    stop: int
    reason: str
    who: str = ""
    accepted_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`tierd/partitions/<topic>-<id>/<partition>.json`."""

    topic: str
    topic_id: Id
    partition: int
    epoch: int
    """Leader epoch of the owner who wrote it. An older epoch's segment that is not in `entries` does not count."""
    incarnation: Id
    updated_ms: int
    lineage: tuple[EpochStart, ...] = ()
    """Leader epochs of the partition and where each begins."""
    log_start: int = 0
    copied_to: int | None = None
    """Offset after the last segment ever committed; None: none was."""
    gaps: tuple[Gap, ...] = ()
    entries: tuple[HeadEntry, ...] = ()
    """Committed segments, ascending; all of them while no pages are written."""

    def names(self, segment_id: Uuid) -> bool:
        """True when *segment_id* is one of the entries."""
        return any(entry.segment_id == segment_id for entry in self.entries)


@dataclass(frozen=True, slots=True)
class StoredHead:
    """A head and the ETag to change it with."""

    head: Head
    etag: str


HEAD = Document(Head)


def read_head(store: ObjectStore, keys: Keys, topic: str, topic_id: Uuid, partition: int) -> StoredHead | None:
    """None when the partition has no head. Raises CorruptFile, NewerFormat."""
    return _now(store, keys.head(topic, topic_id, partition), None)[0]


def update_head(
    store: ObjectStore,
    keys: Keys,
    change: Callable[[Head | None], Head],
    *,
    topic: str,
    topic_id: Uuid,
    partition: int,
    known: StoredHead | None = None,
    on_rotten: OnRotten | None = None,
) -> StoredHead:
    """Write `change(head now)` by compare-and-swap; gives what is stored now. *change* may run several times.

    With *known* (what the last update gave) the first try costs no GET. Check the claim first (`owner.require_newest`).
    One that does not parse is written over as if there were none, once *on_rotten* has returned; without it
    CorruptFile is raised. Raises ClaimLost when a later epoch than that of the changed head wrote it.
    """
    key = keys.head(topic, topic_id, partition)
    stored, etag = known, None if known is None else known.etag
    for attempt in range(_TRIES):
        if known is None or attempt:
            stored, etag = _now(store, key, on_rotten)
        new = change(stored.head if stored else None)
        if stored is not None and stored.head.epoch > new.epoch:
            raise ClaimLost(f"{key} was written by epoch {stored.head.epoch}, above our {new.epoch}")
        if stored is not None and new == stored.head:
            return stored
        try:
            info = HEAD.put(store, key, new, if_none_match=etag is None, if_match=etag)
        except PreconditionFailed:
            continue
        return StoredHead(new, info.etag)
    raise ClaimLost(f"{key}: somebody else keeps writing it")


def _now(store: ObjectStore, key: str, on_rotten: OnRotten | None) -> tuple[StoredHead | None, str | None]:
    """The head, and the ETag of what is there, head or not."""
    try:
        info, raw = store.get_with_info(key)
    except NotFound:
        return None, None
    try:
        return StoredHead(HEAD.parse(raw, key), info.etag), info.etag
    except NewerFormat:
        raise
    except CorruptFile as error:
        if on_rotten is None:
            raise
        on_rotten(raw, str(error))
        return None, info.etag


def list_heads(store: ObjectStore, keys: Keys) -> list[HeadKey]:
    """Which partitions have a head."""
    found = (keys.parse(info.key) for info in store.list(keys.partitions_folder))
    return [key for key in found if isinstance(key, HeadKey)]
