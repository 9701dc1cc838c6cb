"""What the transaction coordinator needs of the broker (`StateLog`, `Markers`), and what it gives (`Verifier`)."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tierd.base.ids import TopicPartition
from tierd.broker.loading import OwnLog
from tierd.wire.errors import ErrorCode

STATE_TOPIC: Final = "__transaction_state"


class StateLog(OwnLog, Protocol):
    """The topic `__transaction_state`. Loop thread only."""

    def count(self) -> int | None:
        """Its number of partitions; None while it does not exist."""

    async def ensure(self) -> int:
        """Its number of partitions; makes the topic when it is not there. Raises TierdError."""

    def append(self, partition: int, batch: bytes, *, durable: bool) -> Awaitable[None] | None:
        """Append one batch; what to await until it is as safe as the settings ask for, None when it is already.

        *durable*: on the disk, whatever the settings ask for. Raises TierdError, and so does the waiting.
        """


class Marker(NamedTuple):
    """How a producer's transaction ends."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    raised: bool = False
    """The end has raised the producer's epoch: a transaction that is open must be older."""
    decided: bool = False
    """This node's coordinator has decided it: no coordinator's epoch, a tool's say, keeps it out."""


class Markers(Protocol):
    """Ends a transaction where its records are: user topics and `__consumer_offsets` alike."""

    async def write(self, marker: Marker, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, ErrorCode]:
        """Append *marker* to each of *partitions*; answered when it is as durable as the topics ask for.

        May be repeated: it is, after a crash, and for every partition whose answer was an error. A topic that was
        deleted answers UNKNOWN_TOPIC_OR_PARTITION, one where a later epoch has written INVALID_PRODUCER_EPOCH: both
        count as done. Every other error is tried again.
        """


class Question(NamedTuple):
    """Whether a producer's transaction has these partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]


class Verifier(Protocol):
    """What Produce and TxnOffsetCommit ask before they append. Loop thread only.

    Append before the next await: until then the transaction goes on and its markers come after what is appended.
    """

    def covers(self, question: Question) -> bool:
        """Whether all the partitions are in the ongoing transaction of exactly this producer: no need for `verify`."""

    async def verify(self, question: Question, *, add: bool) -> Mapping[TopicPartition, ErrorCode]:
        """Those of the partitions that must not be written to, and why; empty: append to all (KIP-890).

        *add*: the client speaks TV2 (Produce 12, TxnOffsetCommit 5 and above), so the partitions become part of the
        transaction, durably, before this returns. Otherwise the client has added them before.

        Codes, as Kafka's coordinator gives them: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED,
        CONCURRENT_TRANSACTIONS (the last one is still being ended), TRANSACTION_ABORTABLE (not added before),
        COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS. Older versions of Produce know fewer: the caller
        translates (PRODUCER_FENCED to INVALID_PRODUCER_EPOCH, TRANSACTION_ABORTABLE to INVALID_TXN_STATE below version
        11, what can be retried to NOT_ENOUGH_REPLICAS below 12).
        """
