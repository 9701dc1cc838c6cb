"""A log and a plain list take the same transactions, are killed and damaged, and must name the same aborts."""

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kit.logs import SMALL, T0, TP, Place, batch
from kit.model_disk import ModelDisk, PowerCut
from tierd.storage.log import Log
from tierd.storage.view import AbortedTxn

PRODUCERS = st.integers(3, 5)
Aborted = tuple[int, int, int]
"""Marker, first offset, producer."""


@dataclass
class Transactions:
    """The list."""

    end: int = 0
    open: dict[int, int] = field(default_factory=dict)
    """Producer -> first offset."""
    sequences: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    aborted: list[Aborted] = field(default_factory=list)

    def written(self, producer: int | None, count: int) -> None:
        if producer is not None:
            self.open.setdefault(producer, self.end)
            self.sequences[producer] = self.sequences.get(producer, 0) + count
        self.end += count

    def ended(self, producer: int, *, commit: bool) -> None:
        first = self.open.pop(producer)
        if not commit:
            self.aborted.append((self.end, first, producer))
        self.epochs[producer] = self.epochs.get(producer, 0) + 1
        self.sequences[producer] = 0
        self.end += 1

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def within(self, start: int, stop: int) -> tuple[AbortedTxn, ...]:
        return tuple(
            AbortedTxn(producer, first) for marker, first, producer in self.aborted if marker >= start and first < stop
        )


class TransactionModel(RuleBasedStateMachine):
    """What is done to the log, and what must hold after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="tierd-model-"))
        self.disk = ModelDisk(self.root)
        self.place = Place(self.root, SMALL, disk=self.disk)
        self.directory = self.place.open()
        self.log: Log = self.place.new_log(self.directory)
        self.model = Transactions()

    def teardown(self) -> None:
        self.directory.close(clean=False)
        shutil.rmtree(self.root)

    @rule(producer=st.one_of(st.none(), PRODUCERS), count=st.integers(1, 3), size=st.integers(0, 400))
    def write(self, producer: int | None, count: int, size: int) -> None:
        end = self.model.end
        try:
            self.log.append(self._batch(producer, count, size), now_ms=T0, in_transaction=producer is not None)
        except PowerCut:
            self.directory.close(clean=False)
            self._open()
        if self.log.log_end > end:
            self.model.written(producer, count)

    def _batch(self, producer: int | None, count: int, size: int) -> memoryview:
        if producer is None:
            return batch(count, size=size)
        known = (producer, self.model.epochs.get(producer, 0), self.model.sequences.get(producer, 0))
        return batch(count, size=size, producer=known, attributes=0x10)

    @precondition(lambda self: self.model.open)
    @rule(which=st.integers(0, 2), commit=st.booleans())
    def end(self, which: int, commit: bool) -> None:
        producer = sorted(self.model.open)[which % len(self.model.open)]
        end, epoch = self.model.end, self.model.epochs.get(producer, 0) + 1
        try:
            assert self.log.end_transaction(producer, epoch, 0, commit=commit, now_ms=T0, raised=True)
        except PowerCut:
            self.directory.close(clean=False)
            self._open()
        if self.log.log_end > end:
            self.model.ended(producer, commit=commit)

    @rule(commits=st.lists(st.booleans(), min_size=2, max_size=6))
    def whole_segment(self, commits: list[bool]) -> None:
        """Transactions one after the other; one that was open may go on into the next segment."""
        for i, commit in enumerate(commits):
            self.write(3 + i % 3, 2, 100)
            if self.model.open:
                self.end(i, commit)
        self.roll()

    @rule()
    def roll(self) -> None:
        try:
            self.log.roll()
        except PowerCut:
            self.directory.close(clean=False)
            self._open()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        try:
            self.directory.close(clean=clean)
        except PowerCut:
            self.directory.close(clean=False)
        self._open()

    @rule(steps=st.integers(1, 12))
    def the_daemon_is_about_to_be_killed(self, steps: int) -> None:
        self.disk.dies_at = self.disk.steps + steps

    @precondition(lambda self: self.model.aborted and self.disk.dies_at is None)
    @rule(which=st.integers(0, 5), left=st.integers(0, 33))
    def an_index_is_damaged(self, which: int, left: int) -> None:
        """Between two runs; the active segment's as well."""
        self.directory.close(clean=True)
        indexes = sorted(self.log.directory.glob("*.txnindex"))
        if indexes:
            path = indexes[which % len(indexes)]
            os.truncate(path, path.stat().st_size - 34 + left)
        self._open()

    def _open(self) -> None:
        self.disk.power_on()
        self.directory = self.place.open()
        self.log = self.directory.logs[TP]
        self.log.begin((self.log.epochs[-1].epoch if self.log.epochs else 0) + 1, 0)

    @rule(start=st.floats(0, 1), length=st.integers(0, 40))
    def look(self, start: float, length: int) -> None:
        at = int(self.model.end * start)
        assert self.log.aborted(at, at + length) == self.model.within(at, at + length)

    @invariant()
    def all_aborts_are_known(self) -> None:
        assert (self.log.log_end, self.log.last_stable) == (self.model.end, self.model.stable)
        if self.disk.dies_at is None:
            assert self.log.aborted(0, self.model.end) == self.model.within(0, self.model.end)


TestTransactions = TransactionModel.TestCase
TestTransactions.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
