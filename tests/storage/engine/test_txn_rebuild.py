"""A `.txnindex` that is damaged is made again from the log: readers see what they saw."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.compaction import flush
from kit.logs import T0, TP, Opened, batch, slice_bytes
from tierd.base.errors import CorruptFile
from tierd.storage.log import Log
from tierd.storage.setaside import TXN_LISTED
from tierd.storage.txn_rebuild import find_aborted
from tierd.storage.txnindex import ENTRY_BYTES, parse_txn_index
from tierd.storage.view import AbortedTxn


def write_transactions(log: Log, *, segments: int = 4) -> None:
    """Three producers take turns, two of three transactions are aborted; some reach over the end of a segment."""
    sequences, epochs = {7: 0, 8: 0, 9: 0}, dict.fromkeys((7, 8, 9), 0)
    ended = 0
    for turn in range(10_000):
        producer = (7, 8, 7, 9)[turn % 4]
        raw = batch(2, size=60, producer=(producer, epochs[producer], sequences[producer]), attributes=0x10)
        log.append(raw, now_ms=T0, in_transaction=True)
        sequences[producer] += 2
        if turn % 5 == 4 or producer == 9:
            epochs[producer], sequences[producer] = epochs[producer] + 1, 0
            log.end_transaction(producer, epochs[producer], 0, commit=ended % 3 == 0, now_ms=T0, raised=True)
            ended += 1
        if len(log.closed()) == segments:
            return


def everything(log: Log) -> list[tuple[AbortedTxn, ...]]:
    return [log.aborted(at, at + 20) for at in range(0, log.log_end, 7)]


def flip(at: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[at] ^= 0x07
        path.write_bytes(raw)

    return damage


DAMAGE: dict[str, Callable[[Path], object]] = {
    "random": lambda path: path.write_bytes(random.Random(5).randbytes(path.stat().st_size)),
    "torn": lambda path: os.truncate(path, path.stat().st_size - 10),
    "an entry less": lambda path: os.truncate(path, path.stat().st_size - ENTRY_BYTES),
    "producer": flip(2 + 7),
    "first offset": flip(2 + 8 + 7),
    "version": flip(1),
    "marker": flip(2 + 8 + 8 + 6),
    "last marker": flip(-14),
    "last stable": flip(-6),
    "empty": lambda path: os.truncate(path, 0),
}


@pytest.fixture
def damaged(opened: Opened) -> Opened:
    write_transactions(opened.log)
    return opened


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_index_is_made_again_on_first_use(damaged: Opened, kind: str) -> None:
    log = damaged.log
    before, end = everything(log), log.log_end
    victim = sorted(log.directory.glob("*.txnindex"))[2]
    good = victim.read_bytes()
    damaged.directory.close(clean=True)
    DAMAGE[kind](victim)
    bad = victim.read_bytes()
    damaged.directory = damaged.place.open()
    log = damaged.directory.logs[TP]
    assert everything(log) == before
    assert victim.read_bytes() == good
    assert log.log_end == end
    aside = [path.read_bytes() for path in damaged.place.set_aside.rglob(f"{victim.name}*")]
    assert aside == ([bad] if bad else [])


@pytest.mark.parametrize("less_bytes", [3, ENTRY_BYTES])
def test_of_the_active_segment_too(damaged: Opened, less_bytes: int) -> None:
    log = damaged.log
    before = everything(log)
    damaged.directory.close(clean=True)
    victim = max(log.directory.glob("*.txnindex"))
    good = victim.read_bytes()
    os.truncate(victim, len(good) - less_bytes)
    damaged.directory = damaged.place.open()
    assert everything(damaged.directory.logs[TP]) == before
    assert victim.read_bytes() == good


def test_what_was_open_at_the_start_is_found_without_the_snapshot(damaged: Opened) -> None:
    log = damaged.log
    for path in log.directory.glob("*.snapshot"):
        path.unlink()
    indexes = sorted(log.directory.glob("*.txnindex"))
    assert len(indexes) > 2
    for path in indexes[:-1]:
        base = int(path.stem)
        found = find_aborted(log.directory, base, path.with_suffix(".log").stat().st_size)
        assert found == parse_txn_index(path.read_bytes())
    spans = [
        entry for path in indexes for entry in parse_txn_index(path.read_bytes()) if entry.first_offset < int(path.stem)
    ]
    assert spans


def test_nothing_is_made_up_when_nobody_knows_what_was_open(damaged: Opened) -> None:
    log = damaged.log
    gone, base = log.closed()[0], log.closed()[1].base
    for path in [*log.directory.glob("*.snapshot"), *log.directory.glob(f"{gone.base:020d}.*")]:
        path.unlink()
    with pytest.raises(CorruptFile, match="no producer snapshot"):
        find_aborted(log.directory, base, log.closed()[1].size_bytes)


def test_an_index_is_read_once(damaged: Opened) -> None:
    log = damaged.again()
    before = everything(log)
    for path in log.directory.glob("*.txnindex"):
        path.unlink()
    assert everything(log) == before
    assert slice_bytes(log, 0, committed=True)


def test_one_that_vanishes_comes_back(damaged: Opened) -> None:
    log = damaged.again()
    victim = sorted(log.directory.glob("*.txnindex"))[1]
    good = victim.read_bytes()
    victim.unlink()
    everything(log)
    assert victim.read_bytes() == good
    assert len(good) % ENTRY_BYTES == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("which", [0, 1, 2, -1])
def test_one_that_is_missing_at_a_start_is_made_again(damaged: Opened, which: int, clean: bool) -> None:
    log = damaged.log
    before = everything(log)
    flush(log)
    damaged.directory.close(clean=clean)
    victim = sorted(log.directory.glob("*.txnindex"))[which]
    good = victim.read_bytes()
    victim.unlink()
    log = damaged.again()
    assert everything(log) == before
    assert victim.read_bytes() == good


@pytest.mark.parametrize("clean", [True, False])
def test_an_entry_that_a_kill_has_taken_is_missed(damaged: Opened, clean: bool) -> None:
    log = damaged.log
    before = everything(log)
    flush(log)
    damaged.directory.close(clean=clean)
    victim = sorted(log.directory.glob("*.txnindex"))[1]
    good = victim.read_bytes()
    os.truncate(victim, len(good) - ENTRY_BYTES)
    for again in (False, True):  # the second start finds it out although nobody has looked at the first
        damaged.directory = damaged.place.open()
        if again:
            assert everything(damaged.directory.logs[TP]) == before
        damaged.directory.close(clean=True)
    assert victim.read_bytes() == good


def test_of_a_log_that_is_another_now_no_index_is_missed(damaged: Opened) -> None:
    """A Kafka has cleaned it meanwhile."""
    log = damaged.log
    base = log.closed()[1].base
    damaged.directory.close(clean=True)
    [path] = (damaged.place.set_aside.parent / TXN_LISTED / str(TP)).iterdir()
    rows = json.loads(path.read_bytes())
    path.write_text(json.dumps([[one, size + 1, index + 340, 7] for one, size, index, _ in rows if one == base]))
    log = damaged.again()
    everything(log)
    assert damaged.place.set_aside_files() == []


def test_a_list_of_an_older_tierd_counts(damaged: Opened) -> None:
    log = damaged.log
    before = everything(log)
    damaged.directory.close(clean=True)
    [path] = (damaged.place.set_aside.parent / TXN_LISTED / str(TP)).iterdir()
    path.write_text(json.dumps([row[0] for row in json.loads(path.read_bytes())]))
    min(log.directory.glob("*.txnindex")).unlink()
    assert everything(damaged.again()) == before
    damaged.directory.close(clean=True)
    assert {len(row) for row in json.loads(path.read_bytes())} == {4}


def test_the_list_follows_the_segments_and_goes_with_the_log(damaged: Opened) -> None:
    log, folder = damaged.log, damaged.place.set_aside.parent / TXN_LISTED / str(TP)
    flush(log)
    [path] = folder.iterdir()

    def there() -> list[int]:
        return sorted(int(one.stem) for one in log.directory.glob("*.txnindex"))

    def listed() -> list[int]:
        return [base for base, *_ in json.loads(path.read_bytes())]

    assert listed() == there() == [segment.base for segment in log.closed()]
    log.move_log_start(log.closed()[1].base)
    damaged.directory.close(clean=True)
    assert listed() == there()
    path.write_text("[1, {}]")
    assert everything(damaged.again())
    damaged.directory.close(clean=True)
    assert listed() == there()
    damaged.again()
    damaged.directory.remove(TP)
    assert not path.exists()
