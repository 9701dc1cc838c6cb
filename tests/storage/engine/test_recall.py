"""Answers that a stop swallowed: every batch that a client may send again is known, whatever lies in between."""

from pathlib import Path

import pytest

from kit.logs import T0, TP, Place, batch
from tierd.storage import recall
from tierd.storage.errors import OutOfOrderSequence
from tierd.storage.log import Log

COUNT = 3


def append(log: Log, number: int, pid: int = 5) -> tuple[int, bool]:
    done = log.append(batch(COUNT, size=100, producer=(pid, 0, number * COUNT)), now_ms=T0)
    return done.first_offset, done.duplicate


def reopened(place: Place, epoch: int) -> Log:
    log = place.open().logs[TP]
    log.begin(epoch, 0)
    return log


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled_before", range(6))
def test_five_batches_are_known_over_a_roll_and_a_start(rolled_before: int, clean: bool, tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    told = []
    for number in range(7):
        if number == 7 - rolled_before:
            log.roll()
        told.append(append(log, number)[0])
        append(log, number, pid=6)
    directory.close(clean=clean)
    log = reopened(place, 1)
    for number in range(2, 7):
        assert append(log, number) == (told[number], True)
    with pytest.raises(OutOfOrderSequence):
        append(log, 1)
    assert append(log, 7) == (log.log_end - COUNT, False)


def test_the_look_back_goes_over_several_segments_and_starts(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    told = []
    for number in range(5):
        told.append(append(log, number)[0])
        log.roll()
        directory.close(clean=number % 2 == 0)
        directory = place.open()
        log = directory.logs[TP]
        log.begin(number + 1, 0)
    for number in range(5):
        assert append(log, number) == (told[number], True)
    directory.close(clean=False)


def test_the_look_back_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recall, "TAIL_BYTES", 1000)
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    append(log, 0)
    for number in range(100):
        append(log, number, pid=6)
    directory.close(clean=True)
    log = reopened(place, 1)
    assert append(log, 0)[1]
    assert [append(log, number, pid=6)[1] for number in (98, 99)] == [True, True]


def test_damage_ends_the_look_back(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for number in range(4):
        append(log, number)
    log.roll()
    append(log, 4)
    path = log.directory / f"{0:020d}.log"
    directory.close(clean=True)
    raw = bytearray(path.read_bytes())
    raw[16] = 9  # the magic of the first batch
    path.write_bytes(raw)
    log = reopened(place, 1)
    assert append(log, 4)[1]
