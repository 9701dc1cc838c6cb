"""Looks at a bucket that refuses every write: what is shown of it, and what changes from one look to the next."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from kit.clock import FakeClock
from kit.golden import golden
from kit.tiers import until
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import MAX_PARTITIONS
from tierd.remote import crc
from tierd.remote.archive_id import Archive, create_archive
from tierd.remote.errors import WrongBucket
from tierd.remote.heads import HEAD, Head, update_head
from tierd.remote.keys import Keys
from tierd.remote.manifest import EpochStart
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.remote.readonly import ReadOnlyStore, WriteRefused
from tierd.remote.topics import TOPIC, TopicFile, put_topic
from tierd.remote.view import ArchivedPartition, ArchivedTopic
from tierd.tiering.archive.keeper import News
from tierd.tiering.archive.survey import Changes, Survey
from tierd.tiering.catalog import Catalog
from tierd.tiering.intake import entry_of

KEYS = Keys("tier/")
PLAIN = Uuid.parse("pysNnPZjQveUrPTnyXRpQQ")
PART = PartitionId(PLAIN, 0)
END = 240


@dataclass(frozen=True)
class Seen:
    topics: dict[Uuid, ArchivedTopic]
    changes: Changes

    @property
    def gone(self) -> tuple[Uuid, ...]:
        return tuple(self.changes.gone)

    @property
    def rearranged(self) -> tuple[PartitionId, ...]:
        return tuple(self.changes.rearranged)


class Looking:
    """A recorded bucket in memory, and a survey of it that can only read."""

    def __init__(self, root: Path, variant: str = "plain") -> None:
        self.store = MemoryStore(FakeClock())
        folder = golden("aiven") / f"bucket-{variant}"
        for path in sorted(folder.rglob("*.*")):
            self.put(path.relative_to(folder).as_posix(), path.read_bytes())
        self.catalog = Catalog.open(root / "catalog.sqlite")
        self.survey = self.anew()
        self.gets: list[str] = []
        self.store.before = lambda operation, key: self.gets.append(key) if operation.startswith("get") else None

    def anew(self) -> Survey:
        """As a tierer that has just been started; the catalog stays."""
        return Survey(Bucket(ReadOnlyStore(self.store), KEYS, "memory:"), self.catalog)

    def put(self, key: str, data: bytes) -> None:
        self.store.put(key, data, crc32c=crc.crc32c(data))

    def look(self) -> "Seen":
        self.gets.clear()
        return Seen(self.survey.look(), self.survey.changes())

    def topic(self) -> ArchivedTopic:
        (topic,) = self.look().topics.values()
        return topic

    def part(self) -> ArchivedPartition:
        return self.topic().partitions[0]

    def keys(self, base: int) -> list[str]:
        """Those of the segment at *base*: indexes, log, manifest."""
        return sorted(info.key for info in self.store.list("tier/") if f"/{base:020d}-" in info.key)

    def take_away(self, *keys: str) -> dict[str, bytes]:
        kept = {key: self.store.get(key) for key in keys}
        self.store.delete(keys)
        return kept

    def put_back(self, kept: dict[str, bytes]) -> None:
        for key, data in kept.items():
            self.put(key, data)

    def copy_as(self, topic_id: Uuid, *, written_ms: int) -> None:
        """All of it once more, under another id of the same name."""
        for info in list(self.store.list("tier/plain-")):
            data = self.store.get(info.key)
            if info.key.endswith(".rsm-manifest"):
                document = json.loads(data)
                metadata = document["remoteLogSegmentMetadata"]
                metadata["remoteLogSegmentId"]["topicIdPartition"]["topicId"] = str(topic_id)
                metadata["eventTimestampMs"] = written_ms
                data = json.dumps(document).encode()
            self.put(info.key.replace(str(PLAIN), str(topic_id)), data)


def head_of(looking: Looking) -> Head:
    """As tierd would write it, of the segments that were seen."""
    entries = tuple(entry_of(row) for row in looking.catalog.segments(PART))
    return Head(
        topic="plain", topic_id=PLAIN, partition=0, epoch=3, incarnation=PLAIN, updated_ms=0, copied_to=END,
        entries=entries,
    )  # fmt: skip


@pytest.fixture
def looking(tmp_path: Path) -> Iterator[Looking]:
    made = Looking(tmp_path)
    yield made
    made.catalog.close()


def test_a_bucket_of_aivens_plugin_is_shown_as_kafka_would(looking: Looking) -> None:
    topic = looking.topic()
    assert (topic.name, topic.topic_id, dict(topic.config)) == ("plain", PLAIN, {})
    (part,) = topic.partitions
    assert (part.log_start, part.readable_to, part.log_end) == (0, END, END)
    assert part.epochs == (EpochStart(0, 0), EpochStart(2, 120))
    assert (part.remote.copied_to, part.remote.lost, part.remote.leader_epoch) == (END, (), 2)
    assert part.remote.size_bytes == sum(info.size for info in looking.store.list("tier/") if info.key.endswith(".log"))


def test_what_has_not_changed_is_not_asked_for_again(looking: Looking) -> None:
    first = looking.look()
    assert looking.gets
    again = looking.look()
    assert (again.topics, again.gone, again.rearranged) == (first.topics, (), ())
    assert [key for key in looking.gets if not key.endswith("archive.json")] == []
    looking.survey = looking.anew()
    assert looking.look().topics == first.topics
    assert [key for key in looking.gets if not key.endswith("archive.json")] == [], "the catalog knows it"


def test_new_segments_come_and_old_ones_go(looking: Looking) -> None:
    kept = looking.take_away(*looking.keys(180))
    assert looking.part().log_end == 180
    looking.put_back(kept)
    found = looking.look()
    assert found.topics[PLAIN].partitions[0].log_end == END
    assert (found.gone, found.rearranged) == ((), ())
    oldest = looking.catalog.covering(PART, 0)
    assert oldest is not None
    looking.take_away(*looking.keys(0))
    found = looking.look()
    assert found.gone == (oldest.segment_id,)
    assert found.rearranged == (PART,)
    assert found.topics[PLAIN].partitions[0].log_start == 60
    assert looking.catalog.covering(PART, 0) is None


def test_a_manifest_that_was_written_again_is_no_gap(looking: Looking) -> None:
    """As when its segment has moved to another key."""
    looking.look()
    *_, manifest = looking.keys(60)
    looking.put(manifest, json.dumps(json.loads(looking.store.get(manifest)), indent=1).encode())
    assert looking.part().remote.lost == ()
    assert manifest in looking.gets
    looking.survey = looking.anew()
    assert looking.part().remote.lost == ()
    assert manifest not in looking.gets


def test_a_manifest_without_its_data_is_a_gap(looking: Looking) -> None:
    _, log, _ = looking.keys(60)
    kept = looking.take_away(log)
    part = looking.part()
    assert (part.log_start, part.log_end, part.remote.lost) == (0, END, ((60, 120),))
    assert looking.catalog.covering(PART, 60) is None
    looking.put_back(kept)
    assert looking.part().remote.lost == ()
    assert looking.catalog.covering(PART, 60) is not None


def test_a_segment_that_loses_its_data_later_is_a_gap_from_then_on(looking: Looking) -> None:
    assert looking.part().remote.lost == ()
    _, log, _ = looking.keys(60)
    kept = looking.take_away(log)
    found = looking.look()
    assert found.topics[PLAIN].partitions[0].remote.lost == ((60, 120),)
    assert len(found.gone) == 1
    looking.put_back(kept)
    assert looking.part().remote.lost == ()


def test_a_gap_at_the_end_keeps_the_end(looking: Looking) -> None:
    indexes, log, _ = looking.keys(180)
    looking.take_away(indexes, log)
    part = looking.part()
    assert (part.readable_to, part.log_end, part.remote.lost) == (180, END, ((180, END),))


def test_a_segment_without_a_manifest_does_not_exist(looking: Looking) -> None:
    *_, manifest = looking.keys(180)
    looking.take_away(manifest)
    part = looking.part()
    assert (part.log_end, part.remote.lost) == (180, ())


def test_of_two_ids_under_one_name_the_newest_has_it(looking: Looking) -> None:
    other = Uuid(bytes(16 - 1) + b"\x07")
    looking.copy_as(other, written_ms=1)
    assert {topic.name: topic.topic_id for topic in looking.look().topics.values()} == {
        "plain": PLAIN,
        f"plain.{other}": other,
    }
    looking.copy_as(other, written_ms=1 << 45)
    looking.catalog.deleting(*looking.catalog.segments(PartitionId(other, 0)))
    looking.catalog.deleted(*looking.catalog.segments(PartitionId(other, 0)))
    names = {topic.name for topic in looking.anew().look().values()}
    assert names == {"plain", f"plain.{PLAIN}"}


def test_a_look_that_fails_in_the_middle_tells_what_it_has_changed(looking: Looking) -> None:
    looking.look()
    _, log, _ = looking.keys(60)
    looking.take_away(log)
    other = Uuid(bytes(15) + b"\x07")
    looking.copy_as(other, written_ms=1)

    def refuse(operation: str, key: str) -> None:
        if operation == "get_with_info" and str(other) in key:
            until("the partition beside it", lambda: looking.catalog.covering(PART, 60) is None)
            raise RemoteUnavailable("away")

    looking.store.before = refuse
    with pytest.raises(RemoteUnavailable):
        looking.survey.look()
    changes = looking.survey.changes()
    assert (len(changes.gone), changes.rearranged) == (1, {PART})
    looking.store.before = lambda operation, key: None
    found = looking.look()
    assert len(found.topics) == 2
    assert PART not in found.rearranged


def test_an_empty_bucket_is_not_believed(looking: Looking) -> None:
    looking.look()
    looking.take_away(*[info.key for info in looking.store.list("tier/")])
    with pytest.raises(RemoteUnavailable):
        looking.look()
    assert looking.catalog.covering(PART, 0) is not None


def test_another_archive_is_refused(looking: Looking) -> None:
    create_archive(looking.store, KEYS, Archive(archive_id=Uuid(bytes(16)), created_ms=0))
    looking.look()
    looking.take_away(KEYS.archive)
    create_archive(looking.store, KEYS, Archive(archive_id=PLAIN, created_ms=0))
    with pytest.raises(WrongBucket):
        looking.look()


def test_what_tierd_keeps_beside_the_segments_counts(looking: Looking) -> None:
    """Log start of a head, ends that it knows of, the topic file's settings and partitions; and its tombstone."""
    looking.look()
    head = replace(head_of(looking), log_start=70, copied_to=300)
    update_head(looking.store, KEYS, lambda _: head, topic="plain", topic_id=PLAIN, partition=0)
    file = TopicFile(
        topic="plain", topic_id=PLAIN, partitions=3, config={"retention.ms": "1000"}, created_ms=5, epoch=3
    )
    put_topic(looking.store, KEYS, file)
    topic = looking.topic()
    assert (topic.created_ms, dict(topic.config), len(topic.partitions)) == (5, {"retention.ms": "1000"}, 3)
    part = topic.partitions[0]
    assert (part.log_start, part.readable_to, part.log_end, part.remote.lost) == (70, END, 300, ((END, 300),))
    empty = topic.partitions[2]
    assert (empty.log_start, empty.log_end, empty.remote.copied_to) == (0, 0, None)
    gone = TopicFile(topic="plain", topic_id=PLAIN, partitions=3, config={}, created_ms=5, deleted_ms=9, epoch=3)
    put_topic(looking.store, KEYS, gone)
    looking.copy_as(Uuid(bytes(15) + b"\x07"), written_ms=1)
    found = looking.look()
    assert [topic.name for topic in found.topics.values()] == ["plain"]
    assert PLAIN not in found.topics


