"""read_committed answers name the aborted transactions that touch their bytes, wherever the markers lie."""

from pathlib import Path

import pytest

from kit.golden import golden, partitions
from kit.remote_log import FAR, PART, RemoteLog, content, indexed, reader_of, recorded, run
from tierd.remote.indexes import IndexFiles
from tierd.storage.batch import ControlType, encode_batch, encode_control_batch
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.records import Record
from tierd.storage.txnindex import AbortedEntry, encode_txn_index, parse_txn_index

TRANSACTIONAL_PARTITIONS = [path for path in partitions("kafka", "final") if list(path.glob("*.txnindex"))]


def entries(directory: Path) -> list[AbortedEntry]:
    found = sorted(directory.glob("*.txnindex"))
    return [entry for path in found for entry in parse_txn_index(path.read_bytes(), path.name)]


@pytest.mark.parametrize("directory", TRANSACTIONAL_PARTITIONS, ids=lambda path: path.name)
@pytest.mark.parametrize("max_bytes", [1, 2000, 1 << 20])
def test_recorded_transactions(directory: Path, max_bytes: int, tmp_path: Path) -> None:
    log, all_aborted = recorded(directory), entries(directory)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for offset in range(log.start, log.end):
                slice = await reader.read(PART, offset, max_bytes=max_bytes, stop=FAR, committed=True)
                named = {(txn.producer_id, txn.first_offset) for txn in slice.aborted}
                stop = slice.stop
                assert stop is not None
                content(slice)
                touched = {
                    (entry.producer_id, entry.first_offset)
                    for entry in all_aborted
                    if entry.marker_offset >= offset and entry.first_offset < stop
                }
                assert named == touched, offset

    run(work)


def quiet_segment(log: RemoteLog, base: int, *, abort: AbortedEntry | None = None) -> None:
    """A segment of one plain batch, with a transaction index when *abort* is given."""
    raw = encode_batch([Record(base, 1, b"k", b"v"), Record(base + 9, 1, b"k", b"v")], base_offset=base)
    files = indexed(raw, base)
    txn = None if abort is None else encode_txn_index([abort])
    log.add(
        raw,
        base,
        base + 10,
        IndexFiles(
            offset=files.offset, timestamp=files.timestamp, producer_snapshot=b"", leader_epoch=b"", transaction=txn
        ),
    )


def test_a_marker_many_segments_on_is_found_and_costs_one_look_at_the_rows(tmp_path: Path) -> None:
    log = RemoteLog()
    for base in range(0, 3000, 10):
        abort = AbortedEntry(7, 3, 2505, 2506) if base == 2500 else None
        quiet_segment(log, base, abort=abort)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for offset in (0, 9):
                slice = await reader.read(PART, offset, max_bytes=1, stop=FAR, committed=True)
                assert [(txn.producer_id, txn.first_offset) for txn in slice.aborted] == [(7, 3)]
                content(slice)
            before = log.rows.asked
            slice = await reader.read(PART, 100, max_bytes=1, stop=FAR, committed=True)
            assert [(txn.producer_id, txn.first_offset) for txn in slice.aborted] == [(7, 3)]
            content(slice)
            assert log.rows.asked - before < 10
            quiet_segment(log, 3000, abort=AbortedEntry(8, 2900, 3005, 3006))
            slice = await reader.read(PART, 2900, max_bytes=1, stop=FAR, committed=True)
            assert [(txn.producer_id, txn.first_offset) for txn in slice.aborted] == [(8, 2900)]
            content(slice)
            slice = await reader.read(PART, 2900, max_bytes=1, stop=FAR, committed=False)
            assert slice.aborted == ()
            content(slice)

    run(work)


def test_no_later_index_is_fetched_once_one_entry_settles_it(tmp_path: Path) -> None:
    log = RemoteLog()
    for base in range(0, 100, 10):
        quiet_segment(log, base, abort=AbortedEntry(base, base, base + 9, base + 10))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            slice = await reader.read(PART, 20, max_bytes=1, stop=FAR, committed=True)
            assert [txn.producer_id for txn in slice.aborted] == [20]
            content(slice)

    run(work)
    assert len(log.gets) == 2


def test_markers_are_data_like_any_other(tmp_path: Path) -> None:
    log = RemoteLog()
    data = encode_batch(
        [Record(0, 5, b"k", b"v")], producer_id=3, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    )
    marker = encode_control_batch(
        1, ControlType.ABORT, producer_id=3, producer_epoch=1, timestamp_ms=6, coordinator_epoch=0
    )
    raw = data + marker
    txn = encode_txn_index([AbortedEntry(3, 0, 1, 2)])
    log.add(raw, 0, 2, IndexFiles(offset=b"", timestamp=b"", producer_snapshot=b"", leader_epoch=b"", transaction=txn))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            slice = await reader.read(PART, 0, max_bytes=1 << 20, stop=FAR, committed=True)
            assert [(txn.producer_id, txn.first_offset) for txn in slice.aborted] == [(3, 0)]
            assert content(slice) == raw
            found = await reader.by_time(PART, 6, start=0, stop=FAR)
            assert found is not None
            assert found.offset == 1

    run(work)


def test_the_recordings_have_transactions() -> None:
    assert TRANSACTIONAL_PARTITIONS
    assert (golden("kafka") / "final" / "txn-0") in TRANSACTIONAL_PARTITIONS
