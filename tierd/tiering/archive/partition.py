"""What the objects of one partition of an archive come to: rows for readers, and what clients are shown. Blocking."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.errors import KeyMissing, NotFound
from tierd.remote.heads import Head, HeadEntry
from tierd.remote.keys import ObjectKind, SegmentName
from tierd.remote.manifest import EpochStart, parse_manifest
from tierd.remote.open import Bucket
from tierd.remote.view import ArchivedPartition, RemotePartition
from tierd.storage.epochs import parse_epochs
from tierd.tiering.archive.lineage import belongs, holes, newest, told, without_contained
from tierd.tiering.catalog import Catalog
from tierd.tiering.choice import Lineage, RunStart, choose
from tierd.tiering.intake import Found, named_row, row_of
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import fault
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.seeds import seed_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """One partition after a look at it."""

    shown: ArchivedPartition
    newest_ms: int
    """Append time of its newest segment; 0 without any."""
    gone: tuple[Uuid, ...] = ()
    """Segments that readers no longer see."""
    rearranged: bool = False
    """Readers see other segments than before, and not only new ones at the end."""


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """Takes in one partition. Any thread."""

    bucket: Bucket
    catalog: Catalog

    def take(self, part: PartitionId, listed: Sequence[Found], head: Head | None, runs: Sequence[RunStart]) -> Taken:
        """*listed*: every stem in its folder. *runs*: of the claims that name its topic. Raises RemoteUnavailable."""
        known = {row.remote.segment_id: row for row in self.catalog.segments(part)}
        rows = self._rows(listed, head, known)
        counting, lineage = self._counting(part, rows, head, runs)
        gone, rearranged = self._remember(part, rows, counting, known)
        end = self._end([found for found in listed if found.name.segment_id not in rows], counting, head)
        return Taken(
            _shown(part, counting, lineage, head, end),
            max((row.remote.append_ms for row in counting), default=0),
            gone,
            rearranged,
        )

    def _rows(
        self, listed: Sequence[Found], head: Head | None, known: dict[Uuid, CatalogSegment]
    ) -> dict[Uuid, CatalogSegment]:
        """Segments that are whole, and ranges without records, which only a head tells."""
        named = {entry.segment_id: entry for entry in head.entries} if head else {}
        sizes = {info.key: info.size for found in listed for info in found.objects.values()}
        rows = {}
        for found in listed:
            segment_id = found.name.segment_id
            row = known.get(segment_id)
            if row is None or fault(row, sizes) is not None or self._is_written_anew(row, found):
                row = row_of(self.bucket.store, self.bucket.keys, found, named)
            if row is not None:
                rows[segment_id] = row
        if head is not None:
            rows |= {entry.segment_id: self._named(head, entry) for entry in named.values() if not entry.size_bytes}
        return rows

    def _is_written_anew(self, row: CatalogSegment, found: Found) -> bool:
        """Whether somebody has put its objects there once more, as a copy of the whole bucket does, or may have moved
        it to another key."""
        log_info, indexes = found.objects[ObjectKind.LOG], found.objects[ObjectKind.INDEXES]
        if row.remote.key_id is not None and row.remote.key_id not in self.bucket.ring.ids:
            return True
        return (row.remote.log_etag or "", row.remote.indexes_etag or "") != (log_info.etag, indexes.etag)

    def _named(self, head: Head, entry: HeadEntry) -> CatalogSegment:
        name = SegmentName(head.topic, head.topic_id, head.partition, entry.base, entry.segment_id)
        return named_row(self.bucket.keys, name, entry)

    def _counting(
        self, part: PartitionId, rows: dict[Uuid, CatalogSegment], head: Head | None, runs: Sequence[RunStart]
    ) -> tuple[list[CatalogSegment], tuple[EpochStart, ...]]:
        """Ascending; and the epochs of their history. What tierd wrote says itself what counts, else the epochs do."""
        if head is None and not runs:
            last = newest(rows.values())
            epochs = () if last is None else self._epochs(part, list(rows.values()), last)
            return without_contained(row for row in rows.values() if belongs(row, epochs)), epochs
        entries = head.entries if head else ()
        # What the head names keeps its range, whole or not: nothing else stands for it.
        missing = [self._named(head, one) for one in entries if head and one.segment_id not in rows]
        lineage = Lineage(
            runs=runs,
            head_epoch=head.epoch if head else None,
            named=frozenset(one.segment_id for one in entries),
            faulty=frozenset(row.remote.segment_id for row in missing),
        )
        chosen = choose([*rows.values(), *missing], lineage).counting
        counting = [row for row in chosen if row.remote.segment_id in rows]
        last = newest(row for row in counting if row.remote.size_bytes)
        return counting, () if last is None else self._epochs(part, counting, last)

    def _epochs(
        self, part: PartitionId, rows: Sequence[CatalogSegment], last: CatalogSegment
    ) -> tuple[EpochStart, ...]:
        """Those that *last* carries, from log start to its end; kept, for they never change."""
        key, segment_id = f"epochs/{part}", str(last.remote.segment_id)
        kept = json.loads(self.catalog.get(key) or "{}")
        if kept.get("segment") == segment_id:
            return tuple(EpochStart(epoch, start) for epoch, start in kept["epochs"])
        others = sorted((row.remote for row in rows if row is not last), key=lambda one: one.base)
        try:
            seed = seed_of(self.bucket, [*others, last.remote])
        except KeyMissing as error:  # what is not encrypted must do until it is there
            log.warning("epochs of a partition are those of its manifests: %s", error)
            return told(rows)
        found = [(entry.epoch, entry.start_offset) for entry in parse_epochs(seed.leader_epochs)]
        self.catalog.put(key, json.dumps({"segment": segment_id, "epochs": found}))
        return tuple(EpochStart(epoch, start) for epoch, start in found)

    def _remember(
        self,
        part: PartitionId,
        rows: dict[Uuid, CatalogSegment],
        counting: Sequence[CatalogSegment],
        known: dict[Uuid, CatalogSegment],
    ) -> tuple[tuple[Uuid, ...], bool]:
        """Let the catalog show *counting* to readers, and keep the others of *rows* out of their sight."""
        wanted = {row.remote.segment_id for row in counting}
        seen = {key: row for key, row in known.items() if row.state is CopyState.COPY_FINISHED}
        hidden = [row for key, row in known.items() if key not in seen and (key in wanted or key not in rows)]
        leaving = [row for key, row in seen.items() if key not in wanted]
        anew = [row for row in counting if _differs(row, seen.get(row.remote.segment_id))]
        aside = [row for key, row in rows.items() if key not in wanted and key not in known]
        if leaving or aside:
            self.catalog.deleting(*leaving, *aside)
        over = [*hidden, *(row for row in leaving if row.remote.segment_id not in rows)]
        if over:
            self.catalog.deleted(*over)
        new = [row for row in counting if row.remote.segment_id not in seen]
        if new or anew:
            self.catalog.finished(*new, *anew)
        end = max((row.remote.next_base for row in seen.values()), default=0)
        early = any(row.remote.base < end for row in new)
        return tuple(row.remote.segment_id for row in (*leaving, *anew)), bool(leaving) or early

    def _end(self, broken: Sequence[Found], counting: Sequence[CatalogSegment], head: Head | None) -> int:
        """The copied end: behind the last segment that was ever committed, also when its data is gone."""
        end = counting[-1].remote.next_base if counting else 0
        if head is not None:
            return max(end, head.copied_to or 0, head.log_start)
        for found in broken:
            if ObjectKind.MANIFEST in found.objects and found.name.base >= end:
                end = max(end, self._end_of(found))
        return end

    def _end_of(self, found: Found) -> int:
        key = self.bucket.keys.segment(found.name, ObjectKind.MANIFEST)
        try:
            return parse_manifest(self.bucket.store.get(key), key).next_base
        except (NotFound, CorruptFile) as error:
            log.warning("a manifest says nothing: %s", error)
            return 0


def _differs(row: CatalogSegment, seen: CatalogSegment | None) -> bool:
    return seen is not None and (seen.remote, seen.manifest_bytes) != (row.remote, row.manifest_bytes)


def _shown(
    part: PartitionId, counting: Sequence[CatalogSegment], epochs: tuple[EpochStart, ...], head: Head | None, end: int
) -> ArchivedPartition:
    first = counting[0].remote.base if counting else end
    log_start = first if head is None else head.log_start
    here = [row.remote for row in counting if row.remote.next_base > log_start]
    remote = RemotePartition(
        id=part,
        start=here[0].base if here else None,
        copied_to=end if counting or end else None,
        log_start=log_start,
        size_bytes=sum(one.size_bytes for one in here),
        leader_epoch=epochs[-1].epoch if epochs else None,
        lost=tuple(holes(counting, log_start, end)),
    )
    readable_to = max(here[-1].next_base, log_start) if here else log_start
    return ArchivedPartition(remote=remote, log_start=log_start, readable_to=readable_to, log_end=end, epochs=epochs)
