"""Produce: one append per partition, on the loop, answered at once (from the page cache, as one Kafka node).

Where the topic asks for it the answer waits for the disk (`commits`), and where very many records must be looked at,
until somebody has done so beside the loop (`looking`); then, and only then, there is one to await.
"""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tierd.base.clock import Clock
from tierd.base.errors import TierdError
from tierd.base.ids import TopicPartition
from tierd.base.session import Session
from tierd.broker.commits import Commits
from tierd.broker.connection import Answer
from tierd.broker.counters import Counters
from tierd.broker.error_map import refused
from tierd.broker.looking import Behind, TooMuchWaits
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.produce_gate import ProduceGate, Refusals
from tierd.broker.produce_work import Answers, Late, Work
from tierd.broker.security.authorizer import Authorizer
from tierd.broker.security.guard_produce import denials, may_write, without
from tierd.broker.transactions.ports import Question, Verifier
from tierd.remote.view import ClaimState
from tierd.storage.errors import AppendRefused, TransactionRefused
from tierd.storage.look import LongLook, Look, Looking, look_briefly
from tierd.wire.api import PRODUCE_SERVED_FROM
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader, parse_request_header
from tierd.wire.produce import PartitionProduced, ProduceRequest, decode_produce, keyed, repeats
from tierd.wire.produce_shape import ProduceShapes

log = logging.getLogger(__name__)

_ATTRIBUTES_AT = 22  # second byte of the batch's attributes
_CODEC_BITS = 0x07
_ZSTD = 4
_ZSTD_FROM = 7
_ACKS = (-1, 0, 1)

_REFUSED = {
    ErrorCode.INVALID_TXN_STATE: "Partition was not added to the transaction",
    ErrorCode.TRANSACTION_ABORTABLE: "Partition was not added to the transaction",
    ErrorCode.NOT_ENOUGH_REPLICAS: "the transaction's coordinator cannot be asked now",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "Transactional records contained more than one producer ID",
}


