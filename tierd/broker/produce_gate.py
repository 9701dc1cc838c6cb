"""Which transactional batches of a Produce request may be appended, as KIP-890 has it.

A batch that goes on with a transaction that its partition knows is appended at once, as in Kafka; before the first one
of a transaction in a partition the coordinator is asked. In between nothing is awaited, so a marker cannot slip in.
"""

import struct
from collections.abc import Iterator, Mapping

from tierd.base.ids import TopicPartition
from tierd.broker.partitions import Partitions
from tierd.broker.transactions.codes import told
from tierd.broker.transactions.ports import Question, Verifier
from tierd.storage.header import ATTRIBUTES_AT, HEADER_BYTES, TRANSACTIONAL
from tierd.storage.log import Log
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.produce import ProduceRequest

_ADDS_FROM = 12
_PRODUCER = struct.Struct(">qhi")  # id, epoch, base sequence
_PRODUCER_AT = 43

Refusals = Mapping[TopicPartition, ErrorCode]


class ProduceGate:
    """Loop thread only."""

    def __init__(self, partitions: Partitions, verifier: Verifier) -> None:
        self._partitions = partitions
        self._verifier = verifier

    def question(self, request: ProduceRequest, version: int) -> tuple[Question | None, Refusals]:
        """What to ask before anything is appended, None: nothing; and what is refused without asking."""
        assert request.transactional_id is not None
        producers: set[tuple[int, int]] = set()
        asked: list[TopicPartition] = []
        refused: dict[TopicPartition, ErrorCode] = {}
        for place, log, (producer_id, epoch, sequence) in self._transactional(request):
            producers.add((producer_id, epoch))
            if log.in_transaction(producer_id, epoch):
                continue
            if version >= _ADDS_FROM and sequence and not log.knows_producer(producer_id):
                # Its epoch began with this transaction: an earlier batch is missing.
                refused[place] = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            else:
                asked.append(place)
        if len(producers) > 1:
            places = (place for place, _, _ in self._transactional(request))
            return None, dict.fromkeys(places, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if not asked:
            return None, refused
        question = Question(request.transactional_id, *producers.pop(), tuple(asked))
        return None if self._verifier.covers(question) else question, refused

    def goes_on(self, topic: str, index: int, batch: memoryview) -> bool:
        """Whether *batch* belongs to a transaction that its partition knows: then nobody need be asked."""
        partition = self._partitions.get(topic, index)
        if partition is None or len(batch) < HEADER_BYTES or not batch[ATTRIBUTES_AT + 1] & TRANSACTIONAL:
            return False
        producer_id, epoch, _ = _PRODUCER.unpack_from(batch, _PRODUCER_AT)
        return partition.log.in_transaction(producer_id, epoch)

    async def ask(self, question: Question, version: int) -> Refusals:
        """What may not be appended; the rest may, until the next await."""
        found = await self._verifier.verify(question, add=version >= _ADDS_FROM)
        return {place: told(error, ApiKey.PRODUCE, version) for place, error in found.items()}

    async def refusal(
        self, transactional_id: str, topic: str, index: int, batch: memoryview, version: int
    ) -> ErrorCode | None:
        """Why one batch may not be appended now; None: it may, until the next await."""
        request = ProduceRequest(transactional_id, 0, 0, [(topic, [(index, batch)])])
        question, refusals = self.question(request, version)
        if question is not None:
            refusals = {**refusals, **await self.ask(question, version)}
        return refusals.get(TopicPartition(topic, index))

    def _transactional(self, request: ProduceRequest) -> Iterator[tuple[TopicPartition, Log, tuple[int, int, int]]]:
        """Each batch that belongs to a transaction: its partition and producer id, epoch, sequence."""
        for topic, wanted in request.topics:
            for index, records in wanted:
                if records is None or len(records) < HEADER_BYTES or not records[ATTRIBUTES_AT + 1] & TRANSACTIONAL:
                    continue
                partition = self._partitions.get(topic, index)
                producer = _PRODUCER.unpack_from(records, _PRODUCER_AT)
                if partition is not None and producer[0] >= 0 and partition.log.read_only is None:
                    yield TopicPartition(topic, index), partition.log, producer
