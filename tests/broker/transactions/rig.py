"""The coordinator over a log in memory and partitions in memory, each of which can fail, wait for a disk, or be cut."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from typing import Any

import pytest

from kit.clock import FakeClock
from tierd.base.errors import CorruptFile, DiskFull, TierdError
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.codec import decode_key, decode_transaction
from tierd.broker.transactions.coordinator import Limits, Transactions
from tierd.broker.transactions.machine import TV2, Producer, Refused
from tierd.broker.transactions.model import State, Transaction
from tierd.broker.transactions.ports import Marker
from tierd.storage.batch import patch, walk
from tierd.storage.records import iter_records
from tierd.wire.errors import ErrorCode

PARTITIONS = 2
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000
S = State


class Cut(Exception):
    """The process ends here."""


class Steps:
    """Counts what becomes durable; the process ends at step *dies_at*, before or just after it."""

    def __init__(self, dies_at: int | None = None, *, after: bool = False) -> None:
        self.dies_at = dies_at
        self.after = after
        self.count = 0
        self.dead = False

    def before(self) -> None:
        self.count += 1
        if self.dead or (self.count == self.dies_at and not self.after):
            self.dead = True
            raise Cut

    def done(self) -> None:
        if self.count == self.dies_at:
            self.dead = True
            raise Cut


class MemoryLog:
    """`__transaction_state`."""

    def __init__(self) -> None:
        self.raw: dict[int, bytearray] = {}
        self.steps = Steps()
        self.fails: TierdError | None = None
        self.unreadable = False
        self.slow: list[asyncio.Future[None]] | None = None
        """When a list: each append waits for its disk here."""
        self.made = False
        self.wrong: dict[int, tuple[str, ...]] = {}
        self.durable: list[bool] = []
        """What was asked of each append."""

    def count(self) -> int | None:
        return PARTITIONS if self.made else None

    async def ensure(self) -> int:
        if self.unreadable and not self.made:
            raise DiskFull("no room for the topic")
        self.made = True
        return PARTITIONS

    def append(self, partition: int, batch: bytes, *, durable: bool) -> Awaitable[None] | None:
        self.durable.append(durable)
        if self.fails is not None:
            raise self.fails
        self.steps.before()
        held = self.raw.setdefault(partition, bytearray())
        end = 0
        for _, header in walk(bytes(held)):
            end = header.next_offset
        placed = bytearray(batch)
        patch(placed, 0, end, 1)
        held += placed
        self.steps.done()
        if self.slow is None:
            return None
        self.slow.append(asyncio.get_running_loop().create_future())
        return self.slow[-1]

    def told(self, partition: int, wrong: Iterable[str]) -> None:
        self.wrong[partition] = tuple(wrong)

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        if self.unreadable:
            raise CorruptFile(f"partition {partition}", 0, "bad batch")
        raw = bytes(self.raw.get(partition, b""))
        for position, header in walk(raw):
            yield raw[position : position + header.size_bytes]

    def records(self) -> list[tuple[str, Transaction | None]]:
        """Of all partitions, each in its order."""
        found = []
        for raw in self.raw.values():
            for position, header in walk(bytes(raw)):
                for record in iter_records(memoryview(raw)[position : position + header.size_bytes], header):
                    name = decode_key(bytes(record.key or b""), "")
                    assert name is not None
                    value = None if record.value is None else decode_transaction(bytes(record.value), "")
                    found.append((name, value))
        return found

    def states(self) -> list[State | None]:
        return [None if value is None else value.state for _, value in self.records()]


class MemoryMarkers:
    """Every partition there is; what is told of an outcome twice is written once."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.written: dict[TopicPartition, list[tuple[int, int, bool]]] = {}
        """Producer id, epoch, whether it commits."""
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.asked = 0
        self.epochs: list[int] = []

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        self.asked += 1
        self.epochs.append(marker.coordinator_epoch)
        row = marker.producer_id, marker.producer_epoch, marker.commit
        answers = {}
        for tp in partitions:
            await asyncio.sleep(0)
            answers[tp] = self.errors.get(tp, ErrorCode.NONE)
            if answers[tp] is ErrorCode.NONE and row not in self.written.setdefault(tp, []):
                self.steps.before()
                self.written[tp].append(row)
                self.steps.done()
        return answers


class Rig:
    """`restart` begins again with the same log and partitions."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        markers: MemoryMarkers | None = None,
        *,
        start: int = 1,
        memory_bytes: int = 1_000_000,
    ) -> None:
        self.log = log or MemoryLog()
        self.markers = markers or MemoryMarkers()
        self.clock = FakeClock()
        self.start = start
        self.broken: list[BaseException] = []
        self.on_disk: set[TopicPartition] = set()
        ids = itertools.count(1000 * start)
        self.transactions = Transactions(
            self.log,
            self.markers,
            self.clock,
            lambda: next(ids),
            epoch=lambda: start,
            on_disk=lambda tp: tp in self.on_disk,
            limits=Limits(unused_ms=1_000_000, memory_bytes=memory_bytes),
            broken=self.broken.append,
        )
        self.running = asyncio.create_task(self.transactions.run())

    async def restart(self) -> "Rig":
        await self.stop()
        self.log.steps, self.markers.steps = Steps(), Steps()
        return Rig(self.log, self.markers, start=self.start + 1)

    async def stop(self) -> None:
        await self.transactions.close()
        await asyncio.wait({self.running})

    async def until(self, transactional_id: str, *states: State) -> Transaction:
        """Wait until the id is in one of *states*; raises what broke the coordinator."""
        while True:
            if self.broken:
                raise self.broken[0]
            found = await self.transactions.describe(transactional_id)
            if found is not None and found.state in states:
                return found
            await asyncio.sleep(0)


def run(work: Callable[[Rig], Coroutine[Any, Any, None]], **limits: int) -> None:
    """*work* with a coordinator that is stopped afterwards."""

    async def whole() -> None:
        rig = Rig(**limits)
        try:
            await work(rig)
        finally:
            await rig.stop()
        assert rig.broken == []

    asyncio.run(asyncio.wait_for(whole(), 60))


async def begin(rig: Rig, name: str = "x", *, version: int = TV2) -> Producer:
    producer = Producer(*await rig.transactions.init(name, TIMEOUT_MS, None))
    await rig.transactions.add(name, producer, [A, B], version=version)
    return producer


async def refusal(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code
