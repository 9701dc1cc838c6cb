"""Look-ups by time agree with a walk over every record."""

from pathlib import Path

import pytest

from kit.golden import partitions
from kit.remote_log import FAR, PART, RemoteLog, indexed, reader_of, recorded, run, synthetic
from tierd.remote.indexes import IndexFiles
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.storage.view import TimestampOffset

RECORDED = partitions("kafka", "final")


def first_at(log: RemoteLog, timestamp_ms: int, start: int, stop: int) -> TimestampOffset | None:
    for record, header in log.records():
        if start <= record.offset < stop and record.timestamp_ms >= timestamp_ms:
            return TimestampOffset(record.offset, record.timestamp_ms, header.leader_epoch)
    return None


def largest(log: RemoteLog, start: int, stop: int) -> tuple[int, int] | None:
    inside = [(r.timestamp_ms, -r.offset) for r, _ in log.records() if start <= r.offset < stop and r.timestamp_ms >= 0]
    return max(inside, default=None)


@pytest.mark.parametrize("directory", RECORDED, ids=lambda path: path.name)
def test_first_record_at_a_time(directory: Path, tmp_path: Path) -> None:
    log = recorded(directory)
    times = sorted({record.timestamp_ms for record, _ in log.records()})
    asked = sorted({0, *times[:: max(1, len(times) // 25)], *(t + 1 for t in times[-3:]), *(t - 1 for t in times[:3])})
    middle = (log.start + log.end) // 2

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for at in asked:
                for start, stop in ((log.start, FAR), (middle, FAR), (log.start, middle)):
                    found = await reader.by_time(PART, at, start=start, stop=stop)
                    assert found == first_at(log, at, start, stop), (at, start, stop)

    run(work)


@pytest.mark.parametrize("directory", RECORDED, ids=lambda path: path.name)
def test_largest_timestamp(directory: Path, tmp_path: Path) -> None:
    log = recorded(directory)
    bases = [segment.base for segment in log.rows.segments]
    ranges = [(start, stop) for start in (*bases[:3], log.start + 7) for stop in (FAR, log.end - 5, log.start + 40)]

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            for start, stop in ranges:
                found = await reader.largest_timestamp(PART, start=start, stop=stop)
                got = None if found is None else (found.timestamp_ms, -found.offset)
                assert got == largest(log, start, stop), (start, stop)

    run(work)


def test_a_time_index_that_is_no_good_costs_a_walk_and_no_answer(tmp_path: Path) -> None:
    log, source = RemoteLog(), synthetic(1, 30)
    raw = b"".join(batch for _, batch in source.batches)
    offset = indexed(raw, 0).offset
    log.add(raw, 0, 90, IndexFiles(offset=offset, timestamp=b"nonsense" * 9, producer_snapshot=b"", leader_epoch=b""))

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert await reader.by_time(PART, 1500, start=0, stop=FAR) == first_at(log, 1500, 0, FAR)

    run(work)


def test_the_largest_timestamp_is_known_without_a_request(tmp_path: Path) -> None:
    log = RemoteLog()
    raw = b"".join(encode_batch([Record(n, at, None, b"v")]) for n, at in enumerate((5, 90, 7, 90)))
    log.add(raw, 0, 4, indexed(raw, 0), knows_largest=True)

    async def work() -> None:
        async with reader_of(log, tmp_path) as reader:
            assert await reader.largest_timestamp(PART, start=0, stop=FAR) == TimestampOffset(1, 90, 0)
            assert not log.gets
            assert await reader.largest_timestamp(PART, start=2, stop=FAR) == TimestampOffset(3, 90, 0)
            assert await reader.largest_timestamp(PART, start=4, stop=FAR) is None

    run(work)
