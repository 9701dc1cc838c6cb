"""What leaves a log: eviction, log start; never what an open transaction holds."""

from dataclasses import replace

from kit.compaction import flush
from kit.logs import SMALL, T0, TP, Opened, batch, fill

TIERED = replace(SMALL, remote_storage_enable=True, file_delete_delay_ms=0)


def test_eviction_moves_local_start_only(opened: Opened) -> None:
    opened.place.settings = opened.log.settings = TIERED
    fill(opened.log, 60)
    third = opened.log.closed()[2]
    assert opened.log.evict(third.next_base) == 0  # nothing is flushed yet
    flush(opened.log)
    assert opened.log.evict(third.next_base - 1) == third.base
    assert opened.log.evict(third.next_base) == third.next_base
    assert opened.log.evict(0) == third.next_base
    assert opened.log.log_start == 0
    listed = (opened.place.data / "log-start-offset-checkpoint").read_text()
    assert listed == f"0\n1\n{TP.topic} {TP.partition} 0\n"
    marked = [path for path in opened.log.directory.iterdir() if path.suffix == ".deleted"]
    assert len(marked) >= 9
    assert opened.directory.purge() == len(marked)
    log = opened.again(clean=False)
    assert (log.log_start, log.local_start) == (0, third.next_base)


def test_an_open_transaction_is_never_evicted(opened: Opened) -> None:
    opened.log.settings = TIERED
    opened.log.append(batch(2, producer=(7, 0, 0), attributes=0x10), now_ms=T0, internal=True)
    fill(opened.log, 60)
    flush(opened.log)
    assert opened.log.evict(opened.log.log_end) == 0


def test_log_start_survives_and_takes_segments_along(opened: Opened) -> None:
    fill(opened.log, 60)
    second = opened.log.closed()[1]
    assert opened.log.move_log_start(second.base + 3) == second.base + 3
    assert opened.log.closed()[0].base == second.base
    assert opened.log.move_log_start(1) == second.base + 3
    for clean in (False, True):
        log = opened.again(clean=clean)
        assert (log.log_start, log.local_start) == (second.base + 3, second.base + 3)
        assert log.epochs[0].start_offset == second.base + 3
    assert log.move_log_start(10**9) == log.log_end
