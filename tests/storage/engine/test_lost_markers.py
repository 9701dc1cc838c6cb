"""A transaction's end is lost with a broken piece in the middle of the log: nobody else's end takes its place."""

import os
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TP, Place, batch, slice_bytes
from tierd.storage.batch import ControlType, parse_control, walk
from tierd.storage.log import Log
from tierd.storage.names import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT, Suffix, segment_file
from tierd.storage.records import iter_records

PID = 7


def write(log: Log, sequence: int) -> int:
    """One record of the transaction; its offset."""
    one = batch(1, producer=(PID, 0, sequence), attributes=0x10)
    return log.append(one, now_ms=T0, in_transaction=True).first_offset


def end(log: Log, *, commit: bool) -> None:
    assert log.end_transaction(PID, 0, 0, commit=commit, now_ms=T0)


def plain(log: Log) -> int:
    return log.append(batch(1), now_ms=T0).first_offset


def seen(log: Log, offset: int) -> set[int]:
    """Batches of data that a client which reads committed records is shown from *offset* on, by Kafka's rules."""
    shown = set()
    while offset < log.last_stable:
        found = log.read(offset, 1 << 20, committed=True)
        found.release()
        ahead = sorted((one.first_offset, one.producer_id) for one in found.aborted)
        aborted: set[int] = set()
        raw = slice_bytes(log, offset, committed=True)
        for position, header in walk(raw):
            while ahead and ahead[0][0] <= header.last_offset:
                aborted.add(ahead.pop(0)[1])
            if header.control:
                kind, _ = parse_control(next(iter_records(raw[position : position + header.size_bytes], header)))
                aborted -= {header.producer_id} if kind == ControlType.ABORT else set()
            elif not (header.transactional and header.producer_id in aborted):
                shown.add(header.base_offset)
            offset = header.next_offset
    return shown


def broken(place: Place, first_commits: bool) -> tuple[Log, dict[str, int]]:
    """Two transactions of one producer; the piece that ends the first is broken, and with it goes a plain record. The
    log opened again after a kill, and where its records are."""
    directory = place.open()
    log = place.new_log(directory)
    at = {"before": plain(log), "first": write(log, 0)}
    at["lost"] = plain(log)
    end(log, commit=first_commits)
    log.roll()
    at["second"] = write(log, 1)
    log.roll()
    end(log, commit=not first_commits)
    at["after"] = plain(log)
    directory.close(clean=False)
    (place.data / RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    path = log.directory / segment_file(0, Suffix.LOG)
    raw = bytearray(path.read_bytes())
    raw[next(position for position, header in walk(raw) if header.base_offset == at["lost"]) + 70] ^= 1
    path.write_bytes(raw)
    opened = place.open().logs[TP]
    opened.begin(1, 0)
    assert opened.gaps == ((at["lost"], at["second"]),)
    return opened, at


@pytest.mark.parametrize("first_commits", [True, False])
def test_what_was_open_before_a_loss_ends_with_it(first_commits: bool, tmp_path: Path) -> None:
    log, at = broken(Place(tmp_path, SMALL), first_commits)
    assert seen(log, 0) == {at["before"], at["after"], at["first" if first_commits else "second"]}
    assert seen(log, at["lost"]) == {at["after"]} | (set() if first_commits else {at["second"]})


def test_no_answer_goes_over_a_loss(tmp_path: Path) -> None:
    log, at = broken(Place(tmp_path, SMALL), False)
    assert [header.base_offset for _, header in walk(slice_bytes(log, 0))] == [at["before"], at["first"]]
    found = log.read(at["lost"], 1 << 20, committed=True)
    found.release()
    assert found.aborted == ()


def test_a_loss_at_the_end_leaves_nothing_of_what_lay_behind_it(tmp_path: Path) -> None:
    """The segment after the loss is empty: the log ends before the loss, and knows of no marker from there."""
    place = Place(tmp_path, SMALL)
    directory = place.open()
    log = place.new_log(directory)
    first = write(log, 0)
    lost = plain(log)
    end(log, commit=False)
    log.roll()
    directory.close(clean=False)
    (place.data / RECOVERY_POINT_CHECKPOINT).unlink(missing_ok=True)
    path = log.directory / segment_file(0, Suffix.LOG)
    raw = bytearray(path.read_bytes())
    raw[next(position for position, header in walk(raw) if header.base_offset == lost) + 70] ^= 1
    path.write_bytes(raw)
    again = place.open().logs[TP]
    again.begin(1, 0)
    assert (again.log_end, again.last_stable, again.aborted(0, 100)) == (lost, first, ())
    end(again, commit=True)
    assert seen(again, 0) == {first}


def test_what_a_vanished_log_had_aborted_stays_unseen(tmp_path: Path) -> None:
    """The marker lies in a segment whose `.log` alone is gone: its `.txnindex` still tells."""
    place = Place(tmp_path, SMALL)
    directory = place.open()
    log = place.new_log(directory)
    before, aborted = plain(log), write(log, 0)
    log.roll()
    end(log, commit=False)
    lost = aborted + 1
    log.roll()
    after = plain(log)
    log.roll()
    directory.close(clean=True)
    (log.directory / segment_file(lost, Suffix.LOG)).unlink()
    for _ in range(2):
        directory = place.open()
        again = directory.logs[TP]
        assert again.gaps == ((lost, after),)
        assert seen(again, 0) == {before, after}
        directory.close(clean=True)


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_has_lost_its_end_says_so(clean: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(tmp_path, SMALL)
    directory = place.open()
    log = place.new_log(directory)
    for _ in range(3):
        plain(log)
    directory.close(clean=True)
    path = log.directory / segment_file(0, Suffix.LOG)
    os.truncate(path, list(walk(path.read_bytes()))[2][0])
    if not clean:
        (place.data / CLEAN_SHUTDOWN).unlink()
    assert place.open().logs[TP].log_end == 2
    assert "the log has lost its end" in caplog.text
