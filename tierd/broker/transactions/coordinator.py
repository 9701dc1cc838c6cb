"""The transaction coordinator: state machine, store, markers and clock joined.

A decided transaction (PREPARE_*) has its markers written until all are there, also after a start, and only then is
complete.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tierd.base.clock import Clock
from tierd.base.ids import TopicPartition
from tierd.base.logs import Doubling
from tierd.broker.transactions import machine
from tierd.broker.transactions.machine import TV2, FreshId, Producer, Refused
from tierd.broker.transactions.model import State, Transaction
from tierd.broker.transactions.ports import Marker, Markers, Question, StateLog
from tierd.broker.transactions.store import Entry, Store, TryAgain
from tierd.wire.errors import ErrorCode

log = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""How often time-outs are looked for while there is a transaction. Kafka: 10 s."""
IDLE_CHECK_S: Final = 60.0
EXPIRY_MS: Final = 3_600_000
"""How often ids that nobody uses are looked for, as in Kafka."""
MARKERS_WAIT_S: Final = 0.1
"""How long an answer to EndTxn waits for the markers, so that the next transaction need not be told to come again."""
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0
"""Between two tries to write markers."""

_DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH})
"""The last one: a later epoch has written there, so what was open is ended, by a tool say. As in Kafka."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Kafka's transaction.max.timeout.ms and transactional.id.expiration.ms, and what all ids may take."""

    max_timeout_ms: int = 900_000
    unused_ms: int = 604_800_000
    memory_bytes: int = 128 * 1024 * 1024


