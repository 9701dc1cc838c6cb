"""Names are made and parsed in one place, and each comes back as it went in."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.golden import golden
from tierd.base.ids import TopicPartition
from tierd.storage import names
from tierd.storage.names import DirectoryMark, Mark, MarkedDirectory, SegmentFile, Suffix

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(names.is_topic)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 2**31 - 1))


@given(st.integers(0, names.MAX_OFFSET), st.sampled_from(Suffix), st.sampled_from(Mark))
def test_segment_files(offset: int, suffix: Suffix, mark: Mark) -> None:
    assert names.parse_segment_file(names.segment_file(offset, suffix, mark)) == SegmentFile(offset, suffix, mark)


@given(PARTITIONS)
def test_partition_directories(tp: TopicPartition) -> None:
    assert names.parse_partition_directory(names.partition_directory(tp)) == tp


@given(PARTITIONS, st.uuids(), st.sampled_from(DirectoryMark))
def test_marked_directories(tp: TopicPartition, id: UUID, mark: DirectoryMark) -> None:
    name = names.marked_directory(tp, id, mark)
    found = names.parse_marked_directory(name)
    assert len(name) <= 255
    assert found is not None
    assert (found.partition, found.id, found.mark) == (tp.partition, id.hex, mark)
    assert tp.topic.startswith(found.topic)
    assert found.topic == tp.topic or len(name) == 255
    assert names.parse_partition_directory(name) is None


@given(st.text(max_size=40))
def test_anything_else_is_none_of_ours(name: str) -> None:
    found = names.parse_segment_file(name)
    assert found is None or names.segment_file(found.offset, found.suffix, found.mark) == name
    tp = names.parse_partition_directory(name)
    assert tp is None or names.partition_directory(tp) == name


@pytest.mark.parametrize(
    "name",
    [
        "0.log",
        "00000000000000000000.LOG",
        "00000000000000000000.log.old",
        "00000000000000000000.checkpoint",
        "00000000000000000000",
        "\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0660.log",
        "99999999999999999999.log",
        "leader-epoch-checkpoint",
        "00000000000000000000.log\n",
    ],
)
def test_not_segment_files(name: str) -> None:
    assert names.parse_segment_file(name) is None


@pytest.mark.parametrize("name", ["t", "t-", "-0", "t-x", "t-01", "t-\u0663", "t/u-0", "..-0", ".-0", "a b-0"])
def test_not_partition_directories(name: str) -> None:
    assert names.parse_partition_directory(name) is None


def test_names_that_kafka_makes() -> None:
    tp = TopicPartition("a-b.c", 3)
    id = UUID("0123456789abcdef0123456789abcdef")
    assert names.log_file(50) == "00000000000000000050.log"
    assert names.index_file(50) == "00000000000000000050.index"
    assert names.time_index_file(50) == "00000000000000000050.timeindex"
    assert names.txn_index_file(50) == "00000000000000000050.txnindex"
    assert names.snapshot_file(50) == "00000000000000000050.snapshot"
    assert names.partition_directory(tp) == "a-b.c-3"
    assert names.marked_directory(tp, id, DirectoryMark.DELETE) == "a-b.c-3.0123456789abcdef0123456789abcdef-delete"
    assert names.parse_marked_directory("a-b.c-3.0123456789abcdef0123456789abcdef-stray") == MarkedDirectory(
        "a-b.c", 3, id.hex, DirectoryMark.STRAY
    )


def test_every_name_in_the_recordings_is_known() -> None:
    plain = {names.LEADER_EPOCH_CHECKPOINT, names.PARTITION_METADATA}
    for recording in ("clean", "live", "final", "killed", "recovered", "damaged", "repaired"):
        for path in (golden("kafka") / recording).iterdir():
            if path.is_dir():
                assert names.parse_partition_directory(path.name) or names.parse_marked_directory(path.name)
                unknown = [f for f in path.iterdir() if f.name not in plain and not names.parse_segment_file(f.name)]
                assert not unknown
