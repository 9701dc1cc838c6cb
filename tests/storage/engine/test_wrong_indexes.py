"""An offset index whose entries ascend but lead nowhere: each use of one finds it out, and the log makes it again."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, fill, log_bytes, slice_bytes
from tierd.base.errors import CorruptFile
from tierd.storage.batch import walk
from tierd.storage.log import Log
from tierd.storage.names import Suffix, segment_file

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
