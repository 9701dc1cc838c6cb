"""Transactional ids in memory and in `__transaction_state`: one change after the other for each id.

What is in memory is as durable as the settings of the topic, and of the partitions written to, ask for. A partition of
the topic is read on first use; until then, and when it cannot be read, its ids do not exist here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.ids import TopicPartition
from tierd.base.logs import Doubling
from tierd.broker.key_hash import partition_of
from tierd.broker.loading import Loading, read_all
from tierd.broker.ongoing import Ongoing
from tierd.broker.transactions.codec import encode_key, encode_transaction
from tierd.broker.transactions.machine import Refused
from tierd.broker.transactions.model import State, Transaction, may_become
from tierd.broker.transactions.ports import STATE_TOPIC, StateLog
from tierd.broker.transactions.replay import TransactionReplay
from tierd.storage.batch import encode_batch
from tierd.storage.records import Record
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

_GRACE_S: Final = 1.0
_TOMBSTONES: Final = 16
"""In one batch: ids may be long."""

Decide = Callable[[Transaction | None, int], Transaction]
"""The new value, of the old one and the time (wall clock, ms). Raises Refused when it cannot be."""

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Entry:
    """One transactional id."""

    id: str
    partition: int
    """Of the topic."""
    value: Transaction | None = None
    """Durable; None while the first record is being written."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ending: "asyncio.Task[None] | None" = None
    """Writes the markers of a decided transaction."""


