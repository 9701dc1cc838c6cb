"""A log and a plain list (`log_model`) do the same things, and the power goes in between: machines for Hypothesis."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit import compaction
from kit.log_model import Model, client_batch
from kit.logs import SMALL, T0, TOPIC_ID, TP, Place, by_time, largest_timestamp, slice_bytes
from kit.model_disk import ModelDisk, PowerCut
from tierd.broker.retention import released
from tierd.config.topic import TopicSettings
from tierd.storage.batch import walk
from tierd.storage.errors import OutOfOrderSequence
from tierd.storage.identity import write_topic_id
from tierd.storage.log import Log
from tierd.storage.records import iter_records

TIERED = replace(SMALL, internal_segment_bytes=900, remote_storage_enable=True, file_delete_delay_ms=0)
COMPACTED = replace(
    TIERED, cleanup_policy=frozenset({"compact", "delete"}), min_cleanable_dirty_ratio=0.0, delete_retention_ms=10**12
)
KILLED, NOTHING, SOME = "killed", "nothing not fsynced is left", "some of it is left"
PRODUCERS = st.sampled_from([None, 3, 4, 5])
PART = st.floats(0, 1)
BOUNDED = settings(max_examples=25, stateful_step_count=40, deadline=None)


def until_the_power_goes(work: Callable[..., None]) -> Callable[..., None]:
    """When it goes in the middle of *work*, the machine boots again."""

    @wraps(work)
    def done(self: "LogModel", **how: Any) -> None:
        try:
            work(self, **how)
        except PowerCut:
            self.boot()

    return done


class LogModel(RuleBasedStateMachine):
    """What every log can do."""

    settings_of_topic: TopicSettings = TIERED

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tierd-model-"))
        self.place = Place(self.root, self.settings_of_topic, disk=ModelDisk(self.root))
        self.directory = self.place.open()
        self.log: Log = self.place.new_log(self.directory)
        self.model = Model()
        self.epoch = 0
        self.local_limit = 0
        """Local start is not above it, whatever was under way."""
        self.how, self.chance = KILLED, Random(0)

    def teardown(self) -> None:
        self.directory.close(clean=False)
        shutil.rmtree(self.root)

    @property
    def disk(self) -> ModelDisk:
        assert isinstance(self.place.disk, ModelDisk)
        return self.place.disk

    # -- the power --

    @rule(steps=st.integers(1, 40), how=st.sampled_from([KILLED, NOTHING, SOME]), seed=st.integers(0, 99))
    def power_is_about_to_go(self, steps: int, how: str, seed: int) -> None:
        self.disk.dies_at, self.how, self.chance = self.disk.steps + steps, how, Random(seed)

    def boot(self) -> None:
        self.model.durable_to = max(self.model.durable_to, self.log.recovery_point)
        self.directory.close(clean=False)
        lost = self.how != KILLED
        if lost:
            self.disk.lose_unsynced(self.chance if self.how == SOME else None)
            self.place.disk = ModelDisk(self.root)
        else:
            self.disk.power_on()
        self.directory = self.place.open()
        if TP in self.directory.unidentified:  # whose registry knows it
            write_topic_id(self.directory.unidentified[TP], self.disk, TOPIC_ID)
            self.directory.close(clean=False)
            self.directory = self.place.open()
        if TP in self.directory.logs:
            self.log = self.directory.logs[TP]
            assert self.log.local_start <= max(self.local_limit, self.log.log_start)
            self.model.learn(self.log, lost=lost)
            self.begin()
        else:
            assert lost
            assert not self.model.durable_to
            self.log, self.model = self.place.new_log(self.directory, self.epoch), Model()

    def begin(self) -> None:
        self.epoch += 1
        self.log.begin(self.epoch, 0)
        self.model.skip_to(self.log.log_start)
        self.local_limit = self.log.local_start

    # -- appending --

    @rule(
        keys=st.lists(st.integers(0, 4), min_size=1, max_size=4),
        size=st.integers(0, 300),
        late_ms=st.integers(-5000, 5000),
        codec=st.sampled_from([0, 0, 0, 1, 4]),
        producer=PRODUCERS,
    )
    @until_the_power_goes
    def append(self, keys: list[int], size: int, late_ms: int, codec: int, producer: int | None) -> None:
        producer = None if producer in self.model.strangers else producer
        sequence = 0 if producer is None else self.model.next_sequence(producer)
        raw = client_batch(keys, size=size, at_ms=T0 + late_ms, codec=codec, producer=producer, sequence=sequence)
        sent = self.model.sending(raw, producer, sequence)
        done = self.log.append(sent.again(), now_ms=T0)
        assert (done.first_offset, done.next_offset, done.duplicate) == (sent.first, sent.next_offset, False)
        self.model.appended()

    @rule(producer=st.integers(3, 5))
    def send_the_last_one_again(self, producer: int) -> None:
        last = None if producer in self.model.strangers else self.model.last_of(producer)
        if last is not None:
            done = self.log.append(last.again(), now_ms=T0)
            assert (done.first_offset, done.next_offset, done.duplicate) == (last.first, last.next_offset, True)

    @rule(producer=st.integers(3, 5), skipped=st.integers(1, 9))
    def leave_sequences_out(self, producer: int, skipped: int) -> None:
        if producer not in self.model.strangers and self.model.last_of(producer) is not None:
            sequence = self.model.next_sequence(producer) + skipped
            raw = client_batch([0], size=1, at_ms=T0, codec=0, producer=producer, sequence=sequence)
            with pytest.raises(OutOfOrderSequence):
                self.log.append(memoryview(bytearray(raw)), now_ms=T0)

    # -- what is done to the files --

    @rule()
    @until_the_power_goes
    def roll(self) -> None:
        empty = not self.log.view().active_bytes
        assert self.log.roll() != empty

    @rule(active=st.booleans())
    @until_the_power_goes
    def flush(self, active: bool) -> None:
        job = self.log.unflushed(active=active)
        if job is not None:
            job.run()
            self.log.flushed(job)
            self.model.durable_to = max(self.model.durable_to, job.upto)
        assert self.log.recovery_point >= self.log.view().active_base or job is None

    @rule(part=PART)
    @until_the_power_goes
    def evict(self, part: float) -> None:
        before, target = self.log.local_start, int(self.model.end * part)
        self.local_limit = max(self.local_limit, target)
        now = self.log.evict(target)
        assert before <= now <= max(before, target)
        assert now <= self.log.recovery_point or now == before
        self.local_limit = now

    @rule(part=PART)
    @until_the_power_goes
    def delete_records(self, part: float) -> None:
        self.move_log_start(max(self.model.log_start, int(self.model.end * part)))

    def move_log_start(self, target: int) -> None:
        self.model.moving_to = target
        self.local_limit = max(self.local_limit, target)
        assert self.log.move_log_start(target) == target
        self.model.moved(target)
        self.local_limit = self.log.local_start

    @rule(keep_bytes=st.integers(0, 4000))
    @until_the_power_goes
    def retain(self, keep_bytes: int) -> None:
        view = self.log.view()
        start = released(replace(view, settings=replace(view.settings, retention_bytes=keep_bytes)), T0)
        if start > view.log_start:
            before = self.log.size_bytes
            self.move_log_start(start)
            assert self.log.size_bytes >= min(before, keep_bytes)
        elif view.closed and view.closed[0].next_base <= start:
            self.log.start_moved(start)()
        view = self.log.view()
        assert not view.closed or self.log.size_bytes - view.closed[0].size_bytes < keep_bytes

    @rule()
    @until_the_power_goes
    def purge(self) -> None:
        self.directory.purge()

    @rule()
    @until_the_power_goes
    def write_checkpoints(self) -> None:
        self.directory.write_checkpoints()

    @rule(clean=st.booleans())
    @until_the_power_goes
    def restart(self, clean: bool) -> None:
        local_start, views, points = self.log.local_start, self.log.closed(), self.log.recovery_point
        self.directory.close(clean=clean)
        self.model.durable_to = max(self.model.durable_to, self.model.end if clean else points)
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        assert self.log.local_start == local_start
        assert self.log.closed() == views
        assert self.log.recovery_point == self.model.end or self.log.recovery_point <= points
        self.begin()

    # -- what readers see --

    @precondition(lambda self: self.model.end > self.log.local_start)
    @rule(part=st.floats(0, 1, exclude_max=True), max_bytes=st.integers(1, 5000))
    def read(self, part: float, max_bytes: int) -> None:
        start = self.log.local_start
        offset = start + int((self.model.end - start) * part)
        raw = slice_bytes(self.log, offset, max_bytes)
        found = [header for _, header in walk(raw)]
        if not found:  # of a compacted log nothing tells that the last records before its end were lost in a cut
            assert self.log.settings.compacted
            assert list(self.log.batches(offset)) == []
            return
        assert found[0].next_offset > offset
        assert len(raw) <= max_bytes or len(found) == 1
        at, records = 0, []
        for header in found:
            records += iter_records(raw[at : at + header.size_bytes], header)
            at += header.size_bytes
        first = min(offset, found[0].base_offset)
        assert records == self.model.within(first, found[-1].next_offset)

    @rule(late_ms=st.integers(-6000, 6000))
    def look_up_a_time(self, late_ms: int) -> None:
        found = by_time(self.log, T0 + late_ms)
        got = None if found is None else (found.offset, found.timestamp_ms)
        times = self.model.times(self.log.local_start)
        assert got == next((pair for pair in times if pair[1] >= T0 + late_ms), None)

    @rule()
    def look_up_the_largest_time(self) -> None:
        """Unless a batch that compaction has emptied is later than all records: it keeps its time, as with Kafka."""
        emptied = [header.max_timestamp_ms for header, _ in self.log.batches() if not header.count]
        found = largest_timestamp(self.log)
        got = None if found is None else (found.offset, found.timestamp_ms)
        times = self.model.times(self.log.local_start)
        largest = max(times, key=lambda pair: pair[1], default=None)  # the first of equal ones
        if largest is None or max(emptied, default=0) < largest[1]:
            assert got == largest

    @invariant()
    def offsets_are_in_order(self) -> None:
        log, model = self.log, self.model
        assert log.log_end == model.end == log.high_watermark
        self.all_is_stable()
        assert log.log_start == model.log_start <= log.local_start <= log.log_end
        view = log.view()
        assert [one.next_base for one in view.closed] == [two.base for two in view.closed[1:]] + (
            [view.active_base] if view.closed else []
        )

    def all_is_stable(self) -> None:
        assert self.log.last_stable == self.model.end


class CompactedModel(LogModel):
    """Segments above what was evicted, that is copied, are cleaned, too."""

    settings_of_topic = COMPACTED

    def __init__(self) -> None:
        super().__init__()
        self.copied_to: int | None = None

    @rule()
    @until_the_power_goes
    def clean(self) -> None:
        copied_to = self.log.local_start
        plan = compaction.plan(self.log, T0, copied_to)
        if plan is not None:
            self.model.cleaning(plan.start, plan.first_dirty, plan.stop)
            report = compaction.clean(self.log, T0, copied_to=copied_to, disk=self.disk)
            assert report is not None
            assert report.cleaned_to == plan.stop
            self.model.cleaned()
