"""The rows of `tierd status` while no daemon runs: out of registry, catalog and data directories, read only.

What only a running daemon knows is None. The log end is what a scan behind the last index entry finds good.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tierd import __version__
from tierd.base.errors import CorruptFile, TierdError, Usage
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.problems import Kind, lost_offsets
from tierd.broker.registry import Registry, TopicRow
from tierd.broker.status import untiered
from tierd.config.model import Settings
from tierd.config.resolve import TopicDefaults
from tierd.config.state_files import ARCHIVE_DATA, CATALOG, REGISTRY, SET_ASIDE
from tierd.remote.view import RemotePartition, Waiting
from tierd.storage import names
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.database import DatabaseDamaged
from tierd.storage.disk import PosixDisk
from tierd.storage.gaps import GapFile, Recorded
from tierd.storage.index import OffsetIndex
from tierd.storage.metadata import parse_meta_properties, parse_partition_metadata
from tierd.storage.scan import SegmentScan
from tierd.tiering.archive.naming import Claimant, names_of
from tierd.tiering.catalog import Catalog

STOPPED = Waiting("unknown", "tierd is not running")


@dataclass(frozen=True, slots=True)
class LocalSegment:
    base: int
    path: Path
    size_bytes: int
    append_ms: int


@dataclass(frozen=True, slots=True)
class Local:
    """What the disk has of a partition; segments by base, at least one."""

    segments: tuple[LocalSegment, ...]
    topic_id: Uuid | None
    log_start: int | None
    directory: Path


def offline_status(settings: Settings) -> dict[str, object]:
    """The same document as a running daemon's. Raises StartRefused when registry or catalog cannot be read."""
    topics, remote_url = registered(settings.state_dir / REGISTRY)
    layers = replace(settings.topic_defaults, tiering=(remote_url or settings.remote.url) is not None)
    found = {path: partitions_of(path) for path in data_dirs_of(settings)}
    errors = [why for _, why in found.values() if why is not None]
    if errors and len(errors) == len(found):
        raise errors[0]
    local = {tp: one for here, _ in found.values() for tp, one in here.items()}
    catalog_path = settings.state_dir / CATALOG
    try:
        catalog = Catalog.open(catalog_path) if catalog_path.exists() else None
    except DatabaseDamaged as error:
        raise TierdError(f"{error}; the next start makes it again") from error
    try:
        if catalog is not None and (settings.state_dir / ARCHIVE_DATA).is_dir():
            topics += archived(catalog)
        known = {row.name: row for row in topics}
        places = set(local) | {TopicPartition(row.name, number) for row in topics for number in range(row.partitions)}
        aside = settings.state_dir / SET_ASIDE
        rows = [_row(layers, tp, known.get(tp.topic), local.get(tp), catalog, aside) for tp in sorted(places)]
    finally:
        if catalog is not None:
            catalog.close()
    unknown = {"epoch": None, "claim": None, "trouble": None, "set_aside": None, "unidentified": None}
    directories = [_directory(path, len(here), why) for path, (here, why) in found.items()]
    lost = [
        {"kind": Kind.LOST.value, "where": f"{row['topic']}-{row['partition']}", "detail": lost_offsets(*gap)}
        for row in rows
        for gap in row["gaps"]
    ]
    here = {"directories": directories, "problems": lost, "partitions": rows}
    return {"version": __version__, "running": False, **unknown, **here}


def partitions_of(directory: Path) -> tuple[dict[TopicPartition, Local], OSError | None]:
    """What is there, and why it cannot be looked at."""
    try:
        return dict(_local_partitions(directory)), None
    except OSError as error:
        return {}, error


def check_there(directories: Iterable[Path]) -> None:
    """Raises Usage where one is not: a misspelt place is not an empty one."""
    for path in directories:
        if not path.is_dir():
            raise Usage(f"{path}: there is no such directory")


def _directory(path: Path, partitions: int, problem: OSError | None) -> dict[str, object]:
    """One row of `directories`, as a running daemon gives it."""
    try:
        meta = parse_meta_properties((path / names.META_PROPERTIES).read_bytes())
        stat = os.statvfs(path)
        known, free = str(meta.directory_id), stat.f_bavail * stat.f_frsize
    except (OSError, CorruptFile):
        known, free = None, None
    return {
        "path": str(path),
        "id": known,
        "state": "offline" if problem else "online",
        "reason": str(problem) if problem else None,
        "free_bytes": free,
        "partitions": partitions,
    }


def data_dirs_of(settings: Settings) -> tuple[Path, ...]:
    if not settings.data_dirs and (settings.state_dir / ARCHIVE_DATA).is_dir():
        return (settings.state_dir / ARCHIVE_DATA,)
    if settings.data_dirs or settings.state_dir.suffix != ".tierd":
        return settings.data_dirs
    return (settings.state_dir.with_suffix(""),)  # the place that the default state directory belongs to


def stored_url(settings: Settings) -> str | None:
    """The bucket that a state directory belongs to; None when it knows of none."""
    return registered(settings.state_dir / REGISTRY)[1]


def archived(catalog: Catalog) -> list[TopicRow]:
    """The topics of an archive, which no registry has: as many partitions as its catalog knows, names as it serves
    them."""
    counts: dict[tuple[str, Uuid], int] = {}
    newest: dict[Uuid, int] = {}
    for row in catalog.partitions():
        topic_id, last = row.part.topic_id, catalog.last(row.part)
        counts[row.topic, topic_id] = max(row.part.partition + 1, counts.get((row.topic, topic_id), 0))
        newest[topic_id] = max(newest.get(topic_id, 0), last.remote.append_ms if last else 0)
    called = names_of(Claimant(topic, topic_id, newest[topic_id]) for topic, topic_id in counts)
    return [
        TopicRow(id=topic_id, name=called[topic_id], partitions=count, created_ms=0, adopted=True)
        for (_, topic_id), count in counts.items()
    ]


