"""A log and a plain list of batches do the same things; afterwards they must say the same."""

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit.logs import SMALL, T0, TP, Place, batch, by_time, largest_timestamp, slice_bytes
from kit.model_disk import ModelDisk
from tierd.storage.batch import parse_header
from tierd.storage.log import Log

TIERED = replace(SMALL, internal_segment_bytes=900, remote_storage_enable=True, file_delete_delay_ms=0)


@dataclass
class Written:
    base: int
    raw: bytes

    @property
    def next_offset(self) -> int:
        return parse_header(self.raw).next_offset


class LogModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tierd-model-"))
        self.place = Place(self.root, TIERED, disk=ModelDisk(self.root))
        self.directory = self.place.open()
        self.log: Log = self.place.new_log(self.directory)
        self.epoch = 0
        self.batches: list[Written] = []
        self.end = 0
        self.log_start = 0
        self.sequence = 0

    def teardown(self) -> None:
        self.directory.close(clean=False)
        shutil.rmtree(self.root)

    @rule(
        count=st.integers(1, 4),
        size=st.integers(0, 300),
        late_ms=st.integers(-5000, 5000),
        codec=st.sampled_from([0, 0, 0, 1, 4]),
        idempotent=st.booleans(),
    )
    def append(self, count: int, size: int, late_ms: int, codec: int, idempotent: bool) -> None:
        producer = (3, 0, self.sequence) if idempotent else None
        raw = batch(count, size=size, at_ms=T0 + late_ms, codec=codec, producer=producer)
        copy = memoryview(bytearray(raw))
        done = self.log.append(raw, now_ms=T0)
        assert (done.first_offset, done.next_offset) == (self.end, self.end + count)
        self.batches.append(Written(self.end, bytes(raw)))
        self.end += count
        if idempotent:
            self.sequence += count
            assert self.log.append(copy, now_ms=T0).first_offset == done.first_offset

    @rule()
    def roll(self) -> None:
        empty = not self.log.view().active_bytes
        assert self.log.roll() != empty

    @rule(active=st.booleans())
    def flush(self, active: bool) -> None:
        job = self.log.unflushed(active=active)
        if job is not None:
            job.run()
            self.log.flushed(job)
        assert self.log.recovery_point >= self.log.view().active_base or job is None

    @rule(part=st.floats(0, 1))
    def evict(self, part: float) -> None:
        before = self.log.local_start
        now = self.log.evict(int(self.end * part))
        assert before <= now <= max(before, int(self.end * part))
        assert now <= self.log.recovery_point or now == before

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        self.log_start = max(self.log_start, int(self.end * part))
        assert self.log.move_log_start(self.log_start) == self.log_start

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        local_start, views = self.log.local_start, self.log.closed()
        self.directory.close(clean=clean)
        self.place.disk = ModelDisk(self.root)
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        assert self.log.local_start == local_start
        assert self.log.closed() == views
        self.epoch += 1
        self.log.begin(self.epoch, 0)

    @rule()
    def purge(self) -> None:
        self.directory.purge()

    @precondition(lambda self: self.end > self.log.local_start)
    @rule(part=st.floats(0, 1, exclude_max=True), max_bytes=st.integers(1, 5000))
    def read(self, part: float, max_bytes: int) -> None:
        start = self.log.local_start
        offset = start + int((self.end - start) * part)
        want = b""
        for written in self.batches:
            if written.next_offset > offset:
                if want and len(want) + len(written.raw) > max_bytes:
                    break
                want += written.raw
        assert slice_bytes(self.log, offset, max_bytes) == want

    @rule(late_ms=st.integers(-6000, 6000))
    def look_up_a_time(self, late_ms: int) -> None:
        found = by_time(self.log, T0 + late_ms)
        got = None if found is None else (found.offset, found.timestamp_ms)
        assert got == next((pair for pair in self.times() if pair[1] >= T0 + late_ms), None)

    @rule()
    def look_up_the_largest_time(self) -> None:
        found = largest_timestamp(self.log)
        got = None if found is None else (found.offset, found.timestamp_ms)
        assert got == max(self.times(), key=lambda pair: pair[1], default=None)  # the first of equal ones

    def times(self) -> list[tuple[int, int]]:
        """(offset, timestamp) of every local record."""
        found = []
        for written in self.batches:
            header = parse_header(written.raw)
            found += [(written.base + i, header.base_timestamp_ms + i) for i in range(header.count)]
        return [(offset, timestamp_ms) for offset, timestamp_ms in found if offset >= self.log.local_start]

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.log
        assert log.log_end == self.end == log.high_watermark == log.last_stable
        assert log.log_start == self.log_start <= log.local_start <= log.log_end
        view = log.view()
        assert [one.next_base for one in view.closed] == [two.base for two in view.closed[1:]] + (
            [view.active_base] if view.closed else []
        )


LogModel.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestLog = LogModel.TestCase
