"""TxnOffsetCommit: offsets that count only if the transaction in which they are committed does."""

from typing import Any

from tierd.base.ids import TopicPartition
from tierd.broker.groups.coordinator import Coordinator, GroupTooLarge, NoRoom, NotReady
from tierd.broker.groups.offset_handlers import Fields, OffsetHandlers, Wanted, committed, not_kept
from tierd.broker.groups.ports import OFFSETS_TOPIC
from tierd.broker.groups.shard import Shard
from tierd.broker.groups.txn_store import TransactionalOffsets
from tierd.broker.transactions.codes import told
from tierd.broker.transactions.ports import Question, Verifier
from tierd.storage.errors import ProducerFenced
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

_ADDS_FROM = 5


class TxnOffsets:
    """The handler of the TxnOffsetCommit API."""

    def __init__(self, coordinator: Coordinator, offsets: OffsetHandlers, verifier: Verifier) -> None:
        self._coordinator = coordinator
        self._offsets = offsets
        self._store = TransactionalOffsets(coordinator)
        self._verifier = verifier

    async def __call__(self, header: RequestHeader, request: Any) -> Fields:
        """One error for all when group or transaction do not accept it; else what is wrong with each partition."""
        wanted = await self._offsets.wanted(request)
        errors = wanted.errors
        if wanted.good:
            refusal = await self._commit(request, header.version, wanted)
            errors = {place: error or refusal for place, error in errors.items()}
        return {"topics": [await committed(topic, errors) for topic in request.topics]}

    async def _commit(self, request: Any, version: int, wanted: Wanted) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        try:
            shard = await self._coordinator.shard(request.group_id)
        except NotReady:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        refusal = await self._verify(shard, request, version)
        # From here to the append nothing is awaited: until then the transaction goes on.
        if refusal is ErrorCode.NONE:
            refusal = self._may_commit(shard, request)
        if refusal is not ErrorCode.NONE:
            return refusal
        self._offsets.look_again(wanted)
        producer = request.producer_id, request.producer_epoch
        try:
            self._store.commit(shard, request.group_id, wanted.good, producer)
        except ProducerFenced:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        except (NotReady, NoRoom, GroupTooLarge) as why:
            return not_kept(why, request.group_id)
        return ErrorCode.NONE

    async def _verify(self, shard: Shard, request: Any, version: int) -> ErrorCode:
        place = TopicPartition(OFFSETS_TOPIC, shard.index)
        question = Question(request.transactional_id, request.producer_id, request.producer_epoch, (place,))
        if self._verifier.covers(question):
            return ErrorCode.NONE
        found = await self._verifier.verify(question, add=version >= _ADDS_FROM)
        return told(found.get(place, ErrorCode.NONE), ApiKey.TXN_OFFSET_COMMIT, version)

    def _may_commit(self, shard: Shard, request: Any) -> ErrorCode:
        """Before version 3 a producer cannot say which member it commits for: then anybody may, as in Kafka."""
        group = shard.groups.get(request.group_id)
        generation = getattr(request, "generation_id", -1)
        member_id, instance_id = getattr(request, "member_id", ""), getattr(request, "group_instance_id", None)
        consumers = shard.consumers.get(request.group_id)
        if consumers is not None:
            return consumers.may_commit_in_transaction(member_id, generation)
        if group is None:
            return shard.may_commit_alone(request.group_id, generation, ErrorCode.ILLEGAL_GENERATION)
        now_ms = self._coordinator.now_ms()
        return group.may_commit(member_id, instance_id, generation, now_ms, in_transaction=True)