class TryAgain(Refused):
    """The topic is not there, or cannot be read or written now; the client looks again later."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)


class Store:
    """Loop thread only."""

    def __init__(
        self,
        state: StateLog,
        clock: Clock,
        *,
        memory_bytes: int,
        on_disk: Callable[[TopicPartition], bool],
        changed: Callable[[Entry, Transaction], None],
        broken: Callable[[BaseException], None],
    ) -> None:
        """*memory_bytes* is what clients may make all ids take, as `_weight` counts it.

        *on_disk* says whether what is acknowledged for a partition is on the disk. *changed* hears of every new value,
        those that were read too; *broken* of an error that nobody expected.
        """
        self.entries: dict[str, Entry] = {}
        self._damaged: dict[str, str] = {}
        """Ids of which nobody knows what holds, and why."""
        self._failures = Doubling()
        self._held_bytes = 0
        self._memory_bytes = memory_bytes
        self._log = state
        self._clock = clock
        self._on_disk = on_disk
        self._tell = changed
        self._loading = Loading(self._load, clock)
        self._ongoing = Ongoing(broken, expected=(Refused,))

    async def find(self, transactional_id: str) -> Transaction | None:
        """What is known of the id. Raises TryAgain."""
        await self._partition(transactional_id)
        entry = self.entries.get(transactional_id)
        return None if entry is None else entry.value

    async def load_all(self) -> None:
        """Raises TryAgain when a partition cannot be read; the others have been read then."""
        first: TryAgain | None = None
        for index in range(self._log.count() or 0):
            try:
                await self._loaded(index)
            except TryAgain as error:
                first = first or error
        if first is not None:
            raise first

    async def change(self, transactional_id: str, decide: Decide) -> Transaction:
        """The value that *decide* makes of the old one, once it is durable. Raises Refused.

        Not given up half-way when the client goes away: log and memory must agree.
        """
        index = await self._partition(transactional_id)
        return await self._ongoing.whole(self._change(transactional_id, index, decide))

    def forget(self, entries: Iterable[Entry]) -> None:
        """Write tombstones. Does not wait for the disk: an id whose tombstone is lost is forgotten again."""
        by_partition: dict[int, list[Entry]] = {}
        for entry in entries:
            by_partition.setdefault(entry.partition, []).append(entry)
        for index, gone in by_partition.items():
            for start in range(0, len(gone), _TOMBSTONES):
                self._forget(index, gone[start : start + _TOMBSTONES])

    def own(self, work: Coroutine[Any, Any, _T]) -> "asyncio.Task[_T]":
        """Run *work* whoever waits for it; `close` waits."""
        return self._ongoing.begin(work)

    async def close(self) -> None:
        """Let what is being written be written, but not for long: a disk that fails may never say so."""
        self._loading.close()
        await self._ongoing.settle(_GRACE_S)

    async def _partition(self, transactional_id: str) -> int:
        """The partition of the topic that has the id; it has been read then. Raises TryAgain."""
        try:
            count = await self._log.ensure()
        except (TierdError, OSError) as error:
            raise TryAgain(f"{STATE_TOPIC}: {error}") from error
        index = partition_of(transactional_id, count)
        await self._loaded(index)
        if (why := self._damaged.get(transactional_id)) is not None:
            raise TryAgain(f"{STATE_TOPIC}-{index}: {why}")
        return index

    async def _loaded(self, index: int) -> None:
        try:
            await self._loading.get(index)
        except (TierdError, OSError) as error:
            raise TryAgain(f"{STATE_TOPIC}-{index}: {error}") from error

    async def _load(self, index: int) -> None:
        replay = TransactionReplay(f"{STATE_TOPIC}-{index}")
        try:
            await read_all(self._log, index, replay, "transactional ids")
        except (TierdError, OSError) as error:
            if (times := self._failures.failed(replay.where)) is not None:
                facts = {"partition": replay.where, "error": str(error), "times": times}
                log.error("transactions not readable", extra=facts)
            raise
        for why in replay.wrong:
            log.error("transaction not readable", extra={"partition": replay.where, "error": why})
        self._failures.well(replay.where)
        self._damaged.update(replay.damaged)
        for transactional_id, value in replay.found.items():
            entry = self.entries[transactional_id] = Entry(transactional_id, index)
            self._set(entry, value)
        if replay.found:
            log.info("transactions read", extra={"partition": replay.where, "ids": len(replay.found)})

    async def _change(self, transactional_id: str, index: int, decide: Decide) -> Transaction:
        while True:
            entry = self.entries.setdefault(transactional_id, Entry(transactional_id, index))
            async with entry.lock:
                if self.entries.get(transactional_id) is not entry:
                    continue  # Forgotten while we waited for our turn.
                try:
                    return await self._decided(entry, decide)
                finally:
                    if entry.value is None:
                        del self.entries[transactional_id]

    async def _decided(self, entry: Entry, decide: Decide) -> Transaction:
        old = entry.value
        try:
            value = decide(old, self._clock.now_ms())
            if value is not old:
                assert old is None or may_become(old.state, value.state), (old, value)
                self._check_room(entry, value)
                rows = [(entry.id, encode_transaction(value))]
                written = self._append(entry.partition, rows, durable=self._must_be_on_disk(value))
                if written is not None:
                    await written
                self._set(entry, value)
        except Refused:
            raise
        except (TierdError, OSError) as error:
            raise TryAgain(f"{STATE_TOPIC}-{entry.partition}: {error}") from error
        return value

    def _check_room(self, entry: Entry, value: Transaction) -> None:
        growth_bytes = _weight(entry.id, value) - _weight(entry.id, entry.value)
        if growth_bytes > 0 and self._held_bytes + growth_bytes > self._memory_bytes:
            reason = f"transactional ids take {self._held_bytes} bytes, the limit is tierd.transactions.memory.bytes"
            log.warning("transaction refused", extra={"transactional_id": entry.id, "why": reason})
            raise Refused(ErrorCode.POLICY_VIOLATION, reason)

    def _set(self, entry: Entry, value: Transaction) -> None:
        self._held_bytes += _weight(entry.id, value) - _weight(entry.id, entry.value)
        entry.value = value
        self._tell(entry, value)

    def _must_be_on_disk(self, value: Transaction) -> bool:
        """No decision may be less durable than what it decides on; no epoch that was given out may be given again."""
        return value.state is State.EMPTY or any(map(self._on_disk, value.partitions))

    def _append(
        self, index: int, rows: Iterable[tuple[str, bytes | None]], *, durable: bool = False
    ) -> Awaitable[None] | None:
        """One batch; a value of None forgets the id. Raises TierdError, OSError."""
        now_ms = self._clock.now_ms()
        records = [Record(offset, now_ms, encode_key(name), value) for offset, (name, value) in enumerate(rows)]
        return self._log.append(index, bytes(encode_batch(records)), durable=durable)

    def _forget(self, index: int, entries: Sequence[Entry]) -> None:
        try:
            self._append(index, [(entry.id, None) for entry in entries])
        except (TierdError, OSError) as error:
            log.warning("unused transactional ids stay", extra={"partition": index, "why": str(error)})
            return
        for entry in entries:
            self._held_bytes -= _weight(entry.id, entry.value)
            del self.entries[entry.id]


def _weight(transactional_id: str, value: Transaction | None) -> int:
    """Bytes of memory, generously: an id, its entry and its value; a partition with its topic's name."""
    if value is None:
        return 0
    return 1024 + 4 * len(transactional_id) + sum(160 + len(tp.topic) for tp in value.partitions)
