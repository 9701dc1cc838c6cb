"""What groups need of the broker around them."""

from collections.abc import Collection
from typing import Final, Protocol

from tierd.base.ids import Uuid
from tierd.broker.groups.consumer.model import Layout
from tierd.broker.loading import OwnLog

OFFSETS_TOPIC: Final = "__consumer_offsets"


class OffsetsLog(OwnLog, Protocol):
    """The topic `__consumer_offsets`. Loop thread only."""

    @property
    def max_batch_bytes(self) -> int:
        """Largest batch that one group may fill: the topic's max.message.bytes."""

    def count(self) -> int | None:
        """Its number of partitions; None while it does not exist."""

    async def ensure(self) -> int:
        """Its number of partitions; makes the topic when it is not there. Raises TierdError."""

    def append(self, partition: int, batch: bytes) -> object:
        """Append one batch, as safe as acks=all.

        Raises ProducerFenced when a transaction's producer has gone on to a later epoch, TierdError.
        """

    def end(self, partition: int) -> int:
        """The offset after its last record. Raises TierdError."""


class Topics(Protocol):
    """Looks up what offsets are committed for."""

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        """The id of *topic*, NO_ID when it is only read since nobody knows its id; None when it or the partition does
        not exist."""

    def layout(self, topic: str) -> Layout | None:
        """Its id and number of partitions; None when it does not exist."""

    def names(self) -> Collection[str]:
        """Of all topics, internal ones too."""

    def name_of(self, topic_id: Uuid) -> str | None:
        """The name of the topic with that id; None when there is none."""


class Nodes(Protocol):
    """Looks up who is responsible for a key."""

    def coordinator(self, key_type: int, key: str, listener: str) -> tuple[int, str, int] | None:
        """(node id, host, port) of the coordinator of a group (type 0) or transactional id (1); None: nobody now.

        As clients of *listener* reach it.
        """