class Produce:
    """The handler of the Produce API."""

    def __init__(
        self,
        partitions: Partitions,
        tier: RemoteTier | None,
        clock: Clock,
        counters: Counters,
        commits: Commits,
        behind: Behind[Late],
        *,
        verifier: Verifier,
        appended: Callable[[Partition], None],
        authorizer: Authorizer | None = None,
    ) -> None:
        self._authorizer = authorizer
        self._partitions = partitions
        self._clock = clock
        self._counters = counters
        self._tier = tier
        self._appended = appended
        self._commits = commits
        self._gate = ProduceGate(partitions, verifier)
        self._behind = behind

    def __call__(
        self,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        shapes: ProduceShapes,
        hold_frame: Callable[[], None],
    ) -> Answer:
        """Append and answer; None for acks=0, where a failure closes the connection instead (CloseQuietly).

        *hold_frame* is called when the frame is still needed after this returns: until the answer is there.
        """
        request = decode_produce(frame, position, header.version, self._partitions.names)
        shapes.learn(frame, header, request)
        denied = {} if self._authorizer is None else denials(self._authorizer.asking(header), request)
        if request.transactional_id is None:
            return self._answer(header, request, denied)
        question, refusals = self._gate.question(without(request, denied), header.version)
        if denied:
            refusals = {**refusals, **denied}
        if question is None:
            return self._answer(header, request, refusals)
        hold_frame()
        return self._ask_first(header, request, question, refusals)

    async def _ask_first(
        self, header: RequestHeader, request: ProduceRequest, question: Question, refusals: Refusals
    ) -> bytes | None:
        found = await self._gate.ask(question, header.version)
        answer = self._answer(header, request, {**refusals, **found})
        return answer if answer is None or isinstance(answer, bytes) else await answer

    def _answer(
        self, header: RequestHeader, request: ProduceRequest, refusals: Refusals
    ) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        work = Work(header.version, request.acks, request.transactional_id, self._clock.now_ms())
        stop = self._refuse_all(work)
        if stop is None and repeats(request):
            stop = ErrorCode.INVALID_REQUEST  # No batch may be dropped whose partition is then acknowledged.
        topics: list[tuple[str, list[PartitionProduced]]] = []
        for name, wanted in request.topics:
            rows = []
            gone = request.ids is not None and self._partitions.names.get(request.ids[name]) != name
            for index, records in wanted:
                if stop is not None:
                    row = PartitionProduced(index, stop)
                elif gone:  # while the coordinator was asked; the name may be another topic's now
                    row = PartitionProduced(index, ErrorCode.UNKNOWN_TOPIC_ID)
                elif refusals and (refusal := refusals.get(TopicPartition(name, index))) is not None:
                    row = PartitionProduced(index, refusal, message=_REFUSED.get(refusal))
                else:
                    row = self._append(work, name, index, records)
                rows.append(row)
            topics.append((name, rows))
        answers = topics if request.ids is None else keyed(request, topics)
        return self._now_or_later(work, header.correlation_id, answers)

    def _now_or_later(
        self, work: Work, correlation_id: int, answers: Answers
    ) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        if work.waits or work.late:
            return work.answered(correlation_id, answers)
        return work.answer(correlation_id, answers)

    def again(
        self, frame: memoryview, shapes: ProduceShapes, session: Session
    ) -> bytes | Coroutine[Any, Any, bytes | None] | None:
        """The same for a request of a shape that this connection has used; None when the usual way must decide."""
        found = shapes.match(frame)
        if found is None or self._claim_lost:
            return None
        shape, records = found
        topic, name = shape.topic, shape.transactional_id
        if shape.topic_id is not None and self._partitions.names.get(shape.topic_id) != topic:
            return None
        if self._authorizer is not None and not may_write(self._authorizer.rights(session), shape):
            return None
        if name is not None and not self._gate.goes_on(topic, shape.partition, records):
            return None
        work = Work(frame[3], shape.acks, name, self._clock.now_ms())
        row = self._append(work, topic, shape.partition, records)
        if row.error or row.base_offset is None or row.log_start is None or work.waits:
            header, _ = parse_request_header(frame)
            return self._now_or_later(work, header.correlation_id, [(shape.topic_id or topic, [row])])
        return shape.answer(frame, row.base_offset, row.log_append_time_ms, row.log_start)

    @property
    def _claim_lost(self) -> bool:
        return self._tier is not None and self._tier.claim.state is ClaimState.LOST

    def _refuse_all(self, work: Work) -> ErrorCode | None:
        if work.version < PRODUCE_SERVED_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        if work.acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        return ErrorCode.KAFKA_STORAGE_ERROR if self._claim_lost else None

    def _append(self, work: Work, topic: str, index: int, records: memoryview | None) -> PartitionProduced:
        partition = self._partitions.get(topic, index)
        if partition is None:
            return PartitionProduced(index, self._partitions.missing(topic, index))
        if partition.archived:  # a client gives up on this at once, and sends what it has for other topics
            return PartitionProduced(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, message=partition.log.read_only)
        if partition.internal:
            return PartitionProduced(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message="only the broker writes there")
        if records is None:
            return PartitionProduced(index, ErrorCode.INVALID_RECORD, message="records are null")
        if work.version < _ZSTD_FROM and _codec(records) == _ZSTD:
            return PartitionProduced(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if partition in self._behind.last:
            return self._put_behind(work, partition, records, None)
        try:
            return self._write(work, partition, records, look_briefly)
        except LongLook as error:
            return self._put_behind(work, partition, records, error.look)

    def _put_behind(
        self, work: Work, partition: Partition, records: memoryview, look: Look | None
    ) -> PartitionProduced:
        """Have the batch appended in its turn; the row holds its place."""
        topic, index = partition.name.topic, partition.name.partition

        async def append(batch: memoryview, looking: Looking) -> Late:
            if work.transactional_id is not None:
                # Its transaction may have ended since: ask again. Nothing is awaited from there to the append.
                refusal = await self._gate.refusal(work.transactional_id, topic, index, batch, work.version)
                if refusal is not None:
                    return PartitionProduced(index, refusal, message=_REFUSED.get(refusal)), []
            if self._partitions.get(topic, index) is not partition:
                return PartitionProduced(index, self._partitions.missing(topic, index)), []
            if self._claim_lost:
                return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR), []
            own = work.apart
            row = self._write(own, partition, batch, looking)
            return row, [committed for _, committed in own.waits]

        try:
            late = self._behind.put(partition, records, look, append)
        except TooMuchWaits as error:
            return PartitionProduced(index, ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))
        row = PartitionProduced(index)
        work.puts_off(row, late)
        return row

    def _write(self, work: Work, partition: Partition, records: memoryview, looking: Looking) -> PartitionProduced:
        """Raises LongLook."""
        logged, index, transactional = partition.log, partition.id.partition, work.transactional_id is not None
        try:
            done = logged.append(records, now_ms=work.now_ms, in_transaction=transactional, looking=looking)
        except LongLook:
            raise
        except TransactionRefused as error:
            # As Kafka says it: without a transactional id none is authorized.
            unnamed = ErrorCode.INVALID_RECORD if transactional else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return PartitionProduced(index, unnamed, message=str(error))
        except AppendRefused as error:
            return refused(index, error, logged.log_start)
        except (TierdError, OSError) as error:
            return PartitionProduced(index, self._partitions.met(partition, error, "append failed"), message=str(error))
        self._counters.produced_bytes += len(records)
        self._appended(partition)
        row = PartitionProduced(index, 0, done.first_offset, done.log_append_time_ms, logged.log_start)
        if logged.commits and logged.commit_due:
            work.waits_for(row, self._commits.wait(partition), always=logged.settings.flush_messages is not None)
        return row


def _codec(records: memoryview) -> int | None:
    return records[_ATTRIBUTES_AT] & _CODEC_BITS if len(records) > _ATTRIBUTES_AT else None
