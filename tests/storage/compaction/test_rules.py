"""What stays and what goes, rule by rule."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from typing_extensions import Buffer

from kit.compaction import COMPACTED, batches, clean, markers, plan, records
from kit.keyed import History
from kit.logs import T0, TP, Place
from tierd.base.errors import CorruptFile, DiskFull
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.compaction.cleaner import Cleaner, CleaningStopped
from tierd.storage.compaction.offset_map import ENTRY_BYTES
from tierd.storage.compression import Codec
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.log import Log
from tierd.storage.records import Record
from tierd.storage.setaside import TXN_LISTED

DAY_MS = 86_400_000
Row = tuple[str | None, str | None]
"""Key and value."""


class Writer:
    """A compacted log, its clock, and short ways to write to it."""

    def __init__(self, root: Path, **settings: object) -> None:
        self.place = Place(root, replace(COMPACTED, **settings))  # type: ignore[arg-type]
        self.directory: LogDirectory = self.place.open()
        self.log: Log = self.place.new_log(self.directory)
        self.now_ms = T0

    def put(
        self, *rows: Row, codec: Codec = Codec.NONE, producer: tuple[int, int, int] = (-1, -1, -1), txn: bool = False
    ) -> int:
        """One batch, a millisecond between its records; the offset after it."""
        made = [
            Record(i, self.now_ms + i, None if key is None else key.encode(), None if value is None else value.encode())
            for i, (key, value) in enumerate(rows)
        ]
        self.now_ms += len(made)
        raw = encode_batch(
            made,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            attributes=TRANSACTIONAL if txn else 0,
        )
        return self.log.append(memoryview(bytearray(raw)), now_ms=self.now_ms, internal=True).next_offset

    def end(self, producer_id: int, epoch: int, kind: ControlType) -> None:
        self.now_ms += 1
        raw = encode_control_batch(
            0, kind, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=self.now_ms, coordinator_epoch=0
        )
        self.log.append(memoryview(bytearray(raw)), now_ms=self.now_ms, internal=True)

    def clean(self, after_ms: int = 0, **how: object) -> bool:
        """Close the segment, write something behind it, and clean, *after_ms* later."""
        self.log.roll()
        self.put(("other", "x"))
        self.now_ms += after_ms
        return clean(self.log, self.now_ms, **how) is not None  # type: ignore[arg-type]

    def left(self) -> list[tuple[int, str | None, str | None]]:
        """What is left of closed segments: offset, key, value."""
        stop = self.log.view().active_base
        rows = [record for record in records(self.log.directory) if record.offset < stop]
        return [
            (row.offset, row.key.decode() if row.key else None, row.value.decode() if row.value else None)
            for row in rows
        ]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path)
    yield made
    made.directory.close(clean=True)


def test_the_latest_of_each_key_stays_at_its_offset(writer: Writer) -> None:
    writer.put(("a", "1"), ("b", "1"), ("a", "2"))
    writer.put(("b", "2"), ("c", "1"))
    assert writer.clean()
    assert writer.left() == [(2, "a", "2"), (3, "b", "2"), (4, "c", "1")]
    assert writer.log.read(0, 1 << 20, committed=False).length


def test_nothing_is_cleaned_twice_without_need(writer: Writer) -> None:
    writer.put(("a", "1"), ("a", "2"))
    assert writer.clean()
    assert writer.log.compaction.cleaned_to == 2
    assert writer.log.compaction.plan(None, writer.now_ms) is None


def test_records_of_the_active_segment_supersede_nothing(writer: Writer) -> None:
    writer.put(("a", "1"))
    writer.log.roll()
    writer.put(("a", "2"))
    assert clean(writer.log, writer.now_ms) is not None
    assert writer.left() == [(0, "a", "1")]


def test_a_tombstone_goes_after_its_horizon_and_not_before(writer: Writer) -> None:
    writer.put(("a", "1"), ("a", None), ("b", "1"))
    assert writer.clean()
    assert writer.left() == [(1, "a", None), (2, "b", "1")]
    [header] = [header for header, _ in batches(writer.log.directory) if header.base_offset == 0]
    assert header.delete_horizon
    assert header.base_timestamp_ms == writer.now_ms + DAY_MS
    assert writer.clean(after_ms=DAY_MS - 1000)
    assert (1, "a", None) in writer.left()
    assert writer.clean(after_ms=2000)
    assert [row for row in writer.left() if row[1] == "a"] == []


def test_times_of_records_survive_a_horizon(writer: Writer) -> None:
    writer.put(("a", None), ("b", "1"), ("c", "1"))
    before = records(writer.log.directory)
    assert writer.clean()
    assert records(writer.log.directory)[:3] == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_written_anew_keeps_its_codec(codec: Codec, writer: Writer) -> None:
    writer.put(("a", "1" * 500), ("b", "1" * 500), codec=codec)
    writer.put(("a", "2"), codec=codec)
    assert writer.clean()
    assert [header.codec for header, _ in batches(writer.log.directory)][:2] == [codec, codec]
    assert writer.left() == [(1, "b", "1" * 500), (2, "a", "2")]


def test_log_append_time_stays_the_time_of_every_record(tmp_path: Path) -> None:
    writer = Writer(tmp_path, message_timestamp_type="LogAppendTime")
    writer.put(("a", "1"), ("b", None), ("c", "1"))
    stamped_ms = writer.now_ms
    writer.put(("a", "2"))
    assert writer.clean()
    assert [record.timestamp_ms for record in records(writer.log.directory)][:2] == [stamped_ms, stamped_ms]
    assert writer.clean(after_ms=2 * DAY_MS)
    assert [record.timestamp_ms for record in records(writer.log.directory)][:1] == [stamped_ms]
    assert (1, "b", None) not in writer.left()
    writer.directory.close(clean=True)


def test_a_record_without_key_goes(writer: Writer) -> None:
    writer.log.settings = replace(writer.log.settings, cleanup_policy=frozenset({"delete"}))
    writer.put((None, "1"), ("a", "1"))
    writer.log.settings = replace(writer.log.settings, cleanup_policy=frozenset({"compact"}))
    assert writer.clean()
    assert writer.left() == [(1, "a", "1")]


def test_the_last_batch_of_a_producer_stays_without_records(writer: Writer) -> None:
    writer.put(("a", "1"), ("b", "1"), producer=(7, 0, 0))
    writer.put(("a", "2"), ("b", "2"))
    assert writer.clean()
    headers = [header for header, _ in batches(writer.log.directory)]
    assert [(one.base_offset, one.last_offset, one.count) for one in headers[:2]] == [(0, 1, 0), (2, 3, 2)]
    assert (headers[0].producer_id, headers[0].base_sequence) == (7, 0)
    writer.put(("b", "3"), producer=(7, 0, 2))
    assert writer.clean()
    assert next(batches(writer.log.directory))[0].base_offset == 2


def test_the_batch_before_the_end_of_a_cleaning_stays_without_records(writer: Writer) -> None:
    writer.put(("a", "1"))
    writer.log.settings = replace(writer.log.settings, cleanup_policy=frozenset({"delete"}))
    writer.put((None, "1"), (None, "2"))
    writer.log.settings = replace(writer.log.settings, cleanup_policy=frozenset({"compact"}))
    assert writer.clean()
    assert writer.left() == [(0, "a", "1")]
    headers = [header for header, _ in batches(writer.log.directory)]
    assert [(one.base_offset, one.last_offset, one.count) for one in headers[:2]] == [(0, 0, 1), (1, 2, 0)]


def test_aborted_data_goes_and_its_marker_later(writer: Writer) -> None:
    writer.put(("a", "1"))
    writer.put(("a", "2"), ("b", "2"), producer=(8, 0, 0), txn=True)
    writer.end(8, 1, ControlType.ABORT)
    writer.put(("c", "1"), producer=(8, 1, 0), txn=True)
    writer.end(8, 2, ControlType.COMMIT)
    assert writer.clean()
    assert writer.left() == [(0, "a", "1"), (4, "c", "1")]
    assert markers(writer.log.directory) == [3, 5]
    assert [one.first_offset for one in writer.log.aborted(0, 100)] == [1]
    assert writer.clean()  # nothing of the transaction is met any more: the marker gets a horizon, its entry goes
    assert markers(writer.log.directory) == [3, 5]
    assert writer.log.aborted(0, 100) == ()
    assert writer.clean(after_ms=2 * DAY_MS)
    assert markers(writer.log.directory) == [5]


def lose_the_index_of_an_abort(writer: Writer, *, listed: bool) -> None:
    """A clean stop, and the `.txnindex` is gone; *listed*: it is missed."""
    writer.put(("a", "1"))
    writer.put(("a", "2"), producer=(8, 0, 0), txn=True)
    writer.end(8, 1, ControlType.ABORT)
    writer.log.roll()
    writer.put(("other", "x"))
    writer.directory.close(clean=True)
    (index,) = writer.log.directory.glob("*.txnindex")
    index.unlink()
    if not listed:
        shutil.rmtree(writer.place.set_aside.parent / TXN_LISTED)
    writer.directory = writer.place.open()
    writer.log = writer.directory.logs[TP]
    writer.log.begin(1, 0)


def test_an_abort_that_no_index_names_stops_the_cleaning(writer: Writer) -> None:
    """Else what it aborts would take the place of what was committed before."""
    lose_the_index_of_an_abort(writer, listed=False)
    with pytest.raises(CorruptFile, match="names the transaction"):
        writer.clean()
    assert writer.left()[:2] == [(0, "a", "1"), (1, "a", "2")]


def test_an_index_that_is_missed_is_made_again_first(writer: Writer) -> None:
    lose_the_index_of_an_abort(writer, listed=True)
    assert writer.clean()
    assert writer.left()[0] == (0, "a", "1")


def test_an_aborted_transaction_ends_at_its_marker(writer: Writer) -> None:
    """Also for the look for keys, which begins above it."""
    writer.put(("a", "0"), producer=(8, 0, 0), txn=True)
    writer.end(8, 1, ControlType.ABORT)
    assert writer.clean()
    writer.put(("b", "1"))
    writer.put(("b", "2"), producer=(8, 1, 0), txn=True)
    writer.end(8, 2, ControlType.COMMIT)
    assert writer.clean()
    assert [row[2] for row in writer.left() if row[1] == "b"] == ["2"]


def test_an_open_transaction_holds_everything_behind_it(writer: Writer) -> None:
    writer.put(("a", "1"), ("a", "2"))
    writer.log.roll()
    writer.put(("b", "1"), producer=(8, 0, 0), txn=True)
    writer.put(("a", "3"))
    assert writer.clean()
    assert writer.left()[:2] == [(1, "a", "2"), (2, "b", "1")]
    writer.end(8, 1, ControlType.COMMIT)
    assert writer.clean()
    assert writer.left()[:2] == [(2, "b", "1"), (3, "a", "3")]


def test_with_older_data_in_the_bucket_no_tombstone_and_no_marker_goes(writer: Writer) -> None:
    copied_to = writer.put(("a", "1"), ("b", "1"))
    writer.log.roll()
    writer.put(("a", None), ("b", None), ("b", "2"))
    writer.put(("c", "1"), producer=(8, 0, 0), txn=True)
    writer.end(8, 1, ControlType.ABORT)
    for _ in range(3):
        assert writer.clean(after_ms=2 * DAY_MS, copied_to=copied_to, keep_deletes=True)
    assert writer.left()[:4] == [(0, "a", "1"), (1, "b", "1"), (2, "a", None), (4, "b", "2")]
    assert markers(writer.log.directory) == [6]
    assert [one.first_offset for one in writer.log.aborted(0, 100)] == [5]


def test_a_full_map_cleans_as_far_as_it_reaches(writer: Writer) -> None:
    for number in range(6):
        writer.put((f"k{number}", "1"), ("same", str(number)))
        writer.log.roll()
    assert writer.clean(memory_bytes=4 * ENTRY_BYTES)
    assert writer.log.compaction.cleaned_to == 5
    assert writer.clean(memory_bytes=4 * ENTRY_BYTES)
    assert writer.clean(memory_bytes=100 * ENTRY_BYTES)
    assert writer.log.compaction.cleaned_to == writer.log.view().active_base
    assert [row[1:] for row in writer.left() if row[1] == "same"] == [("same", "5")]


def test_a_broken_segment_is_not_cleaned(writer: Writer) -> None:
    writer.put(("a", "1"), ("a", "2"))
    path = next(writer.log.directory.glob("*.log"))
    raw = bytearray(path.read_bytes())
    raw[-3] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptFile, match="CRC"):
        writer.clean()
    assert not list(writer.log.directory.glob("*.cleaned"))


def test_it_stops_when_nobody_wants_it_and_when_the_disk_is_full(writer: Writer) -> None:
    writer.put(("a", "1"), ("a", "2"))
    writer.log.roll()
    planned = plan(writer.log, writer.now_ms)
    assert planned is not None
    facts = {"now_ms": T0, "keep_deletes": False, "memory_bytes": 1 << 20}
    job = writer.log.compaction.job(planned, reserve_bytes=1 << 60, **facts)  # type: ignore[arg-type]
    with pytest.raises(DiskFull, match="reserve"):
        Cleaner(job, PosixDisk(), lambda _: None, lambda: False).run()
    with pytest.raises(CleaningStopped):
        Cleaner(job, PosixDisk(), lambda _: None, lambda: True).run()
    assert not list(writer.log.directory.glob("*.cleaned"))


class _FullAt(PosixDisk):
    """No room for one file."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write_new(self, path: Path, data: Buffer) -> None:
        if path.name == self._name:
            raise DiskFull("no room")
        super().write_new(path, data)


