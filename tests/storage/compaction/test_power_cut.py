"""The power goes at every step of two cleanings; afterwards a reader knows of each key what he knew before."""

import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kit.compaction import COMPACTED, clean, flush
from kit.keyed import History
from kit.logs import TP, Place, by_time
from kit.model_disk import ModelDisk, PowerCut
from tierd.storage.batch import walk
from tierd.storage.index import parse_index
from tierd.storage.log import Log
from tierd.storage.records import iter_records
from tierd.storage.timeindex import parse_time_index
from tierd.storage.txnindex import parse_txn_index

SETTINGS = replace(COMPACTED, internal_segment_bytes=2000, delete_retention_ms=100)


def prepare(place: Place, seed: int) -> History:
    """A log that was cleaned once, so that tombstones and markers have horizons, and written to since; all durable."""
    history = History(Random(seed), keys=12)
    directory = place.open()
    log = place.new_log(directory)
    history.write(log, 24)
    history.settle(log)
    assert clean(log, history.clock_ms) is not None
    history.write(log, 16)
    history.settle(log)
    flush(log)
    directory.close(clean=True)
    return history


def live(place: Place, history: History) -> None:
    directory = place.open()
    log = directory.logs[TP]
    log.begin(5, 0)
    late = history.clock_ms + 10_000
    assert clean(log, late, disk=place.disk) is not None
    directory.purge()
    directory.write_checkpoints()
    log.roll()
    log.compaction.cleaned_to = None
    assert clean(log, late + 10_000, disk=place.disk) is not None
    directory.close(clean=True)


def known(log: Log) -> dict[bytes, bytes]:
    """What a read_committed reader of the whole log ends with."""
    aborted = {(one.producer_id, one.first_offset) for one in log.aborted(0, log.log_end)}
    active: set[int] = set()
    latest: dict[bytes, bytes | None] = {}
    for header, raw in log.batches():
        for one in [one for one in aborted if one[1] <= header.last_offset]:
            aborted.discard(one)
            active.add(one[0])
        if header.control:
            if header.count and next(iter_records(raw, header)).key == b"\0\0\0\0":
                active.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in active):
            latest |= {record.key or b"": record.value for record in iter_records(raw, header)}
    assert not active, "an aborted transaction without a marker hides what its producer writes later"
    return {key: value for key, value in latest.items() if value is not None}


def check_indexes(directory: Path, stop: int) -> None:
    """Below *stop*, whatever an index says is so in its log, and a `.txnindex` has markers of its segment alone."""
    for path in sorted(path for path in directory.glob("*.log") if int(path.stem) < stop):
        base, raw = int(path.stem), path.read_bytes()
        found = {position: header for position, header in walk(raw)}
        for entry in parse_index(path.with_suffix(".index").read_bytes(), base, path.name):
            assert found[entry.position].last_offset == entry.offset, path.name
        times = parse_time_index(path.with_suffix(".timeindex").read_bytes(), base, path.name)
        largest = max((header.max_timestamp_ms for header in found.values()), default=None)
        assert (times[-1].timestamp_ms if times else None) == largest, path.name
        if path.with_suffix(".txnindex").exists():
            markers = {header.base_offset for header in found.values() if header.control}
            entries = parse_txn_index(path.with_suffix(".txnindex").read_bytes(), path.name)
            assert {entry.marker_offset for entry in entries} <= markers, path.name


def check(place: Place, history: History) -> None:
    directory = place.open()
    log = directory.logs[TP]
    check_indexes(log.directory, max(history.written))
    assert not log.cuts
    assert not log.gaps
    at = 0
    for header, raw in log.batches():
        assert header.base_offset >= at
        at = header.next_offset
        for record in () if header.control else iter_records(raw, header):
            assert record == history.written[record.offset]
    assert known(log) == history.known()
    for record in history.committed[::7]:
        found = by_time(log, record.timestamp_ms)
        assert found is None or found.timestamp_ms >= record.timestamp_ms
    log.begin(9, 0)
    assert clean(log, history.clock_ms + 50_000, disk=place.disk) is not None or log.compaction.cleaned_to is not None
    assert known(log) == history.known()
    directory.close(clean=True)
    assert not [path.name for path in log.directory.iterdir() if path.suffix in (".cleaned", ".swap")]


def parts(in_ci: int) -> list[Any]:
    """All twelve together take every step; most of them only in the long suite."""
    return [*range(1, in_ci + 1), *(pytest.param(part, marks=pytest.mark.full) for part in range(in_ci + 1, 13))]


@pytest.mark.parametrize("part", parts(3))
def test_power_cut_at_every_step(part: int, tmp_path: Path) -> None:
    """Each part is another history."""
    before = tmp_path / "before"
    before.mkdir()
    history = prepare(Place(before, SETTINGS), part)
    whole = tmp_path / "whole"
    shutil.copytree(before, whole)
    counting = ModelDisk(whole)
    live(Place(whole, SETTINGS, disk=counting), history)
    check(Place(whole, SETTINGS), history)
    assert counting.steps > 60
    for dies_at in range(part, counting.steps + 1, 12):
        for how in ("killed", "nothing", "some"):
            root = tmp_path / "life"
            shutil.copytree(before, root)
            disk = ModelDisk(root, dies_at)
            with pytest.raises(PowerCut):
                live(Place(root, SETTINGS, disk=disk), history)
            if how != "killed":
                disk.lose_unsynced(Random(dies_at) if how == "some" else None)
            try:
                check(Place(root, SETTINGS), history)
            except BaseException as error:
                error.add_note(f"step {dies_at} ({disk.trace[-1]}), {how}; before: {disk.trace[-6:-1]}")
                raise
            shutil.rmtree(root)


def opened(root: Path, disk: ModelDisk) -> None:
    Place(root, SETTINGS, disk=disk).open().close(clean=False)


@pytest.mark.parametrize("part", parts(1))
def test_power_cut_again_in_the_start_that_finishes_a_swap(part: int, tmp_path: Path) -> None:
    before, whole, root, again = (tmp_path / name for name in ("before", "whole", "life", "again"))
    before.mkdir()
    history = prepare(Place(before, SETTINGS), part)
    shutil.copytree(before, whole)
    counting = ModelDisk(whole)
    live(Place(whole, SETTINGS, disk=counting), history)
    renames = [step for step, what in enumerate(counting.trace, 1) if what.startswith("replace") and ".log" in what]
    assert len(renames) > 6
    for number, dies_at in enumerate(renames):
        shutil.copytree(before, root)
        with pytest.raises(PowerCut):
            live(Place(root, SETTINGS, disk=ModelDisk(root, dies_at)), history)
        shutil.copytree(root, again)
        counting = ModelDisk(again)
        opened(again, counting)
        shutil.rmtree(again)
        for second in range(1 + (part + number) % 12, counting.steps + 1, 12):
            shutil.copytree(root, again)
            disk = ModelDisk(again, second)
            with pytest.raises(PowerCut):
                opened(again, disk)
            disk.lose_unsynced(Random(second) if second % 2 else None)
            try:
                check(Place(again, SETTINGS), history)
            except BaseException as error:
                error.add_note(f"step {dies_at}, then {second} ({disk.trace[-1]}); before: {disk.trace[-6:-1]}")
                raise
            shutil.rmtree(again)
        shutil.rmtree(root)
