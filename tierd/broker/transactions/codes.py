"""The coordinator's codes in the words of each API and version, as Kafka translates them.

Older clients do not know a code, take it for something else, or give up where they should try again.
"""

from collections.abc import Mapping
from typing import Final

from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

_ALL: Final = 1 << 15
"""Above every version."""
_Rule = tuple[ErrorCode, int, ErrorCode]
"""(what the coordinator says, below which version of the API, what is told instead); the first that fits counts."""


def _fenced(below: int) -> _Rule:
    return ErrorCode.PRODUCER_FENCED, below, ErrorCode.INVALID_PRODUCER_EPOCH


_RULES: Final[Mapping[ApiKey, tuple[_Rule, ...]]] = {
    ApiKey.INIT_PRODUCER_ID: (_fenced(4),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (_fenced(2),),
    ApiKey.ADD_OFFSETS_TO_TXN: (_fenced(2),),
    ApiKey.END_TXN: (_fenced(2),),
    ApiKey.PRODUCE: (
        _fenced(_ALL),
        (ErrorCode.TRANSACTION_ABORTABLE, 11, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 12, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, _ALL, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, _ALL, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, _ALL, ErrorCode.NOT_ENOUGH_REPLICAS),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (
        _fenced(_ALL),
        (ErrorCode.TRANSACTION_ABORTABLE, 4, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 2, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ),
}


def told(code: ErrorCode, api: ApiKey, version: int) -> ErrorCode:
    """What a client of *version* hears when the coordinator says *code*."""
    rules = _RULES.get(api, ())
    return next((instead for known, below, instead in rules if code is known and version < below), code)
