"""One copy: what lands in the bucket, that rotten segments never do, and that no failure leaves an unnamed object."""

import itertools
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.folder_tier import view_of
from kit.golden import golden, partitions
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import TopicSettings
from tierd.remote.crc import crc32c
from tierd.remote.errors import AccessRefused
from tierd.remote.indexes import split_indexes
from tierd.remote.keys import Keys
from tierd.remote.manifest import parse_manifest
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.batch import walk
from tierd.storage.records import iter_records
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering import deletion, sidecars
from tierd.tiering.buffers import PartBuffers
from tierd.tiering.catalog import Catalog
from tierd.tiering.copier import Abandoned, Copier, CopierParts, Ownership
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.opening import settle
from tierd.tiering.refusals import Refusals
from tierd.tiering.snapshots import snapshot_at

SETTINGS = TopicSettings(index_interval_bytes=512)
OWNER = Ownership(epoch=5, incarnation=Uuid(b"i" * 16))


class Bench:
    """A memory store, a catalog and whatever else a copier needs."""

    def __init__(self, root: Path, part_bytes: int = 16 * 1024 * 1024) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.catalog = Catalog.open(root / "catalog.sqlite")
        self.uploads = ThreadPoolExecutor(2)
        self.bucket = Bucket(self.store, Keys("p/"), "memory:")
        self.parts = CopierParts(
            store=self.store,
            keys=self.bucket.keys,
            catalog=self.catalog,
            clock=self.clock,
            uploads=self.uploads,
            node_id=1,
            buffers=PartBuffers(part_bytes),
            settle_ms=1000,
            abandon_ms=100_000,
        )

    def copier(self, view: PartitionView, segment: SegmentView, stopping: Callable[[], bool] = lambda: False) -> Copier:
        return Copier(self.parts, OWNER, view, segment, stopping=stopping)

    def objects(self) -> set[str]:
        return {info.key for info in self.store.list("")}

    def close(self) -> None:
        self.uploads.shutdown()
        self.catalog.close()


@pytest.fixture
def bench(tmp_path: Path):
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def small_parts(tmp_path: Path):
    """Parts so small that batches and their headers lie across them."""
    made = Bench(tmp_path, part_bytes=1000)
    yield made
    made.close()


def copied(tmp_path: Path, name: str) -> PartitionView:
    """A partition of the clean recording that a test may damage."""
    shutil.copytree(golden("kafka") / "clean" / name, tmp_path / "data" / name)
    return view_of(tmp_path / "data" / name, SETTINGS)


@pytest.mark.parametrize("name", ["codec-none-0", "txn-0", "codec-zstd-0", "timestamps-0", "logappend-0"])
def test_the_bucket_gets_the_files_byte_for_byte(bench: Bench, name: str) -> None:
    view = view_of(golden("kafka") / "clean" / name, SETTINGS)
    for segment in view.closed:
        row = bench.copier(view, segment).run()
        remote, directory, base = row.remote, view.directory, segment.base
        log = (directory / names.log_file(base)).read_bytes()
        assert bench.store.get(remote.log_key) == log
        assert (remote.log_crc, remote.size_bytes) == (crc32c(log), len(log))
        manifest = parse_manifest(bench.store.get(remote.manifest_key), "m")
        assert (manifest.base, manifest.next_base) == (base, segment.next_base)
        assert manifest.epochs == remote.epochs
        files = split_indexes(bench.store.get(remote.indexes_key), manifest.layout, "i")
        assert files.offset == (directory / names.index_file(base)).read_bytes()
        assert files.timestamp == (directory / names.time_index_file(base)).read_bytes()
        assert files.producer_snapshot == (directory / names.snapshot_file(segment.next_base)).read_bytes()
        transactions = directory / names.txn_index_file(base)
        assert files.transaction == (transactions.read_bytes() if transactions.exists() else None)
        assert bench.catalog.covering(view.id, base) == remote
    assert bench.catalog.remote_partition(view.id).copied_to == view.active_base
    assert len(bench.objects()) == 3 * len(view.closed)


def test_parts_give_the_same_object_as_one_put(small_parts: Bench) -> None:
    for directory in partitions("kafka", "clean"):
        if directory.name.startswith("__"):
            continue
        view = view_of(directory, SETTINGS)
        for segment in view.closed:
            row = small_parts.copier(view, segment).run()
            if segment.size_bytes:
                log = (directory / names.log_file(segment.base)).read_bytes()
                assert small_parts.store.get(row.remote.log_key) == log
                assert row.remote.log_crc == crc32c(log)


def test_an_empty_segment_is_a_row_and_no_object(bench: Bench) -> None:
    view = view_of(golden("kafka") / "clean" / "compacted-0", SETTINGS)
    empty = view.closed[0]
    assert empty.size_bytes == 0
    row = bench.copier(view, empty).run()
    assert row.state is CopyState.COPY_FINISHED
    assert bench.objects() == set()
    assert bench.catalog.remote_partition(view.id).copied_to == empty.next_base


