"""Offsets of groups as a broker keeps them: the partitions of `__consumer_offsets`, made by a restore."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tierd.base.clock import SystemClock
from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition
from tierd.broker.groups.codec import CommitKey, encode_commit, encode_commit_key
from tierd.broker.groups.export import commit_of
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.key_hash import partition_of
from tierd.broker.registry import TopicRow
from tierd.config.model import Settings
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.tiering.restore.fresh import EPOCH, make_partition
from tierd.tiering.restore.groups import Clamped
from tierd.tiering.restore.journal import Journal

_A_BATCH = 100


def offsets_topic(settings: Settings, begun: Journal) -> TopicRow:
    """The topic that they are kept in."""
    assert begun.groups_id is not None
    return TopicRow(
        id=begun.groups_id,
        name=OFFSETS_TOPIC,
        partitions=settings.offsets_topic_partitions,
        created_ms=SystemClock().now_ms(),
    )


def write_groups(disk: Disk, root: Path, topic: TopicRow, found: Clamped) -> Mapping[TopicPartition, int]:
    """Make those of its partitions that have a group; their ends. Raises DiskFull, OSError."""
    records: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    times = {one.commit_ms for group in found.groups for one in group.offsets}
    for group in found.groups:
        for one in group.offsets:
            key = encode_commit_key(CommitKey(group.group, one.topic, one.partition))
            records[partition_of(group.group, topic.partitions)].append((key, encode_commit(commit_of(one))))
    now_ms = max(times, default=0)
    ends = {}
    for number, rows in sorted(records.items()):
        name = TopicPartition(topic.name, number)
        ends[name] = make_partition(disk, root, name, topic.id, _batches(rows, now_ms))
    return ends


def _batches(rows: Sequence[tuple[bytes, bytes]], now_ms: int) -> list[bytes]:
    return [
        encode_batch(
            [Record(start + i, now_ms, key, value) for i, (key, value) in enumerate(rows[start : start + _A_BATCH])],
            leader_epoch=EPOCH,
        )
        for start in range(0, len(rows), _A_BATCH)
    ]


def group_facts(found: Clamped | None) -> dict[str, Any] | None:
    """For --json."""
    if found is None:
        return None
    return {
        "taken_ms": found.taken_ms,
        "groups": len({one.group for one in found.groups}),
        "offsets": found.offsets,
        "set_back": found.set_back,
        "dropped": found.dropped,
    }


def in_words(found: Clamped) -> str:
    count = len({one.group for one in found.groups})
    back = f", {found.set_back} set back to the end of their log" if found.set_back else ""
    return f"{found.offsets} offsets of {count} groups{back}"
