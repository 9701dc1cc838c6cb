"""Leader epochs of one log, and going on above what the bucket has."""

import pytest

from kit.logs import T0, Opened, batch, fill, log_bytes, slice_bytes
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