def test_the_first_record_with_the_largest_timestamp(bench: Bench) -> None:
    view = view_of(golden("kafka") / "clean" / "timestamps-0", SETTINGS)
    row = bench.copier(view, view.closed[0]).run()
    raw = (view.directory / names.log_file(0)).read_bytes()
    records = [
        record
        for position, header in walk(raw)
        for record in iter_records(raw[position : position + header.size_bytes], header)
    ]
    largest = max(records, key=lambda one: (one.timestamp_ms, -one.offset))
    assert row.remote.largest_timestamp_ms == largest.timestamp_ms
    assert row.remote.largest_timestamp_offset == largest.offset
    assert row.records == len(records)


# --- what is missing or broken on the local side ------------------------------------------------------------------
@pytest.mark.parametrize("name", ["codec-none-0", "txn-0", "idempotent-0", "timestamps-0"])
def test_missing_indexes_are_made_as_kafka_makes_them(tmp_path: Path, name: str) -> None:
    source = view_of(golden("kafka") / "clean" / name, SETTINGS)
    topics = json.loads((golden("kafka") / "topics.json").read_text())
    for segment in source.closed:
        interval = topics.get(name[:-2], {}).get("index.interval.bytes", 512)
        offsets, times = sidecars.rebuild(source.directory, segment, interval)
        assert offsets == (source.directory / names.index_file(segment.base)).read_bytes()
        assert times == (source.directory / names.time_index_file(segment.base)).read_bytes()


@pytest.mark.parametrize("name", ["codec-none-0", "txn-0", "idempotent-0"])
def test_missing_snapshots_are_made(tmp_path: Path, name: str) -> None:
    view = copied(tmp_path, name)
    for segment in view.closed:
        original = (golden("kafka") / "clean" / name / names.snapshot_file(segment.next_base)).read_bytes()
        for path in view.directory.glob("*.snapshot"):
            path.unlink()
        made = parse_snapshot(snapshot_at(view.directory, view.closed, segment.next_base))
        assert {entry.producer_id: entry for entry in parse_snapshot(original)}.items() <= {
            entry.producer_id: entry for entry in made
        }.items()


def test_a_damaged_index_is_made_anew(bench: Bench, tmp_path: Path) -> None:
    view = copied(tmp_path, "codec-none-0")
    index = view.directory / names.index_file(75)
    good = index.read_bytes()
    for damage in (good + b"abc", os.urandom(len(good)), b""):
        index.write_bytes(damage)
        row = bench.copier(view, view.closed[1]).run()
        files = split_indexes(bench.store.get(row.remote.indexes_key), row.remote.layout, "")
        assert files.offset in (good, b"")  # an empty index is sparse, not wrong
        assert bool(files.offset) == bool(damage)


def without_one(raw: bytes) -> bytes:
    return raw[:-34]


@pytest.mark.parametrize("part_bytes", [1000, 16 * 1024 * 1024])
@pytest.mark.parametrize(
    "damage", [without_one, lambda raw: raw[:-1], lambda raw: os.urandom(len(raw)), lambda _: b"", None]
)
def test_no_abort_is_missing_in_the_bucket(
    tmp_path: Path, part_bytes: int, damage: Callable[[bytes], bytes] | None
) -> None:
    bench = Bench(tmp_path, part_bytes)
    view = copied(tmp_path, "txn-0")
    found = 0
    for segment in view.closed:
        index = view.directory / names.txn_index_file(segment.base)
        good = index.read_bytes() if index.exists() else None
        if damage is None:
            index.unlink(missing_ok=True)
        elif good is not None:
            index.write_bytes(damage(good))
        row = bench.copier(view, segment).run()
        files = split_indexes(bench.store.get(row.remote.indexes_key), row.remote.layout, "")
        assert files.transaction == good
        found += good is not None
    assert found > 2


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("part_bytes", [1000, 16 * 1024 * 1024])
def test_a_rotten_segment_is_never_committed(tmp_path: Path, part_bytes: int) -> None:
    bench = Bench(tmp_path, part_bytes)
    view = copied(tmp_path, "codec-none-0")
    segment = view.closed[1]
    path = view.directory / names.log_file(segment.base)
    good = path.read_bytes()
    damages: list[Callable[[], object]] = [
        lambda: flip(path, 3000),
        lambda: flip(path, 16),
        lambda: flip(path, 7),
        lambda: path.write_bytes(good[:-1]),
        lambda: path.write_bytes(good + bytes(10)),
        lambda: path.write_bytes(good[:-1] + b"\xff"),
    ]
    for damage in damages:
        path.write_bytes(good)
        damage()
        with pytest.raises(CorruptFile, match=names.log_file(segment.base)):
            bench.copier(view, segment).run()
        assert not [key for key in bench.objects() if key.endswith("manifest")]
    path.write_bytes(good)
    assert bench.catalog.remote_partition(view.id).copied_to is None
    rows = bench.catalog.in_state(CopyState.DELETE_STARTED)
    assert len(rows) == len(damages)
    now_ms = bench.clock.now_ms()
    assert deletion.due(bench.catalog, now_ms) == []  # a PUT of theirs may still land
    deletion.delete_segments(
        bench.bucket, bench.catalog, Refusals(bench.catalog), deletion.due(bench.catalog, now_ms + 1000), now_ms=now_ms
    )
    assert bench.objects() == set()
    assert list(bench.store.list_uploads("")) == []
    assert bench.catalog.segments(view.id) == []
    bench.close()


