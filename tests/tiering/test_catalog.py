"""The catalog: states, look-ups, what survives closing, and what it refuses."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tierd.base.errors import StartRefused
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.indexes import IndexLayout
from tierd.remote.manifest import EpochStart
from tierd.remote.ranges import ByteRange
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState, IllegalTransition, may_become
from tierd.tiering.options import TopicState
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.segments import RemoteSegment

PART = PartitionId(Uuid(b"t" * 16), 3)
LAYOUT = IndexLayout(
    offset=ByteRange(0, 8),
    timestamp=ByteRange(8, 20),
    producer_snapshot=ByteRange(20, 30),
    leader_epoch=ByteRange(30, 40),
    transaction=None,
)


def segment(base: int, next_base: int | None = None, name: int | None = None, epoch: int = 1) -> CatalogSegment:
    return CatalogSegment(
        remote=RemoteSegment(
            part=PART,
            topic="t",
            base=base,
            next_base=base + 10 if next_base is None else next_base,
            segment_id=Uuid(bytes([base % 250 if name is None else name]) * 16),
            stem=f"t/3/{base}",
            size_bytes=100,
            indexes_bytes=40,
            log_etag="e",
            indexes_etag=None,
            log_crc=7,
            indexes_crc=None,
            layout=LAYOUT,
            largest_timestamp_ms=5,
            largest_timestamp_offset=base,
            append_ms=6,
            epochs=(EpochStart(epoch, base),),
        ),
        state=CopyState.COPY_STARTED,
        manifest_bytes=9,
        records=10,
        owner_epoch=epoch,
    )


@pytest.fixture
def catalog(tmp_path: Path):
    opened = Catalog.open(tmp_path / "catalog.sqlite")
    yield opened
    opened.close()


def test_the_table_of_states_is_kafkas() -> None:
    allowed = {(old, new) for old in CopyState for new in CopyState if may_become(old, new)}
    assert allowed - {(state, state) for state in CopyState} == {
        (CopyState.COPY_STARTED, CopyState.COPY_FINISHED),
        (CopyState.COPY_STARTED, CopyState.DELETE_STARTED),
        (CopyState.COPY_FINISHED, CopyState.DELETE_STARTED),
        (CopyState.DELETE_STARTED, CopyState.DELETE_FINISHED),
    }


def test_a_row_comes_back_as_it_went_in(tmp_path: Path) -> None:
    with_all = replace(segment(0), released_ms=None, due_ms=None)
    catalog = Catalog.open(tmp_path / "c")
    catalog.started(with_all)
    catalog.close()
    again = Catalog.open(tmp_path / "c")
    assert again.segments(PART) == [with_all]
    assert again.in_state(CopyState.COPY_STARTED) == [with_all]
    assert again.remote_partition(PART).copied_to is None
    again.finished(with_all)
    remote = again.remote_partition(PART)
    assert (remote.start, remote.copied_to, remote.size_bytes, remote.leader_epoch) == (0, 10, 100, 1)
    assert again.dirty_heads() == [PART]
    again.close()


def test_only_finished_segments_are_found(catalog: Catalog) -> None:
    for base in (0, 10, 30):
        catalog.finished(segment(base))
    catalog.started(segment(40))
    assert [catalog.covering(PART, at) is not None for at in (0, 9, 10, 25, 39, 40)] == [
        True,
        True,
        True,
        False,
        True,
        False,
    ]
    after = catalog.next_after(PART, 20)
    assert after is not None
    assert after.base == 30
    assert catalog.next_after(PART, 31) is None
    assert [one.base for one in catalog.in_range(PART, 9, 31)] == [0, 10, 30]
    assert [one.base for one in catalog.in_range(PART, 10, 30)] == [10]
    catalog.deleting(replace(segment(0), state=CopyState.COPY_FINISHED))
    assert catalog.covering(PART, 0) is None


def test_the_newer_of_two_that_overlap_is_preferred(catalog: Catalog) -> None:
    catalog.finished(segment(0, 30), segment(20, 40))
    found = catalog.covering(PART, 25)
    assert found is not None
    assert found.base == 20


def test_illegal_steps_change_nothing(catalog: Catalog) -> None:
    row = segment(0)
    catalog.finished(row)
    catalog.deleting(row)
    with pytest.raises(IllegalTransition, match="DELETE_STARTED cannot become COPY_FINISHED"):
        catalog.finished(row)
    assert [one.state for one in catalog.segments(PART)] == [CopyState.DELETE_STARTED]
    catalog.deleted(row)
    catalog.deleted(row)
    assert catalog.segments(PART) == []
    assert catalog.remote_partition(PART).copied_to == 10  # stays when every segment is gone


def test_released_segments_count_as_going(catalog: Catalog) -> None:
    for base in (0, 10, 20):
        catalog.finished(segment(base))
    assert catalog.set_log_start(PART, 15)
    assert not catalog.set_log_start(PART, 12)
    assert catalog.release(PART, 15, now_ms=1000) == 1
    assert catalog.release(PART, 15, now_ms=2000) == 0
    remote = catalog.remote_partition(PART)
    assert (remote.start, remote.size_bytes, remote.deleting_bytes, remote.log_start) == (10, 200, 100, 15)
    assert catalog.releases() == [PART]
    assert catalog.released_before(PART, 999) == []
    assert [one.remote.base for one in catalog.released_before(PART, 1000)] == [0]


def test_topics_are_written_once_and_stay_deleted(catalog: Catalog) -> None:
    alive = TopicState(topic="t", topic_id=PART.topic_id, partitions=1, config={"a": "b"}, created_ms=1)
    assert catalog.set_topic(alive)
    assert catalog.topics(dirty=True) == [alive]
    catalog.topic_written(alive)
    assert not catalog.set_topic(alive)
    deleted = replace(alive, deleted_ms=5)
    assert catalog.set_topic(deleted)
    assert catalog.set_topic(alive)  # the tombstone is still to be written
    assert catalog.topics(dirty=True) == [deleted]
    catalog.topic_written(alive)
    assert catalog.is_dirty(PART.topic_id)
    catalog.topic_written(deleted)
    assert not catalog.set_topic(alive)
    assert catalog.topics() == [deleted]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    Catalog.open(tmp_path / "c").close()
    db = sqlite3.connect(tmp_path / "c")
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StartRefused, match="newer tierd"):
        Catalog.open(tmp_path / "c")
