"""The transaction APIs: kio requests of any served version in, plain values for `wire.control.make_response` out."""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from tierd.base.errors import DiskFull
from tierd.base.ids import NO_ID, TopicPartition
from tierd.broker.groups.handlers import Handler
from tierd.broker.groups.ports import OFFSETS_TOPIC, Topics
from tierd.broker.key_hash import partition_of
from tierd.broker.transactions.codes import told
from tierd.broker.transactions.coordinator import Transactions
from tierd.broker.transactions.listing import ListingHandlers
from tierd.broker.transactions.machine import TV2, FreshId, Producer, Refused
from tierd.broker.transactions.ports import Question
from tierd.config.resolve import is_internal
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

log = logging.getLogger(__name__)

Fields = dict[str, object]
Errors = Mapping[TopicPartition, ErrorCode]

_BATCHED_FROM: Final = 4
"""AddPartitionsToTxn: many transactions in one request, for brokers."""
_TV2_FROM: Final = 5
"""EndTxn."""


class TransactionHandlers:
    """One method per API."""

    def __init__(
        self,
        transactions: Transactions,
        topics: Topics,
        fresh_id: FreshId,
        offsets_partitions: Callable[[], Awaitable[int]],
        ids_ready: Callable[[], Awaitable[None]],
    ) -> None:
        """*offsets_partitions* gives how many partitions `__consumer_offsets` has; raises TierdError, OSError.

        *ids_ready* returns when *fresh_id* need not wait for the disk.
        """
        self._transactions = transactions
        self._topics = topics
        self._fresh_id = fresh_id
        self._offsets_partitions = offsets_partitions
        self._ids_ready = ids_ready
        self._listing = ListingHandlers(transactions)

    def table(self) -> dict[ApiKey, Handler]:
        """What a dispatcher needs."""
        return {
            ApiKey.INIT_PRODUCER_ID: self.init_producer_id,
            ApiKey.ADD_PARTITIONS_TO_TXN: self.add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self.add_offsets,
            ApiKey.END_TXN: self.end,
            ApiKey.DESCRIBE_TRANSACTIONS: self._listing.describe,
            ApiKey.LIST_TRANSACTIONS: self._listing.list,
        }

    async def init_producer_id(self, header: RequestHeader, request: Any) -> Fields:
        """Without a transactional id: a new id for an idempotent producer."""
        try:
            await self._ids_ready()
            if request.transactional_id is None:
                producer_id, epoch = self._fresh_id(), 0
            else:
                producer_id, epoch = await self._init(request)
        except DiskFull:
            return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR, "producer_id": -1, "producer_epoch": -1}
        except Refused as error:
            return {"error_code": _code(header, error), "producer_id": -1, "producer_epoch": -1}
        return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}

    async def _init(self, request: Any) -> tuple[int, int]:
        _check_id(request.transactional_id)
        timeout_ms = round(request.transaction_timeout.total_seconds() * 1000)
        if not 0 < timeout_ms <= self._transactions.limits.max_timeout_ms:
            raise Refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"time-out of {timeout_ms} ms")
        given = Producer(getattr(request, "producer_id", -1), getattr(request, "producer_epoch", -1))
        if (given.id < 0) is not (given.epoch < 0):
            raise Refused(ErrorCode.INVALID_REQUEST, "a producer id goes with an epoch")
        return await self._transactions.init(request.transactional_id, timeout_ms, None if given.id < 0 else given)

    async def add_partitions(self, header: RequestHeader, request: Any) -> Fields:
        if header.version < _BATCHED_FROM:
            given = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
            wanted = _wanted(request.v3_and_below_topics)
            errors = await self._add(header, request.v3_and_below_transactional_id, given, wanted, version=0)
            return {"results_by_topic_v3_and_below": _by_topic(errors)}
        results = [
            {
                "transactional_id": asked.transactional_id,
                "topic_results": _by_topic(await self._of_one(header, asked)),
            }
            for asked in request.transactions
        ]
        return {"error_code": ErrorCode.NONE, "results_by_transaction": results}

    async def _of_one(self, header: RequestHeader, asked: Any) -> Errors:
        wanted, given = _wanted(asked.topics), Producer(asked.producer_id, asked.producer_epoch)
        if not asked.verify_only:
            return await self._add(header, asked.transactional_id, given, wanted, version=TV2)
        question = Question(asked.transactional_id, given.id, given.epoch, wanted)
        refused = await self._transactions.verify(question, add=False)
        return {tp: refused.get(tp, ErrorCode.NONE) for tp in wanted}

    async def _add(
        self,
        header: RequestHeader,
        transactional_id: str,
        given: Producer,
        wanted: list[TopicPartition],
        *,
        version: int,
    ) -> Errors:
        """All of *wanted* or none."""
        bad = {tp: code for tp in wanted if (code := self._problem(tp)) is not None}
        if bad:
            return {tp: bad.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in wanted}
        try:
            _check_id(transactional_id)
            await self._transactions.add(transactional_id, given, wanted, version=version)
        except Refused as error:
            return dict.fromkeys(wanted, _code(header, error))
        return dict.fromkeys(wanted, ErrorCode.NONE)

    def _problem(self, tp: TopicPartition) -> ErrorCode | None:
        if is_internal(tp.topic):  # Offsets are added by group (AddOffsetsToTxn, TxnOffsetCommit).
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic_id = self._topics.topic_id(tp.topic, tp.partition)
        if topic_id == NO_ID:
            return ErrorCode.POLICY_VIOLATION  # only for reading
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_id is None else None

    async def add_offsets(self, header: RequestHeader, request: Any) -> Fields:
        """The group's offsets will be part of the transaction."""
        try:
            _check_id(request.transactional_id)
            if not request.group_id:
                raise Refused(ErrorCode.INVALID_GROUP_ID, "a group id must not be empty")
            offsets = TopicPartition(OFFSETS_TOPIC, partition_of(request.group_id, await self._offsets_partitions()))
            given = Producer(request.producer_id, request.producer_epoch)
            await self._transactions.add(request.transactional_id, given, [offsets], version=0)
        except Refused as error:
            return {"error_code": _code(header, error)}
        return {"error_code": ErrorCode.NONE}

    async def end(self, header: RequestHeader, request: Any) -> Fields:
        """Answered once the decision is durable; the markers follow."""
        version = TV2 if header.version >= _TV2_FROM else 0
        given = Producer(request.producer_id, request.producer_epoch)
        try:
            _check_id(request.transactional_id)
            producer_id, epoch = await self._transactions.end(
                request.transactional_id, given, commit=request.committed, version=version
            )
        except Refused as error:
            return {"error_code": _code(header, error), "producer_id": -1, "producer_epoch": -1}
        return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise Refused(ErrorCode.INVALID_REQUEST, "the transactional id is empty")


def _code(header: RequestHeader, error: Refused) -> ErrorCode:
    facts = {"api": ApiKey(header.api_key).name, "client": header.client_id, "code": error.code.name, "why": str(error)}
    log.debug("transaction request refused", extra=facts)
    return told(error.code, ApiKey(header.api_key), header.version)


def _wanted(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, number) for topic in topics for number in topic.partitions]


def _by_topic(errors: Errors) -> list[Fields]:
    rows: defaultdict[str, list[Fields]] = defaultdict(list)
    for tp, code in errors.items():
        rows[tp.topic].append({"partition_index": tp.partition, "partition_error_code": code})
    return [{"name": topic, "results_by_partition": partitions} for topic, partitions in rows.items()]
