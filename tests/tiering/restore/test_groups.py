"""Which group file a restore goes by, and what becomes of offsets behind the end and of topics that do not come."""

from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from kit.made_bucket import MadePartition, bucket_of
from kit.restoring import Restoring
from tierd.base.ids import TopicPartition, Uuid
from tierd.remote import crc
from tierd.remote.documents import NewerFormat
from tierd.remote.groups import GroupFile, GroupOffset, GroupOffsets, encode_groups
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.storage.batch import encode_batch
from tierd.storage.disk import PosixDisk
from tierd.storage.records import Record
from tierd.tiering.restore.fresh import make_partition
from tierd.tiering.restore.groups import clamp, find_groups

ONE = GroupOffset("t", None, 0, 3, 1, "why", 1_000)
NEW = Uuid(b"\x09" * 16)


def kept(bucket: Bucket, epoch: int, sequence: int, raw: bytes) -> None:
    assert isinstance(bucket.store, MemoryStore)
    bucket.store.put(bucket.keys.groups(epoch, sequence), raw, crc32c=crc.crc32c(raw))


def test_the_newest_file_of_that_time() -> None:
    bucket = bucket_of([])
    assert find_groups(bucket, None) is None
    for sequence, taken_ms in enumerate((100, 200, 300)):
        kept(bucket, 1, sequence, encode_groups(taken_ms, [GroupOffsets("g", (ONE,))]))
    kept(bucket, 2, 0, b"broken")
    found = {until_ms: find_groups(bucket, until_ms) for until_ms in (None, 1_000, 299, 200, 50)}
    assert {until_ms: one and one.taken_ms for until_ms, one in found.items()} == {
        None: 300,
        1_000: 300,
        299: 200,
        200: 200,
        50: 100,
    }


def test_offsets_end_with_their_logs(tmp_path: Path) -> None:
    part = MadePartition("t")
    for number in range(4):
        part.data(number, 5)
    plan = Restoring(bucket_of([(part, [(0, 20)])]), tmp_path).plan(ends={"t-0": 10})
    rows = (
        ONE,
        replace(ONE, topic_id=part.topic_id, topic="renamed", offset=10, expire_ms=5_000),
        replace(ONE, offset=11),
        replace(ONE, topic_id=NEW),
        replace(ONE, partition=1),
        replace(ONE, topic="other"),
    )
    file = GroupFile(7, (GroupOffsets("g", rows), GroupOffsets("h", rows[-1:])))
    found = clamp(file, plan, {part.topic_id: NEW}, 9_000)
    assert (found.set_back, found.dropped, found.offsets, found.taken_ms) == (1, 4, 3, 7)
    (group,) = found.groups
    moved = replace(ONE, topic_id=NEW, commit_ms=9_000)
    assert group.offsets == (
        moved,
        replace(moved, offset=10, expire_ms=13_000),
        replace(moved, offset=10, leader_epoch=None),
    )


def test_a_later_format_is_not_passed_over() -> None:
    bucket = bucket_of([])
    kept(bucket, 1, 0, encode_groups(100, []))
    kept(bucket, 1, 1, zstandard.compress(b'{"version":9,"taken_ms":1}\n{"offsets":0}\n'))
    with pytest.raises(NewerFormat):
        find_groups(bucket, None)


def test_its_partition_is_made_once(tmp_path: Path) -> None:
    name, batches = TopicPartition("__consumer_offsets", 4), [encode_batch([Record(0, 5, b"k", b"v")])]
    assert make_partition(PosixDisk(), tmp_path, name, NEW, batches) == 1
    more = [*batches, encode_batch([Record(1, 5, b"k", b"v")])]
    assert make_partition(PosixDisk(), tmp_path, name, NEW, more) == 1
    assert (tmp_path / str(name) / "00000000000000000000.log").read_bytes() == batches[0]
    assert [path.name for path in tmp_path.iterdir()] == [str(name)]
