"""DescribeTransactions and ListTransactions: what a tool sees of transactional ids."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from tierd.broker.pattern import BadPattern, Pattern
from tierd.broker.transactions.coordinator import Transactions
from tierd.broker.transactions.machine import Refused
from tierd.broker.transactions.model import State, Transaction
from tierd.broker.turns import in_turns
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

Fields = dict[str, object]

_NAMES: Final = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
}
_KNOWN: Final = frozenset({*_NAMES.values(), "PrepareEpochFence", "Dead"})
"""Kafka has two more, in which no id is ever seen."""
_A_TURN: Final = 32
"""Ids matched before the loop serves others again."""


class ListingHandlers:
    """What `handlers.TransactionHandlers` hands on."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def describe(self, header: RequestHeader, request: Any) -> Fields:
        each = in_turns(dict.fromkeys(request.transactional_ids), _A_TURN)
        return {"transaction_states": [await self._described(name) async for name in each]}

    async def _described(self, transactional_id: str) -> Fields:
        try:
            found = await self._transactions.describe(transactional_id) if transactional_id else None
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
        except Refused as refused:
            found, error = None, refused.code
        if found is None:
            return {"transactional_id": transactional_id, "error_code": error}
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for tp in sorted(found.partitions):
            topics[tp.topic].append(tp.partition)
        return {
            "transactional_id": transactional_id,
            "error_code": ErrorCode.NONE,
            "transaction_state": _NAMES[found.state],
            "transaction_timeout": found.timeout_ms,
            "transaction_start_time": _started(found),
            "producer_id": found.producer_id,
            "producer_epoch": found.producer_epoch,
            "topics": [{"topic": name, "partitions": numbers} for name, numbers in topics.items()],
        }

    async def list(self, header: RequestHeader, request: Any) -> Fields:
        wanted = getattr(request, "transactional_id_pattern", None)
        try:
            pattern = Pattern(wanted) if wanted else None
            every = await self._transactions.listed()
        except BadPattern:
            return {"error_code": ErrorCode.INVALID_REGULAR_EXPRESSION}
        except Refused as error:
            return {"error_code": error.code}
        found = self._filtered(request, every)
        if pattern is not None:
            found = await _matching(pattern, found)
        return {
            "error_code": ErrorCode.NONE,
            "unknown_state_filters": sorted(frozenset(request.state_filters) - _KNOWN),
            "transaction_states": [
                {"transactional_id": name, "producer_id": one.producer_id, "transaction_state": _NAMES[one.state]}
                for name, one in found.items()
            ],
        }

    def _filtered(self, request: Any, every: Mapping[str, Transaction]) -> Mapping[str, Transaction]:
        states, ids = frozenset(request.state_filters), frozenset(request.producer_id_filters)
        longer_than_ms = getattr(request, "duration_filter", -1)
        now_ms = self._transactions.wall_ms()

        def wanted(found: Transaction) -> bool:
            # An id without a transaction counts as running since ever, as in Kafka.
            long_enough = longer_than_ms < 0 or now_ms - _started(found) > longer_than_ms
            right_state = not states or _NAMES[found.state] in states
            return long_enough and right_state and (not ids or found.producer_id in ids)

        return {name: found for name, found in every.items() if wanted(found)}


async def _matching(pattern: Pattern, every: Mapping[str, Transaction]) -> Mapping[str, Transaction]:
    found = {}
    async for name, one in in_turns(every.items(), _A_TURN):
        if pattern.matches(name):
            found[name] = one
    return found


def _started(found: Transaction) -> int:
    return -1 if found.started_ms is None else found.started_ms