def test_a_copy_given_up_says_so_and_leaves_a_row(small_parts: Bench) -> None:
    view = view_of(golden("kafka") / "clean" / "codec-none-0", SETTINGS)
    asked = itertools.count()
    with pytest.raises(Abandoned):
        small_parts.copier(view, view.closed[0], stopping=lambda: next(asked) == 2).run()
    assert [row.state for row in small_parts.catalog.segments(view.id)] == [CopyState.DELETE_STARTED]
    assert small_parts.objects() == set()
    assert list(small_parts.store.list_uploads("")) == []


@pytest.mark.parametrize("part_bytes", [1000, 16 * 1024 * 1024])
def test_what_the_bucket_refuses_at_once_leaves_no_row(tmp_path: Path, part_bytes: int) -> None:
    view = view_of(golden("kafka") / "clean" / "codec-none-0", SETTINGS)
    bench = Bench(tmp_path, part_bytes)

    def refuse(operation: str, key: str) -> None:
        raise AccessRefused("403: read only")

    bench.store.before = refuse
    with pytest.raises(AccessRefused):
        bench.copier(view, view.closed[0]).run()
    assert bench.catalog.segments(view.id) == []
    bench.close()


@pytest.mark.parametrize("taken", [".log", ".indexes"])
def test_what_the_bucket_has_taken_in_part_keeps_its_row(tmp_path: Path, taken: str) -> None:
    view = view_of(golden("kafka") / "clean" / "codec-none-0", SETTINGS)
    bench = Bench(tmp_path, 16 * 1024 * 1024)

    def refuse(operation: str, key: str) -> None:
        if not key.endswith(taken):
            raise AccessRefused("403")

    bench.store.before = refuse
    with pytest.raises(AccessRefused):
        bench.copier(view, view.closed[0]).run()
    bench.store.before = lambda operation, key: None
    assert bench.objects() <= owned_keys(bench, view.id)
    bench.close()


def owned_keys(bench: Bench, part: PartitionId) -> set[str]:
    return {
        key
        for row in bench.catalog.segments(part)
        for key in (row.remote.log_key, row.remote.indexes_key, row.remote.manifest_key)
    }


@pytest.mark.parametrize("part_bytes", [1000, 16 * 1024 * 1024])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_failure_at_any_request_leaves_nothing_unnamed(tmp_path: Path, part_bytes: int, when: str) -> None:
    """The request fails, or takes effect and its answer is lost; then the row is settled and copying goes on."""
    view = view_of(golden("kafka") / "clean" / "codec-none-0", SETTINGS)
    segment = view.closed[0]
    for fails_at in itertools.count(1):
        root = tmp_path / f"{when}-{fails_at}"
        root.mkdir()
        bench = Bench(root, part_bytes)
        seen = itertools.count(1)

        def fail(operation: str, key: str, seen: "itertools.count[int]" = seen, fails_at: int = fails_at) -> None:
            if next(seen) == fails_at:
                raise RemoteUnavailable(f"{operation} {key}")

        setattr(bench.store, when, fail)
        try:
            bench.copier(view, segment).run()
        except RemoteUnavailable:
            setattr(bench.store, when, lambda operation, key: None)
            assert bench.objects() <= owned_keys(bench, view.id)
            for row in bench.catalog.in_state(CopyState.COPY_STARTED):
                settle(bench.bucket, bench.catalog, bench.clock, row, settle_ms=1000)
            assert bench.catalog.in_state(CopyState.COPY_STARTED) == []
            if bench.catalog.remote_partition(view.id).copied_to is None:
                bench.copier(view, segment).run()
            rows = deletion.due(bench.catalog, bench.clock.now_ms() + 1000)
            deletion.delete_segments(bench.bucket, bench.catalog, Refusals(bench.catalog), rows, now_ms=0)
        setattr(bench.store, when, lambda operation, key: None)
        finished = bench.catalog.segments(view.id)
        assert [row.state for row in finished] == [CopyState.COPY_FINISHED]
        assert bench.objects() == owned_keys(bench, view.id)
        assert list(bench.store.list_uploads("")) == []
        bench.close()
        if next(seen) <= fails_at:
            break
    assert fails_at > 3
