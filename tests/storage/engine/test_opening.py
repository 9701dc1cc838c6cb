"""Opening a data directory: how much is read, side by side, with progress, and stopped half-way."""

import threading
from pathlib import Path

import pytest

from kit.logs import SMALL, T0, TOPIC_ID, TP, Place, batch
from tierd.base.ids import TopicPartition
from tierd.storage.batch import patch
from tierd.storage.checkpoints import encode_checkpoint
from tierd.storage.directory import LogDirectory
from tierd.storage.names import RECOVERY_POINT_CHECKPOINT, Suffix, segment_file
from tierd.storage.progress import OpeningStopped, Progress
from tierd.storage.snapshot import encode_snapshot
from tierd.storage.timeindex import encode_time_entry

MANY = 10_000


def read_bytes() -> int:
    """What this process has read so far, from whatever file."""
    return int(Path("/proc/self/io").read_text().split("rchar: ")[1].split()[0])


def opened(place: Place, told: list[Progress] | None = None) -> LogDirectory:
    return place.open(settings=SMALL, on_progress=(told if told is not None else []).append)


def many(root: Path, count: int) -> Place:
    """A log of *count* closed segments with one batch of one record each, as a kill left it."""
    place = Place(root)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(1, size=300), now_ms=T0)
    directory.write_checkpoints()
    directory.close(clean=False)
    folder, raw = place.data / f"{TP}", batch(1, size=300)
    for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
        (folder / segment_file(0, suffix)).unlink()
    for base in range(count):
        patch(raw, 0, base, 0)
        (folder / segment_file(base, Suffix.LOG)).write_bytes(raw)
        (folder / segment_file(base, Suffix.INDEX)).write_bytes(b"")
        (folder / segment_file(base, Suffix.TIME_INDEX)).write_bytes(encode_time_entry(T0, base, base))
        (folder / segment_file(base, Suffix.SNAPSHOT)).write_bytes(encode_snapshot([]))
    (folder / segment_file(count, Suffix.LOG)).write_bytes(b"")
    (folder / segment_file(count, Suffix.SNAPSHOT)).write_bytes(encode_snapshot([]))
    return place


def test_a_start_reads_what_the_recovery_point_demands(tmp_path: Path) -> None:
    place = many(tmp_path, MANY)
    segment_bytes = (place.data / f"{TP}" / segment_file(0, Suffix.LOG)).stat().st_size
    (place.data / RECOVERY_POINT_CHECKPOINT).write_bytes(encode_checkpoint({TP: MANY - 10}))
    told: list[Progress] = []
    before = read_bytes()
    directory = opened(place, told)
    used = read_bytes() - before
    log = directory.logs[TP]
    assert (log.log_end, log.recovery_point, len(log.closed())) == (MANY, MANY - 10, MANY)
    assert used < 10 * segment_bytes + 4096
    assert told[0].segments_left == 11  # the active one, too
    assert told[-1] == Progress(place.data, 1, 0, 0, 0)

    before = read_bytes()
    assert log.view().closed[0].largest_timestamp_ms == T0
    assert read_bytes() - before <= MANY * 12 + 4096, "one entry of each time index tells how old its segment is"

    directory.close(clean=True)
    before = read_bytes()
    directory = opened(place)
    assert read_bytes() - before < 8192, "after a clean stop nothing is read again"
    assert directory.logs[TP].log_end == MANY
    directory.close(clean=False)


def test_without_a_checkpoint_everything_is_read_once(tmp_path: Path) -> None:
    place = many(tmp_path, 500)
    (place.data / RECOVERY_POINT_CHECKPOINT).unlink()
    total = sum(path.stat().st_size for path in (place.data / f"{TP}").glob("*.log"))
    told: list[Progress] = []
    before = read_bytes()
    directory = opened(place, told)
    used = read_bytes() - before
    assert total <= used < total * 1.2
    assert directory.logs[TP].log_end == 500
    left = [one.bytes_left for one in told]
    assert left == sorted(left, reverse=True)
    assert total - told[0].bytes_left < 1000
    assert told[-1] == Progress(place.data, 1, 0, 0, 0)
    directory.close(clean=False)


def several(root: Path, count: int = 12) -> Place:
    """*count* logs of a few segments each, as a kill leaves them."""
    place = Place(root)
    directory = place.open()
    for number in range(count):
        log = directory.create(TopicPartition("t", number), TOPIC_ID, SMALL)
        log.begin(0, 0)
        for i in range(40):
            log.append(batch(2, size=200, at_ms=T0 + i), now_ms=T0 + i)
    directory.close(clean=False)
    return place


def test_logs_are_opened_side_by_side(tmp_path: Path) -> None:
    place = several(tmp_path)
    together = threading.Barrier(2, timeout=30)
    first_two = iter(range(2))
    names: set[str] = set()
    real = place.disk.write_new

    def write_new(path: Path, data: bytes) -> None:
        names.add(threading.current_thread().name)
        if next(first_two, None) is not None:
            together.wait()  # passes only when two threads are in here at once
        real(path, data)

    place.disk.write_new = write_new  # type: ignore[method-assign,assignment]
    directory = opened(place)
    assert len(names) > 1
    assert {log.log_end for log in directory.logs.values()} == {80}
    assert [tp.partition for tp in directory.logs] == list(range(12))
    directory.close(clean=True)


def test_opening_can_be_stopped(tmp_path: Path) -> None:
    place = several(tmp_path)

    def stop(progress: Progress) -> None:
        if progress.segments_left < progress.logs * 3:
            raise OpeningStopped

    with pytest.raises(OpeningStopped):
        place.open(settings=SMALL, on_progress=stop)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("open")]
    directory = opened(place)  # nothing is locked any more, nothing is lost
    assert {log.log_end for log in directory.logs.values()} == {80}
    directory.close(clean=False)


def test_an_io_error_ends_the_opening(tmp_path: Path) -> None:
    place = several(tmp_path)
    file = place.data / "t-7" / segment_file(0, Suffix.LOG)
    file.unlink()
    file.symlink_to(file)  # opening it fails with ELOOP
    with pytest.raises(OSError, match="t-7"):
        opened(place)
    file.unlink()
    directory = opened(place)
    assert len(directory.logs) == 12
    directory.close(clean=False)
