"""Cleaned segments come in while the log is read and written."""

import os
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kit.compaction import COMPACTED, clean, plan, run_job
from kit.keyed import History
from kit.logs import TP, Place, by_time, log_bytes, slice_bytes
from tierd.storage.batch import walk
from tierd.storage.compaction.job import CleanedGroup, CleanReport
from tierd.storage.directory import LogDirectory
from tierd.storage.errors import StorageFailed
from tierd.storage.log import Log

SETTINGS = replace(COMPACTED, internal_segment_bytes=2000)


def written(place: Place, batches: int = 40) -> tuple[LogDirectory, Log, History]:
    directory = place.open()
    log = place.new_log(directory)
    history = History(Random(5), keys=15)
    history.write(log, batches)
    history.settle(log)
    return directory, log, history


def cleaned_files(log: Log, now_ms: int) -> tuple[CleanReport, list[CleanedGroup]]:
    planned = plan(log, now_ms)
    assert planned is not None
    return run_job(
        log.compaction.job(planned, now_ms=now_ms, keep_deletes=False, memory_bytes=1 << 20, reserve_bytes=0)
    )


def test_slices_that_are_out_keep_the_old_bytes(tmp_path: Path) -> None:
    directory, log, history = written(Place(tmp_path, SETTINGS))
    before = log_bytes(log)
    out = log.read(0, 1 << 20, committed=False)
    _, groups = cleaned_files(log, history.clock_ms)
    for group in groups:
        assert log.compaction.swap_in(group)
    directory.purge()
    assert b"".join(os.pread(span.fd, span.length, span.position) for span in out.spans) == before[: out.length]
    out.release()
    assert len(log_bytes(log)) < len(before)
    directory.close(clean=True)


def test_every_offset_is_answered_between_any_two_swaps(tmp_path: Path) -> None:
    directory, log, history = written(Place(tmp_path, SETTINGS))
    _, groups = cleaned_files(log, history.clock_ms)
    assert len(groups) > 2
    for group in groups:
        assert log.compaction.swap_in(group)
        history.write(log, 1, roll=0)
        for offset in range(log.log_end):
            header = next(iter(walk(slice_bytes(log, offset, 1))))[1]
            assert header.last_offset >= offset
        for record in history.committed[-3:]:
            found = by_time(log, record.timestamp_ms)
            assert found is not None
    assert log.size_bytes == sum(view.size_bytes for view in log.closed()) + log.view().active_bytes
    directory.close(clean=True)


def test_a_group_whose_segments_went_meanwhile_is_dropped(tmp_path: Path) -> None:
    directory, log, history = written(Place(tmp_path, SETTINGS))
    _, groups = cleaned_files(log, history.clock_ms)
    gone = next(group for group in groups if len(group.bases) > 1)
    log.move_log_start(gone.bases[1])
    assert not log.compaction.swap_in(gone)
    assert not list(log.directory.glob(f"{gone.base:020d}*.cleaned"))
    assert not list(log.directory.glob("*.swap"))
    later = groups[groups.index(gone) + 1 :]
    assert all(log.compaction.swap_in(group) for group in later)
    directory.close(clean=True)


def test_a_swap_that_cannot_begin_changes_nothing(tmp_path: Path) -> None:
    directory, log, history = written(Place(tmp_path, SETTINGS))
    before = log_bytes(log)
    _, groups = cleaned_files(log, history.clock_ms)
    (log.directory / f"{groups[0].base:020d}.log.cleaned").unlink()
    with pytest.raises(FileNotFoundError):
        log.compaction.swap_in(groups[0])
    assert log_bytes(log) == before
    assert not list(log.directory.glob("*.swap"))
    assert not list(log.directory.glob(f"{groups[0].base:020d}*.cleaned"))
    history.write(log, 1)
    directory.close(clean=True)


def test_a_swap_that_stops_half_way_ends_the_appends_and_a_start_finishes_it(tmp_path: Path) -> None:
    directory, log, history = written(Place(tmp_path, SETTINGS))
    _, groups = cleaned_files(log, history.clock_ms)
    blocked = log.directory / f"{groups[0].base:020d}.log.deleted"
    blocked.mkdir()
    (blocked / "x").touch()
    with pytest.raises(StorageFailed, match="half swapped"):
        log.compaction.swap_in(groups[0])
    with pytest.raises(StorageFailed, match="restart"):
        history.write(log, 1)
    directory.close(clean=False)
    (blocked / "x").unlink()
    blocked.rmdir()
    directory = Place(tmp_path, SETTINGS).open()
    again = directory.logs[TP]
    assert again.closed()[0].size_bytes == groups[0].size_bytes
    assert not again.cuts
    assert log_bytes(again)
    directory.close(clean=True)


def test_the_checkpoint_remembers_what_is_clean(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS)
    directory, log, history = written(place)
    assert not (place.data / "cleaner-offset-checkpoint").exists()
    assert clean(log, history.clock_ms) is not None
    cleaned_to = log.compaction.cleaned_to
    directory.close(clean=True)
    assert (place.data / "cleaner-offset-checkpoint").read_text() == f"0\n1\nt 0 {cleaned_to}\n"
    directory = place.open()
    log = directory.logs[TP]
    assert log.compaction.cleaned_to == cleaned_to == log.view().cleaned_to
    assert plan(log, history.clock_ms) is None
    directory.close(clean=True)


def test_a_checkpoint_beyond_the_log_is_cut(tmp_path: Path) -> None:
    place = Place(tmp_path, SETTINGS)
    directory, log, _ = written(place)
    end = log.log_end
    directory.close(clean=True)
    (place.data / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {end + 100}\n")
    directory = place.open()
    assert directory.logs[TP].compaction.cleaned_to == end
    directory.close(clean=True)