@pytest.mark.parametrize("seed", range(4))
def test_many_looks_come_to_what_one_would(looking: Looking, tmp_path: Path, seed: int) -> None:
    """Objects come, go and come back in any order: what is shown and read never depends on what was seen before."""
    chance, away = Random(seed), dict[str, bytes]()
    if seed % 2:
        looking.look()
        update_head(looking.store, KEYS, lambda _: head_of(looking), topic="plain", topic_id=PLAIN, partition=0)
    keys = [info.key for info in looking.store.list("tier/")]
    for step in range(25):
        some = chance.sample(keys, chance.randint(1, 4))
        back = {key: away.pop(key) for key in some if key in away}
        looking.put_back(back)
        away |= looking.take_away(*(key for key in some if key not in back))
        if len(away) == len(keys):
            looking.put_back(away)
            away.clear()
        fresh = Catalog.open(tmp_path / f"{step}.sqlite")
        once = Survey(Bucket(ReadOnlyStore(looking.store), KEYS, "memory:"), fresh).look()
        if not once:  # what was there before is kept then
            fresh.close()
            continue
        assert looking.look().topics == once
        offsets = range(0, END, 20)
        assert [looking.catalog.covering(PART, at) for at in offsets] == [fresh.covering(PART, at) for at in offsets]
        fresh.close()


