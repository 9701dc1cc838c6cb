"""What becomes of a transactional id when a client or the clock asks: pure, the new value or the refusal.

Rules: KIP-98, KIP-360 (a producer that goes on after an error has its epoch raised), KIP-890 (transaction version 2:
each end raises the epoch, Produce adds partitions); states and epochs as recorded in `__transaction_state`. The caller
stores the value, durably, before anybody hears of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from tierd.base.errors import TierdError
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.model import State, Transaction
from tierd.wire.errors import ErrorCode

MAX_EPOCH: Final = 32_767
"""Only markers and fenced producers carry it."""
LAST_EPOCH: Final = MAX_EPOCH - 1
"""The largest epoch that a producer is given."""
TV2: Final = 2

FreshId = Callable[[], int]
"""Gives a producer id that nobody has had; raises DiskFull."""


class Refused(TierdError):
    """The request cannot be; *code* is what the client hears."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclass(frozen=True, slots=True)
class Producer:
    """Who asks: the producer id and epoch in the request."""

    id: int
    epoch: int


def init(
    old: Transaction | None, given: Producer | None, timeout_ms: int, fresh_id: FreshId, now_ms: int
) -> Transaction:
    """InitProducerId. An ongoing transaction is aborted first: then the client must ask again.

    *given* is the producer that goes on after an error, None one that has just started: it shuts all others out.
    """
    if old is None:
        first = fresh_id()
        return Transaction(
            producer_id=first,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            changed_ms=now_ms,
            previous_producer_id=first,
        )
    if given is not None and not _is_own(old, given):
        raise Refused(ErrorCode.PRODUCER_FENCED, f"producer id {given.id} is not, or no longer, its own")
    if old.deciding:
        raise _busy()
    if old.state is State.ONGOING:
        return fence(old, now_ms)
    producer_id, epoch, last_epoch = _next_epoch(old, given, fresh_id)
    return _step(
        old,
        State.EMPTY,
        now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset[TopicPartition](),
        started_ms=None,
    )


def _is_own(old: Transaction, given: Producer) -> bool:
    """Its id, or the one before epochs ran out: the answer to the same request may have been lost."""
    return given.id == old.producer_id or (given.id == old.previous_producer_id and given.epoch >= LAST_EPOCH)


def _next_epoch(old: Transaction, given: Producer | None, fresh_id: FreshId) -> tuple[int, int, int | None]:
    """(producer id, epoch, the epoch before it when its holder goes on): never an epoch that somebody else has."""
    last_epoch = None if given is None else old.producer_epoch
    if old.producer_epoch >= LAST_EPOCH and (given is None or given.epoch == old.producer_epoch):
        return fresh_id(), 0, last_epoch
    if given is None or given.epoch == old.producer_epoch:
        return old.producer_id, old.producer_epoch + 1, last_epoch
    if given.epoch == old.last_epoch:  # A retry: nobody else has asked since, that would have set it to None.
        if old.producer_epoch > LAST_EPOCH:  # The fence took the last one of this id.
            return fresh_id(), 0, old.last_epoch
        return old.producer_id, old.producer_epoch, old.last_epoch
    raise Refused(ErrorCode.PRODUCER_FENCED, f"epoch {given.epoch}, but {old.producer_epoch} is the newest")


def check(old: Transaction | None, given: Producer) -> Transaction:
    """Refuse who is not, or no longer, the producer of this id."""
    if old is None or given.id != old.producer_id:
        raise Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"producer id {given.id} is not its own")
    if given.epoch != old.producer_epoch:
        raise Refused(ErrorCode.PRODUCER_FENCED, f"epoch {given.epoch}, but {old.producer_epoch} is the newest")
    return old


def add(
    old: Transaction | None, given: Producer, partitions: Iterable[TopicPartition], version: int, now_ms: int
) -> Transaction:
    """AddPartitionsToTxn, AddOffsetsToTxn, or Produce of version 2. Gives *old* itself when nothing changes."""
    old = check(old, given)
    if old.deciding:
        raise _busy()
    if old.state is State.ONGOING:
        joined = old.partitions.union(partitions)
        if len(joined) == len(old.partitions):
            return old
        return _step(old, State.ONGOING, now_ms, partitions=joined, client_version=version)
    return _step(
        old, State.ONGOING, now_ms, partitions=frozenset(partitions), started_ms=now_ms, client_version=version
    )


