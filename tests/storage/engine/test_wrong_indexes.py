"""An offset index whose entries ascend but lead nowhere: each use of one finds it out, and the log makes it again."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, by_time, fill, largest_timestamp, log_bytes, slice_bytes
from tierd.base.errors import CorruptFile
from tierd.storage.batch import walk
from tierd.storage.errors import Repairing
from tierd.storage.log import Log
from tierd.storage.names import Suffix, segment_file
from tierd.storage.repairs import Repair

_ENTRY = struct.Struct(">ii")


def wrong(log: Log, base: int, number: int, *, offset: int = 0, position: int = 0) -> None:
    """Add to both numbers of one entry."""
    path = log.directory / segment_file(base, Suffix.INDEX)
    raw = bytearray(path.read_bytes())
    had = _ENTRY.unpack_from(raw, number * _ENTRY.size)
    _ENTRY.pack_into(raw, number * _ENTRY.size, had[0] + offset, had[1] + position)
    path.write_bytes(raw)


def reopened(place: Place) -> Log:
    log = place.open().logs[TP]
    log.begin(1, 0)
    return log


@pytest.mark.parametrize("error", [{"position": 5}, {"offset": -1}])
@pytest.mark.parametrize("number", [0, 2])
def test_of_the_active_segment(number: int, error: dict[str, int], tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 12)
    whole = log_bytes(log)
    directory.close(clean=True)
    wrong(log, 0, number, **error)
    log = reopened(place)
    for offset in range(log.log_end):
        (_, header), *_ = walk(slice_bytes(log, offset, 1))
        assert header.base_offset == offset - offset % 2
    fill(log, 2)
    log.roll()
    assert log_bytes(log)[: len(whole)] == whole


SPARSE = replace(SMALL, index_interval_bytes=600)
"""An entry for every third of the batches below."""


def closed(place: Place) -> Log:
    """One closed segment of single records, with a transaction that begins in its middle and is aborted behind it."""
    directory = place.open()
    log = place.new_log(directory)
    for _ in range(8):
        log.append(batch(1, size=200), now_ms=T0)
    for sequence in range(3):
        one = batch(1, size=200, producer=(7, 0, sequence), attributes=0x10)
        log.append(one, now_ms=T0, in_transaction=True)
    for _ in range(3):
        log.append(batch(1, size=200), now_ms=T0)
    log.roll()
    log.end_transaction(7, 0, 0, commit=False, now_ms=T0)
    directory.close(clean=True)
    return log


def test_where_a_read_is_cut(tmp_path: Path) -> None:
    place = Place(tmp_path, SPARSE)
    log = closed(place)
    (_, header), *_ = walk((log.directory / segment_file(0, Suffix.LOG)).read_bytes())
    size = header.size_bytes
    wrong(log, 0, 1, position=3)
    log = reopened(place)
    for most in range(300, 3300, 100):
        assert len(slice_bytes(log, 0, most)) == most // size * size


def test_where_the_aborted_transactions_of_an_answer_end(tmp_path: Path) -> None:
    """With the entry as it is, the answer would be thought to end before the transaction begins."""
    place = Place(tmp_path, SPARSE)
    log = closed(place)
    wrong(log, 0, 2, offset=-1)
    log = reopened(place)
    for most in range(300, 3300, 100):
        found = log.read(0, most, committed=True)
        found.release()
        last = max(header.last_offset for _, header in walk(slice_bytes(log, 0, most)))
        assert last < 8 or [one.first_offset for one in found.aborted] == [8]


def test_a_broken_log_is_not_read_through_again_for_each_who_asks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, SPARSE)
    log = closed(place)
    path = log.directory / segment_file(0, Suffix.LOG)
    raw = bytearray(path.read_bytes())
    position, _ = list(walk(raw))[7]
    raw[position + 8 : position + 17] = bytes(9)
    path.write_bytes(raw)
    log = reopened(place)
    for _ in range(5):
        with pytest.raises(CorruptFile):
            log.read(8, 100, committed=False)
    assert caplog.text.count("rebuilding it") == 1


TIMES = {
    "earlier": (-1, lambda raw: raw[:3] + bytes([raw[3] ^ 0x40]) + raw[4:]),
    "later": (-1, lambda raw: b"\x01" + raw[1:]),
    "below zero": (-1, lambda raw: b"\xff" + raw[1:]),
    "of another batch": (-1, lambda raw: raw[:8] + bytes(4)),
    "beyond the end": (-1, lambda raw: raw[:8] + b"\x01" + raw[9:]),
    "gone": (-1, lambda _: b""),
    "one that is looked up": (1, lambda raw: raw[:8] + (int.from_bytes(raw[8:], "big") + 6).to_bytes(4, "big")),
}


def test_a_broken_batch_beside_a_wrong_time_is_no_repair_without_end(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(60):
        log.append(batch(2, size=60, at_ms=T0 + 100 * i), now_ms=T0 + 100 * i)
    directory.close(clean=True)
    path = min(log.directory.glob("*.log"))
    raw = bytearray(path.read_bytes())
    broken, _ = list(walk(raw))[6]
    raw[broken + 100] ^= 1
    path.write_bytes(raw)
    times = path.with_suffix(".timeindex")
    times.write_bytes(times.read_bytes()[:-12])
    directory = place.open()
    log, waiting = directory.logs[TP], list[Repair]()
    directory.repairs.hand_over = waiting.append
    for _ in range(3):
        try:
            assert slice_bytes(log, 0)
            break
        except Repairing:
            waiting[-1].work()()
            directory.repairs.end(waiting[-1])
    assert len(waiting) == 1


@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("kind", TIMES)
def test_a_time_that_the_log_does_not_bear_out(kind: str, number: int, tmp_path: Path) -> None:
    """It would hide records from who looks them up by time, and let retention take them early."""
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(90):
        log.append(batch(2, size=60, at_ms=T0 + 100 * i), now_ms=T0 + 100 * i)
    asked = [T0 + 37 * i for i in range(250)]
    before = [by_time(log, one) for one in asked], largest_timestamp(log)
    directory.close(clean=True)
    path = sorted(log.directory.glob("*.timeindex"))[number]
    good, (entry, damage) = path.read_bytes(), TIMES[kind]
    entries = [good[at : at + 12] for at in range(0, len(good), 12)]
    assert len(entries) > 3
    entries[entry] = damage(entries[entry])
    path.write_bytes(b"".join(entries))
    log = reopened(place)
    assert ([by_time(log, one) for one in asked], largest_timestamp(log)) == before
    anchors = [segment.age_anchor_ms for segment in log.closed()]
    assert anchors == sorted(anchors)
    assert min(anchors) >= T0
