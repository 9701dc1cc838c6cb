"""Directories made again out of buckets: every file as it was, what is lost by name, and runs that are cut off."""

import errno
import itertools
import json
import shutil
from pathlib import Path

import pytest

from kit.aiven import KEYS, VARIANTS, recorded_bucket, recorded_ring
from kit.clock import FakeClock
from kit.failing_disk import FailingDisk
from kit.golden import golden
from kit.restoring import Dying, Restoring, files
from kit.tierer_bench import KEYS as OURS
from kit.tierer_bench import Bench, drive, who
from kit.verifying import flip, replaced
from tierd.base.errors import DiskFull, RemoteUnavailable, StartRefused, Usage
from tierd.base.ids import TopicPartition
from tierd.remote.errors import KeyMissing
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.disk import PosixDisk
from tierd.storage.epochs import parse_epochs
from tierd.storage.metadata import parse_partition_metadata
from tierd.tiering.restore.journal import Asked, Journal
from tierd.tiering.restore.partition import Lost

CHECKPOINTS = {
    names.CLEAN_SHUTDOWN,
    names.LOG_START_CHECKPOINT,
    names.RECOVERY_POINT_CHECKPOINT,
    names.REPLICATION_CHECKPOINT,
}
PLAIN = TopicPartition("plain", 0)


def recorded(tmp_path: Path, variant: str = "plain", ring: KeyRing | None = None) -> tuple[Restoring, MemoryStore]:
    store, _ = recorded_bucket(variant)
    return Restoring(Bucket(store, KEYS, "memory:", ring or recorded_ring()), tmp_path), store