@pytest.mark.parametrize("suffix", ["log", "timeindex"])
def test_what_was_cleaned_before_a_full_disk_is_good(suffix: str, writer: Writer) -> None:
    for number in range(4):
        writer.put(("a" * 2000, "1"), (f"b{number}", "1" * 2000))
        writer.log.roll()
    planned = plan(writer.log, writer.now_ms)
    assert planned is not None
    job = writer.log.compaction.job(planned, now_ms=T0, keep_deletes=False, memory_bytes=1 << 20, reserve_bytes=0)
    bases = [source.base for source in job.sources]
    told: list[int] = []
    disk = _FullAt(f"{bases[2]:020d}.{suffix}.cleaned")
    with pytest.raises(DiskFull, match="no room"):
        Cleaner(job, disk, lambda group: told.append(group.base), lambda: False).run()
    assert told == bases[:2]
    assert not list(writer.log.directory.glob(f"{bases[2]:020d}.*.cleaned"))


def test_neighbours_are_merged_by_their_sizes_before(tmp_path: Path) -> None:
    place = Place(tmp_path, replace(COMPACTED, internal_segment_bytes=3000))
    directory = place.open()
    log = place.new_log(directory)
    history = History(Random(3), keys=4, codecs=(Codec.NONE,))
    history.write(log, 60, roll=0.3)
    history.settle(log)
    sizes = {view.base: view.size_bytes for view in log.closed()}
    assert clean(log, history.clock_ms) is not None
    bases = [view.base for view in log.closed()]
    assert len(bases) < len(sizes)
    for base, after in zip(bases, [*bases[1:], log.log_end], strict=True):
        members = [sizes[one] for one in sizes if base <= one < after]
        assert sum(members) <= 3000
        following = [sizes[one] for one in sorted(sizes) if one >= after][:1]
        assert not following or sum(members) + following[0] > 3000
    snapshots = {int(path.stem) for path in log.directory.glob("*.snapshot")}
    assert snapshots == {*bases[1:], log.view().active_base}
    directory.close(clean=True)
    assert TP in place.open().logs


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_large_batches_of_equal_records_keep_what_a_plain_table_says(writer: Writer, codec: Codec) -> None:
    dice, latest, offset = Random(5), dict[str, tuple[int, str | None]](), 0
    for _ in range(3):
        for _ in range(6):
            rows: list[Row] = [
                (f"key-{dice.randrange(300):03}", "value" if dice.random() < 0.97 else None) for _ in range(150)
            ]
            writer.put(*rows, codec=codec)
            latest |= {str(key): (offset + i, value) for i, (key, value) in enumerate(rows)}
            offset += len(rows)
        assert writer.clean()
        offset += 1
        left = [row for row in writer.left() if row[1] != "other"]
        assert left == sorted((at, key, value) for key, (at, value) in latest.items())
    assert writer.clean(after_ms=2 * DAY_MS)
    assert writer.clean(after_ms=2 * DAY_MS)
    left = [row for row in writer.left() if row[1] != "other"]
    assert left == sorted((at, key, value) for key, (at, value) in latest.items() if value is not None)
