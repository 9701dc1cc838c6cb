"""The model of a log with transactions: what readers of committed records see, whatever was cut off or cleaned."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import precondition, rule

from kit.log_machine import BOUNDED, PART, CompactedModel, LogModel, until_the_power_goes
from kit.log_model import client_batch
from kit.logs import T0, slice_bytes
from tierd.storage.batch import ControlType, encode_control_batch, parse_control, walk
from tierd.storage.records import Record, iter_records
from tierd.storage.view import AbortedTxn

WRITERS = st.integers(6, 8)


class Transactional(LogModel):
    """Producers 6 to 8 write in transactions only."""

    @property
    def unsure(self) -> bool:
        """A cut has left no trace of a producer that wrote in transactions, and no promise."""
        return any(producer >= 6 for producer in self.model.strangers)

    @rule(
        keys=st.lists(st.integers(0, 4), min_size=1, max_size=3),
        size=st.integers(0, 200),
        codec=st.sampled_from([0, 0, 4]),
        producer=WRITERS,
    )
    @until_the_power_goes
    def write_in_a_transaction(self, keys: list[int], size: int, codec: int, producer: int) -> None:
        if producer in self.model.strangers:
            return
        known = self.model.transactions()
        epoch, sequence = known.epochs.get(producer, 0), known.sequences.get(producer, 0)
        how: dict[str, Any] = {"producer": producer, "sequence": sequence, "epoch": epoch, "transactional": True}
        raw = client_batch(keys, size=size, at_ms=T0, codec=codec, **how)
        sent = self.model.sending(raw, producer, sequence, transactional=True)
        done = self.log.append(sent.again(), now_ms=T0, in_transaction=True)
        assert (done.first_offset, done.next_offset, done.duplicate) == (sent.first, sent.next_offset, False)
        self.model.appended()

    @precondition(lambda self: self.model.transactions().open)
    @rule(which=st.integers(0, 2), commit=st.booleans())
    @until_the_power_goes
    def end_a_transaction(self, which: int, commit: bool) -> None:
        known = self.model.transactions()
        producer = sorted(known.open)[which % len(known.open)]
        epoch = known.epochs.get(producer, 0) + 1
        kind = ControlType.COMMIT if commit else ControlType.ABORT
        marker: dict[str, int] = {"producer_id": producer, "producer_epoch": epoch, "coordinator_epoch": 0}
        self.model.sending(encode_control_batch(0, kind, timestamp_ms=T0, **marker), producer, 0, commit=commit)
        assert self.log.end_transaction(producer, epoch, 0, commit=commit, now_ms=T0, raised=True)
        self.model.appended()

    @precondition(lambda self: len(self.log.closed()) < 5)
    @rule(
        commits=st.lists(st.booleans(), min_size=2, max_size=4),
        keys=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    )
    def write_a_segment(self, commits: list[bool], keys: list[int]) -> None:
        """Transactions one after the other; one that was open may go on into the next segment."""
        for i, commit in enumerate(commits):
            self.write_in_a_transaction(keys=keys[i % len(keys) :], size=20, codec=0, producer=6 + i % 3)
            if self.model.transactions().open:
                self.end_a_transaction(which=i, commit=commit)
        if self.log.view().active_bytes:
            self.roll()

    def all_is_stable(self) -> None:
        assert self.log.last_stable == self.model.stable or self.unsure

    @precondition(lambda self: not self.unsure and self.model.stable > self.log.local_start)
    @rule(part=st.floats(0, 1, exclude_max=True), max_bytes=st.integers(1, 5000))
    def read_committed(self, part: float, max_bytes: int) -> None:
        start, stop = self.log.local_start, self.log.last_stable
        offset = start + int((stop - start) * part)
        found = self.log.read(offset, max_bytes, committed=True)
        found.release()
        raw = slice_bytes(self.log, offset, max_bytes, committed=True)
        seen, first, next_offset = shown(raw, found.aborted)
        assert next_offset <= stop
        hidden = self.model.transactions().aborted_offsets() | self.model.markers()
        wanted = self.model.within(min(first, offset), next_offset) if raw else []
        assert seen == [record for record in wanted if record.offset not in hidden]

    @precondition(lambda self: not self.unsure and not self.log.settings.compacted)
    @rule(part=PART, length=st.integers(0, 40))
    def look_for_aborted(self, part: float, length: int) -> None:
        start = max(int(self.model.end * part), self.log.local_start)
        stop = start + length
        wanted = [one for one in self.model.transactions().aborted if one[0] >= start and one[1] < stop]
        assert self.log.aborted(start, stop) == tuple(AbortedTxn(producer, first) for _, first, producer in wanted)


def shown(raw: bytes, aborted: tuple[AbortedTxn, ...]) -> tuple[list[Record], int, int]:
    """What a client of committed records takes from an answer; the offsets where it begins and ends."""
    ahead = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
    hidden: set[int] = set()
    seen: list[Record] = []
    first = stop = -1
    for position, header in walk(raw):
        first, stop = (header.base_offset if first < 0 else first), header.next_offset
        while ahead and ahead[-1].first_offset <= header.last_offset:
            hidden.add(ahead.pop().producer_id)
        records = list(iter_records(raw[position : position + header.size_bytes], header))
        if header.control:
            if records and parse_control(records[0])[0] == ControlType.ABORT:
                hidden.discard(header.producer_id)
        elif not (header.transactional and header.producer_id in hidden):
            seen += records
    return seen, first, stop


class TransactionalCompacted(Transactional, CompactedModel):
    """With cleaning, which takes what was aborted away."""


TestTransactional, TestTransactionalCompacted = Transactional.TestCase, TransactionalCompacted.TestCase
TestTransactional.settings = TestTransactionalCompacted.settings = BOUNDED


@pytest.mark.full
@pytest.mark.timeout(3600)
class TestTransactionalForLong(Transactional.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(BOUNDED, max_examples=2000, stateful_step_count=80)


@pytest.mark.full
@pytest.mark.timeout(3600)
class TestTransactionalCompactedForLong(TransactionalCompacted.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(BOUNDED, max_examples=2000, stateful_step_count=80)