def keys(store: MemoryStore, base: int) -> dict[str, str]:
    """Those of the segment at *base* by their suffix."""
    found = [info.key for info in store.list("tier/") if f"/{base:020d}-" in info.key]
    return {key[key.rindex(".") :]: key for key in found}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_is_as_the_broker_had_it(tmp_path: Path, variant: str) -> None:
    restoring, store = recorded(tmp_path, variant)
    before = {info.key: info.etag for info in store.list("")}
    (restored,) = restoring()
    (plan,) = restoring.plan().partitions
    folder = restoring.to / f"{plan.name}"
    source = golden("aiven") / f"local-{variant}" / f"{plan.name}"
    made = {name for name in files(folder) if names.parse_segment_file(name)}
    for name in made:
        if (source / name).exists():
            assert (folder / name).read_bytes() == (source / name).read_bytes(), name
    bases = [one.base for one in plan.segments]
    had = {f"{base:020d}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex", ".txnindex")}
    had |= {f"{one.next_base:020d}.snapshot" for one in plan.segments}
    assert made == {name for name in had if (source / name).exists() or name in made}
    assert {f"{base:020d}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex")} <= made
    epochs = parse_epochs((folder / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
    assert epochs == [
        one
        for one in parse_epochs((source / names.LEADER_EPOCH_CHECKPOINT).read_bytes())
        if one.start_offset < plan.log_end
    ]
    assert (restored.log_start, restored.log_end, restored.lost) == (0, plan.log_end, ())
    topic_id = parse_partition_metadata((folder / names.PARTITION_METADATA).read_bytes())
    assert topic_id == restored.topic_id != plan.source.topic_id
    assert {path.name for path in restoring.to.iterdir()} == CHECKPOINTS | {folder.name}
    assert {info.key: info.etag for info in store.list("")} == before
    assert (restoring.seen[-1].bytes_done, restoring.seen[-1].segments_done) == (restoring.seen[-1].bytes, len(bases))


def checkpoint(restoring: Restoring, name: str) -> dict[TopicPartition, int]:
    return parse_checkpoint((restoring.to / name).read_bytes())


def test_a_missing_object_is_named_and_the_rest_is_there(tmp_path: Path) -> None:
    restoring, store = recorded(tmp_path)
    store.delete([keys(store, 60)[".log"]])
    (restored,) = restoring()
    (lost,) = restored.lost
    assert (lost.start, lost.stop, lost.accepted) == (60, 120, False)
    assert sorted(one for one in files(restoring.to / "plain-0") if one.endswith(".log")) == [
        f"{base:020d}.log" for base in (0, 120, 180)
    ]


def test_damage_is_named_after_a_second_try(tmp_path: Path) -> None:
    restoring, store = recorded(tmp_path)
    key = keys(store, 60)[".log"]
    replaced(store, key, lambda raw: raw[:500] + flip(raw[500:600]) + raw[600:])
    gets: list[str] = []
    store.before = lambda operation, key: gets.append(key) if operation == "get" else None
    (restored,) = restoring()
    (lost,) = restored.lost
    assert (lost.start, lost.stop) == (60, 120)
    assert "CRC" in lost.reason
    assert gets.count(key) == 2
    assert not [one for one in files(restoring.to) if one.endswith(".tmp")]


def test_offsets_are_not_given_out_again(tmp_path: Path) -> None:
    """The last segment is lost: what is written next goes behind it."""
    restoring, store = recorded(tmp_path)
    store.delete([keys(store, 180)[".indexes"]])
    (restored,) = restoring()
    assert restored.log_end == 240
    assert restored.lost == (Lost(180, 240, "no segment has these offsets"),)
    assert (restoring.to / "plain-0" / names.log_file(240)).read_bytes() == b""
    assert checkpoint(restoring, names.RECOVERY_POINT_CHECKPOINT) == {PLAIN: 240}


def test_what_is_whole_is_not_fetched_again(tmp_path: Path) -> None:
    restoring, store = recorded(tmp_path)
    last = keys(store, 180)[".log"]
    gets: list[str] = []

    def cut(operation: str, key: str) -> None:
        if operation == "get" and key == last:
            raise RemoteUnavailable("it is away")

    store.before = cut
    with pytest.raises(RemoteUnavailable):
        restoring()
    (half,) = (path.name for path in restoring.to.iterdir())
    marked = names.parse_marked_directory(half)
    assert marked is not None
    assert marked.mark is names.DirectoryMark.DELETE, "no broker serves it"
    store.before = lambda operation, key: gets.append(key) if operation == "get" and key.endswith(".log") else None
    (restored,) = restoring()
    assert gets == [last]
    assert (restored.log_end, restored.lost) == (240, ())
    whole = files(restoring.to / "plain-0")
    assert restoring()[0].topic_id == restored.topic_id
    assert (gets, files(restoring.to / "plain-0")) == ([last], whole)


def test_a_full_disk_ends_it_and_room_lets_it_go_on(tmp_path: Path) -> None:
    restoring, _ = recorded(tmp_path)
    restoring.disk = disk = FailingDisk()
    disk.fail(errno.ENOSPC, "pwrite", below=restoring.to)
    with pytest.raises(DiskFull):
        restoring()
    assert not (restoring.to / "plain-0").exists()
    disk.heal()
    (restored,) = restoring()
    assert restored.lost == ()


class Small(FailingDisk):
    """Has so little room."""

    def free_bytes(self, path: Path) -> int:
        return 20_000


def test_it_may_end_at_any_step(tmp_path: Path) -> None:
    """And whatever it had made is gone on from."""
    restoring, _ = recorded(tmp_path)
    restoring()
    whole = files(restoring.to)
    ended = 0
    for steps in itertools.count(1, 13):
        shutil.rmtree(restoring.to)
        restoring.to.mkdir()
        restoring.disk = disk = Dying(steps)
        try:
            restoring()
        except OSError:
            ended += 1
        restoring.disk = PosixDisk()
        restoring()
        assert files(restoring.to) == whole
        if disk.left >= 0:
            break
    assert ended > 5


def test_another_topic_of_the_name_is_not_taken_for_it(tmp_path: Path) -> None:
    restoring, _ = recorded(tmp_path)
    restoring()
    restoring.journal = Journal(asked=Asked(url=restoring.bucket.url))
    with pytest.raises(StartRefused, match="of another topic"):
        restoring()


def test_it_does_not_begin_without_room(tmp_path: Path) -> None:
    restoring, _ = recorded(tmp_path)
    restoring.disk = Small()
    with pytest.raises(DiskFull, match=r"20000 bytes free, .* bytes are to come"):
        restoring()
    assert list(restoring.to.iterdir()) == []


def test_without_the_key_nothing_counts_as_lost(tmp_path: Path) -> None:
    restoring, _ = recorded(tmp_path, "enc", ring=NO_KEYS)
    with pytest.raises(KeyMissing, match="key1"):
        restoring()
    assert not (restoring.to / "enc-0").exists()


def test_only_what_is_asked_for(tmp_path: Path) -> None:
    restoring, _ = recorded(tmp_path)
    assert [one.topic.name for one in restoring.plan("plain").topics] == ["plain"]
    with pytest.raises(Usage, match="no topic 'plane': did you mean plain"):
        restoring.plan("plane")
    with pytest.raises(StartRefused, match="holds nothing that can be restored"):
        Restoring(Bucket(MemoryStore(FakeClock()), KEYS, "memory:"), tmp_path).plan()


def test_what_tierd_wrote(tmp_path: Path) -> None:
    """Log start inside a segment, an accepted gap, and no heed of what retention has released."""

    async def work(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        source = files(view.directory)
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        rows = [row.remote for row in bench.catalog.segments(view.id)]
        gone, start = rows[2], rows[1].base + 1
        key = OURS.head(view.name.topic, view.id.topic_id, 0)
        head = json.loads(bench.store.get(key))
        gap = {"start": gone.base, "stop": gone.next_base, "reason": "a flood", "who": "me", "accepted_ms": 1}
        head |= {"log_start": start, "gaps": [gap]}
        replaced(bench.store, key, lambda _: json.dumps(head).encode())
        bench.store.delete([gone.log_key])
        restoring = Restoring(Bucket(bench.store, OURS, "memory:"), tmp_path)
        (restored,) = restoring()
        name = view.name
        assert (restored.plan.name, restored.log_start, restored.log_end) == (name, start, rows[-1].next_base)
        (lost,) = restored.lost
        assert (lost.start, lost.stop, lost.accepted) == (gone.base, gone.next_base, True)
        made = files(restoring.to / str(name))
        assert {one for one in made if one.endswith(".log")} == {
            names.log_file(one.base) for one in rows if one not in (rows[0], gone)
        }
        segments = {one for one in made if names.parse_segment_file(one) and not one.endswith(".snapshot")}
        assert all(made[one] == source[one] for one in segments)
        assert checkpoint(restoring, names.LOG_START_CHECKPOINT) == {name: start}

    drive(tmp_path, work)
