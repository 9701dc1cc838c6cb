"""A partition directory on its way: under a name with `-delete` until it is whole, so that no broker serves a part of
it: Kafka and tierd remove such a directory when they start."""

import hashlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tierd.base.disk import Disk
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.remote.heads import Gap
from tierd.storage.compaction.unfinished import end_of
from tierd.storage.epochs import EpochEntry
from tierd.storage.lineage import Lineage
from tierd.storage.metadata import encode_partition_metadata
from tierd.storage.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    DirectoryMark,
    Mark,
    Suffix,
    log_file,
    marked_directory,
    parse_segment_file,
    partition_directory,
    segment_file,
)
from tierd.tiering.gaps import holes
from tierd.tiering.restore.plan import PartitionPlan


@dataclass(frozen=True, slots=True)
class Lost:
    """Offsets [start, stop) that the bucket does not have."""

    start: int
    stop: int
    reason: str
    accepted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A partition directory as it is now, over offsets [log_start, log_end)."""

    plan: PartitionPlan
    topic_id: Uuid
    log_start: int
    log_end: int
    size_bytes: int
    """Of its `.log` files."""
    lost: tuple[Lost, ...]


def under_way(root: Path, name: TopicPartition, topic_id: Uuid) -> Path:
    """Where a partition is made; the same in each run of one restore."""
    mine = hashlib.sha256(str(PartitionId(topic_id, name.partition)).encode()).digest()
    return root / marked_directory(name, UUID(bytes=mine[:16]), DirectoryMark.DELETE)


@dataclass(frozen=True, slots=True)
class Folder:
    """Where a partition is made in the data directory *root*."""

    root: Path
    plan: PartitionPlan
    topic_id: Uuid
    failed: dict[int, str] = field(default_factory=dict)
    """Why the segment at this base could not be made."""

    @property
    def final(self) -> Path:
        return self.root / partition_directory(self.plan.name)

    @property
    def path(self) -> Path:
        return under_way(self.root, self.plan.name, self.topic_id)

    def finish(self, disk: Disk) -> None:
        """Give it its name, durably. Raises DiskFull, OSError."""
        ends = [one.stop for one in self.plan.pieces if one.base not in self.failed]
        bases = [one.base for one in self.plan.pieces if one.base not in self.failed]
        if not bases or _end(self.path, bases[-1]) != self.plan.log_end:
            # What is written next must not get offsets that records had which are no more.
            bases.append(self.plan.log_end)
            for suffix in (Suffix.INDEX, Suffix.TIME_INDEX, Suffix.LOG):
                disk.write_new(self.path / segment_file(self.plan.log_end, suffix), b"")
        self._tidy(disk, frozenset(bases), frozenset(ends))
        lineage = Lineage(self.path, disk, [EpochEntry(one.epoch, one.start) for one in self.plan.epochs])
        lineage.cut_start(max(self.plan.log_start, bases[0]))
        lineage.save()
        disk.write_new(self.path / PARTITION_METADATA, encode_partition_metadata(self.topic_id))
        disk.fsync_file(self.path / PARTITION_METADATA)
        disk.fsync_dir(self.path)
        disk.replace(self.path, self.final)
        disk.fsync_dir(self.root)

    def _tidy(self, disk: Disk, bases: Set[int], ends: Set[int]) -> None:
        """An earlier run may have had other segments to make, and one that was cut off leaves temporary files."""
        for path in self.path.iterdir():
            file = parse_segment_file(path.name)
            if path.name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
                continue
            wanted = ends if file is not None and file.suffix is Suffix.SNAPSHOT else bases
            if file is None or file.mark is not Mark.NONE or file.offset not in wanted:
                disk.unlink(path)

    def result(self, accepted: Sequence[Gap]) -> Restored:
        """What lies there once it has its name."""
        sizes = _logs(self.final)
        last = max(sizes)
        end, start = _end(self.final, last), max(self.plan.log_start, min(sizes))
        return Restored(
            plan=self.plan,
            topic_id=self.topic_id,
            log_start=min(start, end),
            log_end=end,
            size_bytes=sum(sizes.values()),
            lost=tuple(self._lost(sizes, end, accepted)),
        )

    def _lost(self, sizes: Mapping[int, int], end: int, accepted: Sequence[Gap]) -> list[Lost]:
        found, at = [], self.plan.log_start
        here = [one for one in self.plan.pieces if one.base in sizes]
        for base, next_base in [*((one.base, one.stop) for one in here), (end, end)]:
            if at < base:
                reasons = [why for where, why in sorted(self.failed.items()) if at <= where < base]
                known = not holes([(gap.start, gap.stop) for gap in accepted], at, base)
                found.append(Lost(at, base, "; ".join(reasons) or "no segment has these offsets", known))
            at = max(at, next_base)
        return found


def _logs(folder: Path) -> dict[int, int]:
    """Size of each log by its base."""
    files = ((parse_segment_file(path.name), path) for path in folder.iterdir())
    return {file.offset: path.stat().st_size for file, path in files if file is not None and file.suffix is Suffix.LOG}


def _end(folder: Path, base: int) -> int:
    path = folder / log_file(base)
    return end_of(path, base) if path.stat().st_size else base