def verify(old: Transaction | None, given: Producer, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
    """Those of *partitions* that are not in the transaction of *given*."""
    old = check(old, given)
    if old.deciding:
        raise _busy()
    return set(partitions) - old.partitions


def end(
    old: Transaction | None, given: Producer, *, commit: bool, version: int, fresh_id: FreshId, now_ms: int
) -> Transaction:
    """EndTxn. Gives *old* itself when a retry asks for what is done already."""
    if version >= TV2:
        retry = old is not None and _is_retried_end(old, given)
        if old is None or not retry:
            old = check(old, given)
            if old.deciding:
                raise Refused(ErrorCode.PRODUCER_FENCED, "the end of this transaction has raised the epoch already")
    else:
        old, retry = check(old, given), True
    if old.state is State.ONGOING:
        return _prepare(old, commit, version, fresh_id, now_ms)
    if (old.deciding or old.decided) and retry:
        if old.commits is not commit:
            raise _wrong(old)
        if old.deciding:
            raise _busy()
        return old
    if commit or version < TV2:
        raise _wrong(old)
    # Nothing was written, but the epoch goes up: batches that are still on their way come too late.
    return _prepare(replace(old, started_ms=now_ms, partitions=frozenset()), commit, version, fresh_id, now_ms)


def _is_retried_end(old: Transaction, given: Producer) -> bool:
    """The answer to an end of version 2 was lost: *given* is who the producer was before it."""
    if old.client_version < TV2 or not (old.deciding or old.decided):
        return False
    raised = given.id == old.producer_id and given.epoch + 1 == old.producer_epoch
    if old.producer_epoch > LAST_EPOCH and old.next_producer_id is None:
        return False  # A fence took the last epoch: nobody may go on with it.
    switched = given.id == old.previous_producer_id and given.epoch == LAST_EPOCH and old.producer_epoch == 0
    return raised or switched


def _prepare(old: Transaction, commit: bool, version: int, fresh_id: FreshId, now_ms: int) -> Transaction:
    changes: dict[str, Any] = {"client_version": version}
    if version >= TV2:
        changes |= {"producer_epoch": min(old.producer_epoch + 1, MAX_EPOCH), "last_epoch": old.producer_epoch}
        if old.producer_epoch >= LAST_EPOCH:
            changes["next_producer_id"] = fresh_id()
    return _step(old, State.PREPARE_COMMIT if commit else State.PREPARE_ABORT, now_ms, **changes)


def fence(old: Transaction, now_ms: int) -> Transaction:
    """Abort what goes on: a time-out, or InitProducerId. Its batches that are still on their way come too late.

    As in Kafka 4.3 its producer may ask for the new epoch (InitProducerId with the old one), until another producer is
    given a newer one.
    """
    epoch = min(old.producer_epoch + 1, MAX_EPOCH)
    changes = {"producer_epoch": epoch, "last_epoch": old.producer_epoch, "client_version": TV2}
    return _step(old, State.PREPARE_ABORT, now_ms, **changes)


def complete(old: Transaction, now_ms: int) -> Transaction:
    """Every marker is written."""
    state = State.COMPLETE_COMMIT if old.commits else State.COMPLETE_ABORT
    changes: dict[str, Any] = {"partitions": frozenset(), "next_producer_id": None}
    if old.next_producer_id is not None:
        changes |= {"producer_id": old.next_producer_id, "producer_epoch": 0}
    return _step(old, state, now_ms, **changes)


def timed_out(found: Transaction, now_ms: int) -> bool:
    """Whether the clock must end it."""
    began_ms = found.changed_ms if found.started_ms is None else found.started_ms
    return found.state is State.ONGOING and now_ms - began_ms > found.timeout_ms


def expired(found: Transaction, now_ms: int, unused_ms: int) -> bool:
    """Whether nobody has used the id for *unused_ms*; one that writes, or is being ended, stays."""
    idle = found.state is State.EMPTY or found.decided
    return idle and now_ms - found.changed_ms >= unused_ms


def _step(old: Transaction, state: State, now_ms: int, **changes: Any) -> Transaction:
    # Each record names the producer id of the one before it (recorded).
    return replace(old, state=state, changed_ms=now_ms, previous_producer_id=old.producer_id, **changes)


def _busy() -> Refused:
    return Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the last transaction is still being ended")


def _wrong(old: Transaction) -> Refused:
    return Refused(ErrorCode.INVALID_TXN_STATE, f"it is {old.state.name}")
