"""An archive is only read: what would change a topic or write to one is refused, as if nobody had the right to it.

The guards of access rules do it, for they know how each API says so. Groups, users, access rules and quotas are this
broker's own, and may be changed.
"""

from collections.abc import Mapping
from typing import Any, Final

from tierd.broker.operations import Operation
from tierd.broker.security.acls import Kind
from tierd.broker.security.asking import Asking, Denied, Rights
from tierd.broker.security.guarding import Guard, Handler
from tierd.broker.security.matcher import Rules, Verdict
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader

_GUARDED: Final = frozenset(
    {
        ApiKey.METADATA,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.ELECT_LEADERS,
    }
)
_CHANGES: Final = frozenset(
    {
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        Operation.CLUSTER_ACTION,
    }
)


def only_read(table: Mapping[ApiKey, Handler], guards: Mapping[ApiKey, Guard]) -> dict[ApiKey, Handler]:
    """The table with a guard before each handler that changes or shows what may be done with a topic."""

    def guard(key: ApiKey) -> Handler:
        keeper, handler = guards[key], table[key]

        async def watched(header: RequestHeader, request: Any) -> Any:
            asking = Asking(header, _Readers(header), _unheard)
            return await keeper(asking, request, lambda left: handler(header, left))

        return watched

    return {key: guard(key) if key in _GUARDED else handler for key, handler in table.items()}


class _Readers(Rights):
    """What anybody may do, as far as the archive is concerned."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(_NO_RULES, header.session, everything=False)

    def verdict(self, operation: Operation, kind: Kind, name: str) -> Verdict:
        return Verdict(kind is Kind.GROUP or operation not in _CHANGES, None)

    def may_any(self, operation: Operation, kind: Kind) -> bool:
        return self.verdict(operation, kind, "").allowed


_NO_RULES: Final = Rules((), allow_without=True)


def _unheard(denied: Denied) -> None:
    """It is no matter of rights: nobody has to know of it."""