def test_strange_numbers_and_misplaced_documents_count_for_nothing(looking: Looking) -> None:
    """One object must not make millions of partitions, nor a copy of a head speak for another partition."""
    for key in looking.keys(0):
        looking.put(key.replace("/0/", "/4000000000/"), looking.store.get(key))
    head = Head(topic="plain", topic_id=PLAIN, partition=5, epoch=3, incarnation=PLAIN, updated_ms=0, copied_to=999)
    looking.put(KEYS.head("plain", PLAIN, 1), HEAD.encode(head))
    file = TopicFile(topic="plain", topic_id=PLAIN, partitions=4_000_000, config={}, created_ms=5, epoch=3)
    looking.put(KEYS.topic_file("other", PLAIN), TOPIC.encode(file))
    assert len(looking.topic().partitions) == 1
    put_topic(looking.store, KEYS, file)
    assert len(looking.topic().partitions) == MAX_PARTITIONS


def test_a_head_that_does_not_parse_leaves_it_to_the_segments(looking: Looking) -> None:
    looking.put(KEYS.head("plain", PLAIN, 0), b"{")
    assert looking.part().log_end == END


def test_an_answer_holds_all_that_gives_or_takes_a_name(looking: Looking) -> None:
    """And of the rest so much that nobody waits long; every change is in one."""
    topic, news = looking.topic(), News()
    ids = [Uuid(number.to_bytes(16, "big")) for number in range(120)]
    news.changed = {one: replace(topic, topic_id=one) for one in ids}
    news.renamed, news.gone = {ids[0], ids[-1]}, {PLAIN}
    seen = []
    while news.changed:
        topics, gone = news.take()
        assert gone == (() if seen else (PLAIN,))
        assert seen or [one.topic_id for one in topics[:2]] == [ids[0], ids[-1]]
        assert len(topics) <= 52
        seen += [one.topic_id for one in topics]
    assert sorted(seen) == ids
    assert news.take() == ((), ())


def test_the_store_refuses_every_write(looking: Looking) -> None:
    store = ReadOnlyStore(looking.store)
    for write in (
        lambda: store.put("k", b"", crc32c=0),
        lambda: store.begin_upload("k"),
        lambda: store.delete(["k"]),
        lambda: store.abort_upload("k", "1"),
    ):
        with pytest.raises(WriteRefused):
            write()
    assert store.head(looking.keys(0)[0]).size
