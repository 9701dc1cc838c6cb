"""Leader epochs of one log, and going on above what the bucket has."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TOPIC_ID, TP, Opened, Place, batch, fill, log_bytes, slice_bytes
from tierd.storage.batch import parse_header
from tierd.storage.errors import EpochRefused, StorageFailed
from tierd.storage.log import Log
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.view import Seed


def test_epochs_only_rise(log: Log) -> None:
    fill(log, 1)
    log.begin(3, 0)
    log.begin(3, 0)
    with pytest.raises(EpochRefused):
        log.begin(2, 0)
    fill(log, 1)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(0, 0), (3, 2)]
    assert (log.epoch_at(1), log.epoch_at(2), log.epoch_at(-1)) == (0, 3, None)
    assert (log.epoch_end(0), log.epoch_end(2), log.epoch_end(3)) == ((0, 2), (0, 2), (3, 4))
    assert parse_header(slice_bytes(log, 2)).leader_epoch == 3


def test_nothing_is_appended_before_an_epoch_begins(opened: Opened) -> None:
    log = opened.again()
    with pytest.raises(StorageFailed):
        log.append(batch(), now_ms=T0)


def test_a_disk_behind_the_bucket_goes_on_above_it(opened: Opened) -> None:
    fill(opened.log, 30)
    producers = encode_snapshot([])
    opened.log.begin(6, 100, Seed(producers, b"0\n2\n0 0\n5 70\n"))
    log = opened.log
    assert (log.log_start, log.local_start, log.log_end, log.recovery_point) == (0, 100, 100, 100)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs] == [(0, 0), (5, 70), (6, 100)]
    assert f"{0:020d}.log" in opened.place.set_aside_files()
    fill(log, 3)
    written = log_bytes(log)
    log = opened.again(clean=False)
    assert (log.local_start, log.log_end) == (100, 106)
    assert log_bytes(log) == written


@pytest.mark.parametrize("preallocate", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_log_that_never_had_a_record_is_nothing_to_set_aside(tmp_path: Path, preallocate: bool, again: bool) -> None:
    """A recovery makes such logs before it takes them to where the bucket ends, also in a start that is killed."""
    place = Place(tmp_path, replace(SMALL, preallocate=preallocate))
    directory = place.open()
    log = directory.create(TP, TOPIC_ID, place.settings)
    if again:
        directory.close(clean=False)
        directory = place.open()
        log = directory.logs[TP]
    stranger = log.directory / f"{0:020d}.txnindex"
    stranger.write_bytes(b"somebody wrote this")
    log.begin(6, 100, Seed(encode_snapshot([]), b"0\n1\n5 70\n"))
    assert (log.log_start, log.local_start, log.log_end) == (0, 100, 100)
    assert place.set_aside_files() == [stranger.name]
    assert [path.name for path in log.directory.glob("*.log")] == [f"{100:020d}.log"]
    fill(log, 1)
    directory.close(clean=False)
