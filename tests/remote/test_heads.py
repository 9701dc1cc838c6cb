"""Heads, topic files and the archive id: changed by compare-and-swap, never by a loser."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kit.clock import FakeClock
from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote import archive_id, heads, topics
from tierd.remote.archive_id import Archive
from tierd.remote.documents import NewerFormat
from tierd.remote.errors import ClaimLost, WrongBucket
from tierd.remote.heads import HEAD, Gap, Head, HeadEntry, StoredHead
from tierd.remote.keys import Keys
from tierd.remote.manifest import EpochStart
from tierd.remote.memory import MemoryStore
from tierd.remote.topics import TopicFile

KEYS = Keys("tier/")
TOPIC_ID = Uuid(bytes(range(16)))


def entry(base: int, run: int = 1) -> HeadEntry:
    return HeadEntry(
        base=base,
        next_base=base + 10,
        segment_id=Uuid(bytes([run, base]) * 8),
        size_bytes=100,
        index_sizes=(8, 12, 10, 8),
        largest_timestamp_ms=5,
        log_crc=1,
        epochs=(EpochStart(3, base),),
    )


def head(epoch: int = 3) -> Head:
    return Head(
        topic="t",
        topic_id=TOPIC_ID,
        partition=1,
        epoch=epoch,
        incarnation=Uuid(bytes(16)),
        updated_ms=1,
        lineage=(EpochStart(epoch, 0),),
        gaps=(Gap(start=5, stop=6, reason="lost"),),
    )


def adding(new: HeadEntry, epoch: int = 3) -> Callable[[Head | None], Head]:
    def change(old: Head | None) -> Head:
        now = old or head()
        entries = {one.base: one for one in (*now.entries, new)}
        copied_to = max(one.next_base for one in entries.values())
        return replace(now, epoch=epoch, copied_to=copied_to, entries=tuple(entries[base] for base in sorted(entries)))

    return change


def update(store: MemoryStore, change: Callable[[Head | None], Head], known: StoredHead | None = None) -> StoredHead:
    return heads.update_head(store, KEYS, change, topic="t", topic_id=TOPIC_ID, partition=1, known=known)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(FakeClock())


def test_a_head_is_made_and_read_back(store: MemoryStore) -> None:
    assert heads.read_head(store, KEYS, "t", TOPIC_ID, 1) is None
    stored = update(store, adding(entry(0)))
    assert heads.read_head(store, KEYS, "t", TOPIC_ID, 1) == stored
    assert stored.head.copied_to == 10
    assert stored.head.names(entry(0).segment_id)
    assert [key.partition for key in heads.list_heads(store, KEYS)] == [1]


def test_two_writers_of_one_epoch_both_get_through(store: MemoryStore) -> None:
    first = update(store, adding(entry(0)))
    update(store, adding(entry(10)), known=first)
    last = update(store, adding(entry(20)), known=first)
    assert [e.base for e in last.head.entries] == [0, 10, 20]


def test_an_older_epoch_cannot_write_over_a_newer_head(store: MemoryStore) -> None:
    mine = update(store, adding(entry(0), epoch=3))
    update(store, adding(entry(10), epoch=4))
    with pytest.raises(ClaimLost, match="epoch 4"):
        update(store, adding(entry(20), epoch=3), known=mine)


def test_an_unchanged_head_is_not_written(store: MemoryStore) -> None:
    stored = update(store, adding(entry(0)))
    writes: list[str] = []
    store.before = lambda operation, key: writes.append(operation)
    assert update(store, lambda old: old or head(), known=stored) == stored
    assert writes == []


def test_endless_contention_ends(store: MemoryStore) -> None:
    update(store, adding(entry(0)))
    runs = iter(range(1, 100))

    def meddle(operation: str, key: str) -> None:
        if operation == "put":
            store.keep(key, HEAD.encode(replace(head(), updated_ms=next(runs))), None)

    store.before = meddle
    with pytest.raises(ClaimLost, match="somebody else"):
        update(store, adding(entry(10)))


def test_a_newer_format_is_refused_and_unknown_fields_are_not(store: MemoryStore) -> None:
    raw = HEAD.encode(head())
    assert raw.startswith(b'{"version":1,')
    with pytest.raises(NewerFormat, match="format version 2"):
        HEAD.parse(raw.replace(b'"version":1', b'"version":2'), "x")
    assert HEAD.parse(raw.replace(b'"version":1', b'"version":1,"later":[]'), "x") == head()
    for size in range(len(raw)):
        with pytest.raises(CorruptFile):
            HEAD.parse(raw[:size], "x")


def topic_file(**changes: object) -> TopicFile:
    made = TopicFile(topic="t", topic_id=TOPIC_ID, partitions=3, config={"retention.ms": "-1"}, created_ms=1, epoch=3)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_topic_files(store: MemoryStore) -> None:
    assert topics.read_topic(store, KEYS, "t", TOPIC_ID) is None
    assert topics.put_topic(store, KEYS, topic_file()) == topic_file()
    assert topics.put_topic(store, KEYS, topic_file(partitions=2, epoch=4)) == topic_file(epoch=4)
    assert [(one.topic, one.topic_id) for one in topics.list_topic_keys(store, KEYS)] == [("t", TOPIC_ID)]
    with pytest.raises(ClaimLost):
        topics.put_topic(store, KEYS, topic_file())


def test_a_tombstone_stays(store: MemoryStore) -> None:
    topics.put_topic(store, KEYS, topic_file())
    dead = topics.put_topic(store, KEYS, topic_file(deleted_ms=99))
    assert dead.deleted_ms == 99
    assert topics.put_topic(store, KEYS, topic_file(epoch=8)) == dead
    assert topics.read_topic(store, KEYS, "t", TOPIC_ID) == dead


def test_the_archive_id_is_made_once(store: MemoryStore) -> None:
    one, two = Archive(archive_id=Uuid(bytes(16)), created_ms=1), Archive(archive_id=TOPIC_ID, created_ms=2)
    assert archive_id.read_archive(store, KEYS) is None
    assert archive_id.create_archive(store, KEYS, one) == one
    assert archive_id.create_archive(store, KEYS, two) == one
    archive_id.check_archive(one, one.archive_id, "file:x")
    archive_id.check_archive(one, None, "file:x")
    archive_id.check_archive(None, None, "file:x")
    for found in (one, None):
        with pytest.raises(WrongBucket, match="file:x"):
            archive_id.check_archive(found, two.archive_id, "file:x")
