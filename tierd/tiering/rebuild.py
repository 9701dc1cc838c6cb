"""The catalog made again from the bucket, and what of the old one nothing in the bucket says. Blocking, offline."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.open import Bucket
from tierd.storage.database import DatabaseDamaged, set_aside
from tierd.tiering.catalog import GAPS, Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.opening import Pulse, Survey
from tierd.tiering.rows import CatalogSegment

Key = tuple[PartitionId, Uuid]


@dataclass(frozen=True, slots=True)
class Difference:
    """A committed segment, offsets [start, stop), of which the old catalog said something else than the bucket."""

    topic: str
    partition: int
    start: int
    stop: int
    what: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    partitions: int
    segments: int
    bytes: int
    """Of committed segments, before compression."""
    old: str
    """What there was before: `used`, `damaged`, `missing`."""
    differences: tuple[Difference, ...]


def rebuild(
    bucket: Bucket,
    clock: Clock,
    *,
    old: Path,
    new: Path,
    archive_id: Uuid | None,
    on_part: Callable[[int, int], None] = lambda done, total: None,
) -> Rebuilt:
    """Make *new*, which must not exist, out of the bucket and of what only *old* knows. Nobody may use *old* meanwhile.

    Nothing is written to the bucket. Raises WrongBucket, RemoteUnavailable, StartRefused (a later format), DiskFull.
    """
    made = Catalog.open(new)
    try:
        Survey(bucket, made, clock, Pulse(clock), settle_ms=0, on_part=on_part).everything(archive_id)
        known, state = _opened(old)
        if known is None:
            return _counted(made, state, ())
        try:
            differences = tuple(_differences(known, made))
            _carry_over(known, made)
        finally:
            known.close()
        return _counted(made, state, differences)
    finally:
        made.close()


def _opened(old: Path) -> tuple[Catalog | None, str]:
    if not old.exists():
        return None, "missing"
    try:
        return Catalog.open(old), "used"
    except DatabaseDamaged:
        return None, "damaged"


def _counted(made: Catalog, old: str, differences: tuple[Difference, ...]) -> Rebuilt:
    rows = made.in_state(CopyState.COPY_FINISHED)
    size_bytes = sum(row.remote.size_bytes for row in rows)
    return Rebuilt(len(made.partitions()), len(rows), size_bytes, old, differences)


def _differences(old: Catalog, new: Catalog) -> Iterator[Difference]:
    before, after = _of(old, CopyState.COPY_FINISHED), _of(new, CopyState.COPY_FINISHED)
    under_way = {*_of(old, CopyState.COPY_STARTED), *_of(old, CopyState.DELETE_STARTED)}
    for key, row in sorted({**after, **before}.items(), key=lambda one: (one[0][0], one[1].remote.base)):
        if key not in after:
            yield _difference(row, "not in the bucket")
        elif key not in before and key not in under_way:
            yield _difference(row, "not in the catalog")
        elif key in before and _facts(before[key]) != _facts(after[key]):
            yield _difference(after[key], "other sizes, offsets or keys in the catalog")


def _of(catalog: Catalog, state: CopyState) -> dict[Key, CatalogSegment]:
    return {(row.remote.part, row.remote.segment_id): row for row in catalog.in_state(state)}


def _facts(row: CatalogSegment) -> tuple[object, ...]:
    remote = row.remote
    return remote.base, remote.next_base, remote.size_bytes, remote.stored_bytes, remote.indexes_bytes, remote.key_id


def _difference(row: CatalogSegment, what: str) -> Difference:
    remote = row.remote
    return Difference(remote.topic, remote.part.partition, remote.base, remote.next_base, what)


def _carry_over(old: Catalog, new: Catalog) -> None:
    """Whose archive and which run it is, copies and deletes that are under way, offsets that went up to where nothing
    is left to show it, and what the bucket has not been told yet."""
    for key, value in old.facts().items():
        if key != GAPS:
            new.put(key, value)
    for row in old.partitions():
        new.know(row.part, row.topic, row.delete_delay_ms)
        new.gaps.add(row.part, old.gaps.spans(row.part))
        if row.copied_to is not None:
            new.set_copied_to(row.part, row.copied_to)
        if row.log_start is not None:
            new.set_log_start(row.part, row.log_start)
    for topic in old.topics(dirty=True):
        new.set_topic(topic)
    there = _of(new, CopyState.COPY_FINISHED)
    for which, segment in _of(old, CopyState.COPY_STARTED).items():
        if which not in there:
            new.started(segment)
    for segment in old.in_state(CopyState.DELETE_STARTED):
        new.deleting(segment, due_ms=segment.due_ms)


def put_in_place(disk: Disk, new: Path, old: Path) -> Path | None:
    """*new* becomes the catalog; where the old one lies now, if there was any. A start that is cut off in between finds
    none, and makes it again. Raises OSError."""
    kept = set_aside(old, "before") if old.exists() else None
    disk.replace(new, old)
    disk.fsync_dir(old.parent)
    return kept