def registered(path: Path) -> tuple[list[TopicRow], str | None]:
    """The topics and the bucket's URL."""
    if not path.exists():
        return [], None
    from tierd.daemon.state import stored_remote  # heavy: everything that runs

    registry = Registry.open(path)
    try:
        return registry.topics(), stored_remote(registry)
    finally:
        registry.close()


def _local_partitions(directory: Path) -> Iterator[tuple[TopicPartition, Local]]:
    starts = _checkpoint(directory / names.LOG_START_CHECKPOINT)
    for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
        tp = names.parse_partition_directory(entry.name)
        segments = tuple(_segments(Path(entry.path))) if tp and entry.is_dir() else ()
        if tp and segments:
            yield tp, Local(segments, _topic_id(Path(entry.path)), starts.get(tp), directory)


def _checkpoint(path: Path) -> Mapping[TopicPartition, int]:
    try:
        return parse_checkpoint(path.read_bytes(), str(path))
    except (FileNotFoundError, CorruptFile):
        return {}  # only the daemon's recovery may judge it


def _topic_id(directory: Path) -> Uuid | None:
    path = directory / names.PARTITION_METADATA
    try:
        return parse_partition_metadata(path.read_bytes(), str(path))
    except (FileNotFoundError, CorruptFile):
        return None


def _segments(directory: Path) -> list[LocalSegment]:
    found = []
    for entry in os.scandir(directory):
        file = names.parse_segment_file(entry.name)
        if file is not None and file == names.SegmentFile(file.offset, names.Suffix.LOG):
            stat = entry.stat()
            found.append(LocalSegment(file.offset, Path(entry.path), stat.st_size, stat.st_mtime_ns // 1_000_000))
    return sorted(found, key=lambda segment: segment.base)


def log_end_of(last: LocalSegment) -> int:
    """The offset after the last good batch: a scan from the last index entry on."""
    index_path = last.path.with_name(names.index_file(last.base))
    entry = OffsetIndex(index_path.read_bytes(), last.base).last if index_path.exists() else None
    with last.path.open("rb") as log:
        for start in (entry.position, 0) if entry and 0 <= entry.position < last.size_bytes else (0,):
            scan = SegmentScan(
                lambda position, length: os.pread(log.fileno(), length, position),
                last.size_bytes,
                last.base,
                str(last.path),
                start=start,
            )
            for _ in scan:
                pass
            if scan.good_bytes > start:
                break  # the entry did lead to a batch
    return scan.next_offset


def _row(
    layers: TopicDefaults,
    tp: TopicPartition,
    topic: TopicRow | None,
    local: Local | None,
    catalog: Catalog | None,
    set_aside: Path,
) -> dict[str, Any]:
    topic_id = topic.id if topic else local.topic_id if local else None
    remote = catalog.remote_partition(PartitionId(topic_id, tp.partition)) if catalog and topic_id else None
    copied_to = remote.copied_to if remote else None
    log_end = log_end_of(local.segments[-1]) if local else copied_to
    adopted = topic is None or topic.adopted
    resolved = layers.resolve(tp.topic, topic.config if topic else {}, adopted=adopted)
    tiered = resolved.remote_storage_enable
    waiting = _waiting(copied_to, log_end) if tiered else untiered(tp.topic, has_tier=layers.tiering)
    log_start = log_start_of(local, remote)
    return {
        "topic": tp.topic,
        "topic_id": str(topic_id) if topic_id else None,
        "partition": tp.partition,
        "directory": str(local.directory) if local else None,
        "offline": None,
        "log_start": log_start,
        "local_start": max(local.segments[0].base, log_start or 0) if local else log_end,
        "copied_to": copied_to,
        "log_end": log_end,
        "gaps": _gaps(set_aside, tp, topic_id),
        "local_bytes": sum(segment.size_bytes for segment in local.segments) if local else 0,
        "remote_bytes": remote.size_bytes if remote else None if layers.tiering else 0,
        "oldest_uncopied_ms": _oldest_uncopied_ms(local, copied_to, log_end) if tiered else None,
        "compaction": None,  # only the daemon knows how far it has come
        "waiting": asdict(waiting) if waiting else None,
    }


def _gaps(set_aside: Path, tp: TopicPartition, topic_id: Uuid | None) -> list[list[int]]:
    recorded = GapFile(set_aside, PosixDisk(), tp, topic_id).load() if topic_id else Recorded()
    return [list(gap) for gap in (*recorded.found, *recorded.lost)]


def log_start_of(local: Local | None, remote: RemotePartition | None) -> int | None:
    """The largest of what disk and bucket were told; else where the data begins."""
    told = (local.log_start if local else None, remote.log_start if remote else None)
    begins = (local.segments[0].base if local else None, remote.start if remote else None)
    latest = max((offset for offset in told if offset is not None), default=None)
    return min((offset for offset in begins if offset is not None), default=None) if latest is None else latest


def _oldest_uncopied_ms(local: Local | None, copied_to: int | None, log_end: int | None) -> int | None:
    if local is None or log_end is None or (copied_to or 0) >= log_end:
        return None
    ends = [*(segment.base for segment in local.segments[1:]), log_end]
    uncopied = [s for s, end in zip(local.segments, ends, strict=True) if end > (copied_to or 0) and s.size_bytes]
    return max(0, time.time_ns() // 1_000_000 - uncopied[0].append_ms) if uncopied else None


def _waiting(copied_to: int | None, log_end: int | None) -> Waiting | None:
    if log_end is None or (copied_to or 0) >= log_end:
        return None
    return STOPPED
