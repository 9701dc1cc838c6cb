"""`__consumer_offsets` in memory, topics and a node: what `groups.ports` asks for."""

from collections.abc import AsyncIterator, Callable, Iterable

from tierd.base.errors import CorruptFile, DiskFull
from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.model import Layout
from tierd.storage.batch import patch, walk


class FakeLog:
    def __init__(self, partitions: int = 50) -> None:
        self.batches: dict[int, bytearray] = {}
        self.full = False
        self.broken = False
        self.unreadable = False
        self.read = 0
        self.wrong: dict[int, tuple[str, ...]] = {}
        self.max_batch_bytes = 1 << 20
        self.on_append: Callable[[], None] = lambda: None
        self._partitions = partitions
        self._ends: dict[int, tuple[int, int]] = {}
        """How many bytes of a partition were walked, and the offset that follows them."""
        self._made = False

    def count(self) -> int | None:
        return self._partitions if self._made else None

    async def ensure(self) -> int:
        if self.unreadable:
            raise DiskFull("no room for the topic")
        self._made = True
        return self._partitions

    def append(self, partition: int, batch: bytes) -> None:
        if self.full:
            raise DiskFull("below the reserve")
        held = self.batches.setdefault(partition, bytearray())
        placed = bytearray(batch)
        patch(placed, 0, self.end(partition), 1)
        held += placed
        self.on_append()

    def end(self, partition: int) -> int:
        held = self.batches.get(partition, b"")
        seen, end = self._ends.get(partition, (0, 0))
        if seen > len(held):
            seen, end = 0, 0  # somebody has cut it
        end = max([end, *(header.next_offset for _, header in walk(bytes(held[seen:])))])
        self._ends[partition] = len(held), end
        return end

    def told(self, partition: int, wrong: Iterable[str]) -> None:
        self.wrong[partition] = tuple(wrong)

    async def replay(self, partition: int) -> AsyncIterator[bytes]:
        self.read += 1
        if self.broken:
            raise CorruptFile(f"partition {partition}", 0, "bad batch")
        raw = bytes(self.batches.get(partition, b""))
        for position, header in walk(raw):
            yield raw[position : position + header.size_bytes]


class FakeTopics:
    def __init__(self) -> None:
        self.ids = {"t1": Uuid(b"1" * 16), "t2": Uuid(b"2" * 16)}
        self.partitions: dict[str, int] = {}
        """Of topics that have more or less than 3."""

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        return self.ids.get(topic) if partition < 3 else None

    def layout(self, topic: str) -> Layout | None:
        topic_id = self.ids.get(topic)
        return None if topic_id is None else Layout(topic_id, self.partitions.get(topic, 3))

    def names(self) -> list[str]:
        return list(self.ids)

    def name_of(self, topic_id: Uuid) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class FakeNodes:
    def __init__(self) -> None:
        self.there = True

    def coordinator(self, key_type: int, key: str, listener: str) -> tuple[int, str, int] | None:
        return (1, "127.0.0.1", 19094) if self.there else None
