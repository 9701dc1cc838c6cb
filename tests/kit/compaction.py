"""Cleaning a log in a test as broker and worker do it together, and what is left of records afterwards."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tierd.base.disk import Disk
from tierd.config.topic import MIB, TopicSettings
from tierd.storage.batch import BatchHeader, walk
from tierd.storage.compaction.cleaner import Cleaner
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.storage.compaction.plan import CleanPlan
from tierd.storage.disk import PosixDisk
from tierd.storage.log import Log
from tierd.storage.records import Record, iter_records

COMPACTED = TopicSettings(
    cleanup_policy=frozenset({"compact"}),
    internal_segment_bytes=4096,
    index_interval_bytes=256,
    segment_index_bytes=2048,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
    remote_storage_enable=False,
)


def run_job(job: CleanJob, disk: Disk | None = None) -> tuple[CleanReport, list[CleanedGroup]]:
    """Write all `.cleaned` files of a job."""
    groups: list[CleanedGroup] = []
    return Cleaner(job, disk or PosixDisk(), groups.append, lambda: False).run(), groups


def flush(log: Log) -> None:
    """Only what is flushed may be cleaned."""
    job = log.unflushed()
    if job is not None:
        job.run()
        log.flushed(job)


def plan(log: Log, now_ms: int, copied_to: int | None = None) -> CleanPlan | None:
    flush(log)
    return log.compaction.plan(copied_to, now_ms)


def clean(
    log: Log,
    now_ms: int,
    *,
    copied_to: int | None = None,
    keep_deletes: bool = False,
    memory_bytes: int = MIB,
    disk: Disk | None = None,
) -> CleanReport | None:
    """One whole cleaning, if there is one to do."""
    planned = plan(log, now_ms, copied_to)
    if planned is None:
        return None
    job = log.compaction.job(
        planned, now_ms=now_ms, keep_deletes=keep_deletes, memory_bytes=memory_bytes, reserve_bytes=0
    )
    report, groups = run_job(job, disk)
    for group in groups:
        assert log.compaction.swap_in(group)
    log.compaction.flush()
    log.compaction.finished(report)
    return report


def batches(directory: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    """Every batch in the `.log` files of a partition."""
    for path in sorted(directory.glob("*.log")):
        raw = path.read_bytes()
        for position, header in walk(raw, str(path)):
            yield header, raw[position : position + header.size_bytes]


def records(directory: Path) -> list[Record]:
    """Every record, markers apart, as it is stored."""
    return [record for header, raw in batches(directory) if not header.control for record in iter_records(raw, header)]


def markers(directory: Path) -> list[int]:
    """Offsets of the control batches that hold a record."""
    return [header.base_offset for header, _ in batches(directory) if header.control and header.count]


def shapes(directory: Path) -> list[BatchHeader]:
    """The headers, without what depends on when and by whom a batch was written anew: horizon, CRC, packed size."""
    return [
        replace(
            header,
            crc=0,
            size_bytes=0 if header.codec else header.size_bytes,
            base_timestamp_ms=0 if header.delete_horizon else header.base_timestamp_ms,
        )
        for header, _ in batches(directory)
    ]
