"""A partition that no bucket has, made of batches that the restore itself has written: one segment, as after a stop."""

from collections.abc import Sequence
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition, Uuid
from tierd.storage import names
from tierd.storage.compaction.unfinished import end_of
from tierd.storage.epochs import EpochEntry, encode_epochs
from tierd.storage.header import parse_header
from tierd.storage.indexing import IndexBuilder
from tierd.storage.metadata import encode_partition_metadata
from tierd.storage.names import Suffix, log_file, partition_directory, segment_file
from tierd.storage.snapshot import encode_snapshot
from tierd.tiering.restore.partition import under_way

_INTERVAL_BYTES = 4096
EPOCH = 0
"""The leader epoch of its batches."""


def make_partition(disk: Disk, root: Path, name: TopicPartition, topic_id: Uuid, batches: Sequence[bytes]) -> int:
    """Make its directory in *root*, durable with its name, out of *batches* from offset 0 on; what an earlier run has
    made stays. The offset after the last batch. Raises DiskFull, OSError."""
    folder, final = under_way(root, name, topic_id), root / partition_directory(name)
    if final.exists():
        return end_of(final / log_file(0), 0)
    builder, end, position = IndexBuilder(0), 0, 0
    for raw in batches:
        header = parse_header(raw)
        builder.note(position, len(raw), header.last_offset, header.max_timestamp_ms, _INTERVAL_BYTES)
        position, end = position + len(raw), header.next_offset
    builder.note_time()
    disk.mkdir(folder)
    for file, content in (
        (segment_file(0, Suffix.LOG), b"".join(batches)),
        (segment_file(0, Suffix.INDEX), builder.offsets.to_bytes()),
        (segment_file(0, Suffix.TIME_INDEX), builder.times.to_bytes()),
        (segment_file(end, Suffix.SNAPSHOT), encode_snapshot([])),
        (names.LEADER_EPOCH_CHECKPOINT, encode_epochs([EpochEntry(EPOCH, 0)])),
        (names.PARTITION_METADATA, encode_partition_metadata(topic_id)),
    ):
        disk.write_new(folder / file, content)
        disk.fsync_file(folder / file)
    disk.fsync_dir(folder)
    disk.replace(folder, final)
    disk.fsync_dir(root)
    return end