class Transactions:
    """Loop thread only; also what `ports.Verifier` asks for."""

    def __init__(
        self,
        state: StateLog,
        markers: Markers,
        clock: Clock,
        fresh_id: FreshId,
        *,
        epoch: Callable[[], int],
        on_disk: Callable[[TopicPartition], bool],
        limits: Limits | None = None,
        broken: Callable[[BaseException], None],
    ) -> None:
        """*epoch* gives the coordinator's epoch, higher at each start; *on_disk* as in `Store`.

        *broken* hears of an error that nobody expected.
        """
        self.limits = limits or Limits()
        self._store = Store(
            state, clock, memory_bytes=self.limits.memory_bytes, on_disk=on_disk, changed=self._heard, broken=broken
        )
        self._markers = markers
        self._clock = clock
        self._fresh_id = fresh_id
        self._epoch = epoch
        self._ongoing: dict[Entry, None] = {}
        self._failures = Doubling()
        self._stopped = asyncio.Event()
        self._woken = asyncio.Event()
        self._expiry_due_ms = 0

    def wall_ms(self) -> int:
        """The clock of what is stored."""
        return self._clock.now_ms()

    # what clients ask

    async def init(self, transactional_id: str, timeout_ms: int, given: Producer | None) -> tuple[int, int]:
        """The producer id and epoch to use. Raises Refused."""
        value = await self._store.change(
            transactional_id, lambda old, now: machine.init(old, given, timeout_ms, self._fresh_id, now)
        )
        if value.deciding:
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction of another producer is being aborted")
        return value.told

    async def add(
        self, transactional_id: str, given: Producer, partitions: Iterable[TopicPartition], *, version: int
    ) -> None:
        """Make *partitions* part of the transaction, begin one when there is none. Raises Refused."""
        wanted = frozenset(partitions)
        await self._store.change(transactional_id, lambda old, now: machine.add(old, given, wanted, version, now))

    async def end(self, transactional_id: str, given: Producer, *, commit: bool, version: int) -> tuple[int, int]:
        """Decide; give the producer id and epoch to go on with. Raises Refused."""

        def decide(old: Transaction | None, now_ms: int) -> Transaction:
            return machine.end(old, given, commit=commit, version=version, fresh_id=self._fresh_id, now_ms=now_ms)

        value = await self._store.change(transactional_id, decide)
        entry = self._store.entries.get(transactional_id)
        if entry is not None and entry.ending is not None:
            await asyncio.wait({entry.ending}, timeout=MARKERS_WAIT_S)
        return value.told

    def covers(self, question: Question) -> bool:
        """See `ports.Verifier`."""
        entry = self._store.entries.get(question.transactional_id)
        value = None if entry is None else entry.value
        return (
            value is not None
            and value.state is State.ONGOING
            and (value.producer_id, value.producer_epoch) == (question.producer_id, question.producer_epoch)
            and value.partitions.issuperset(question.partitions)
        )

    async def verify(self, question: Question, *, add: bool) -> Mapping[TopicPartition, ErrorCode]:
        """See `ports.Verifier`."""
        transactional_id, producer_id, producer_epoch, partitions = question
        given, wanted = Producer(producer_id, producer_epoch), frozenset(partitions)
        try:
            if not add:
                missing = machine.verify(await self.describe(transactional_id), given, wanted)
                return dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)
            await self.add(transactional_id, given, wanted, version=TV2)
        except Refused as error:
            return dict.fromkeys(wanted, error.code)
        # Something else may have had its turn since: a time-out.
        return {} if self.covers(question) else dict.fromkeys(wanted, ErrorCode.CONCURRENT_TRANSACTIONS)

    async def describe(self, transactional_id: str) -> Transaction | None:
        """What is known of an id. Raises Refused."""
        return await self._store.find(transactional_id)

    async def listed(self) -> dict[str, Transaction]:
        """Every id. Raises Refused when some cannot be read."""
        await self._store.load_all()
        return {entry.id: entry.value for entry in self._store.entries.values() if entry.value is not None}

    # the end of a transaction

    def _heard(self, entry: Entry, value: Transaction) -> None:
        if value.state is State.ONGOING:
            self._ongoing[entry] = None
            self._woken.set()
        else:
            self._ongoing.pop(entry, None)
        if value.deciding:
            entry.ending = self._store.own(self._finish(entry.id, value))

    async def _finish(self, transactional_id: str, value: Transaction) -> None:
        left = set(value.partitions)

        async def write_markers() -> None:
            marker = Marker(value.producer_id, value.producer_epoch, self._epoch(), value.commits, decided=True)
            told = await self._markers.write(marker, sorted(left))
            left.difference_update(tp for tp, code in told.items() if code in _DONE)
            if left:
                raise TryAgain(", ".join(f"{tp}: {told[tp].name}" for tp in sorted(left)))

        async def complete() -> None:
            await self._store.change(transactional_id, lambda _, now_ms: machine.complete(value, now_ms))

        if not left or await self._retried(transactional_id, write_markers):
            await self._retried(transactional_id, complete)

    async def _retried(self, transactional_id: str, step: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Until it succeeds; False when the coordinator was closed before: the next start goes on."""
        pause_s = FIRST_RETRY_S
        while not self._stopped.is_set():
            try:
                await step()
            except Refused as error:
                self._warn("transaction cannot be ended yet", transactional_id, error)
            else:
                self._failures.well(transactional_id)
                return True
            await _wait(self._stopped, pause_s)
            pause_s = min(2 * pause_s, LAST_RETRY_S)
        return False

    # time

    async def run(self) -> None:
        """Until `close`: read everything, so that what was decided before the start is ended, and watch the clock."""
        whole = await self._all_read()
        while not self._stopped.is_set():
            self._woken.clear()
            await self.step()
            await _wait(*((self._stopped, CHECK_S) if self._ongoing or not whole else (self._woken, IDLE_CHECK_S)))
            whole = whole or await self._all_read()

    async def _all_read(self) -> bool:
        """False when some of it is to be tried again; how often is up to the store."""
        try:
            await self._store.load_all()
        except TryAgain:  # the store has said why
            return False
        return True

    async def step(self) -> None:
        """Abort what has taken too long, forget what nobody uses."""
        now_ms = self._clock.now_ms()
        late = [entry for entry in self._ongoing if entry.value is not None and machine.timed_out(entry.value, now_ms)]
        for entry in late:
            await self._abort_late(entry.id)
        if self._clock.monotonic_ms() >= self._expiry_due_ms:
            self._expiry_due_ms = self._clock.monotonic_ms() + EXPIRY_MS
            self._store.forget([entry for entry in self._store.entries.values() if self._is_unused(entry, now_ms)])

    def _is_unused(self, entry: Entry, now_ms: int) -> bool:
        if entry.value is None or entry.lock.locked():
            return False
        return machine.expired(entry.value, now_ms, self.limits.unused_ms)

    async def _abort_late(self, transactional_id: str) -> None:
        def decide(old: Transaction | None, now_ms: int) -> Transaction:
            assert old is not None
            return machine.fence(old, now_ms) if machine.timed_out(old, now_ms) else old

        try:
            value = await self._store.change(transactional_id, decide)
        except TryAgain as error:
            self._warn("late transaction not aborted", transactional_id, error)
            return
        if value.deciding:
            log.warning("transaction aborted: it took too long", extra={"transactional_id": transactional_id})

    def _warn(self, event: str, transactional_id: str, error: Refused) -> None:
        """Seldom: it is tried again and again."""
        if (times := self._failures.failed(transactional_id)) is not None:
            log.warning(event, extra={"transactional_id": transactional_id, "why": str(error), "times": times})

    async def close(self) -> None:
        """No more markers and time-outs; what is being written is written."""
        self._stopped.set()
        self._woken.set()
        await self._store.close()


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    try:
        async with asyncio.timeout(at_most_s):
            await event.wait()
    except TimeoutError:
        return
