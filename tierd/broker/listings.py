"""Answers that show very much: few of one kind are made at a time, however many clients ask at once.

Each takes a while of the loop and many MiB until it is written; hundreds side by side, each in its turns, would leave
others no turn for seconds.
"""

import asyncio
from collections import defaultdict
from typing import Any, Final

from tierd.base.ids import Uuid
from tierd.broker.partitions import Partitions, Topic
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader

LONG_ROWS: Final = 200
"""An answer with more rows, or rows below them, takes long."""
_AT_A_TIME: Final = 2
_NAMES_LOOKED_AT: Final = 20
_ALWAYS: Final = frozenset(
    map(
        int,
        (
            ApiKey.LIST_GROUPS,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.LIST_TRANSACTIONS,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.LIST_CONFIG_RESOURCES,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.DESCRIBE_ACLS,
            ApiKey.DESCRIBE_CLIENT_QUOTAS,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ),
    )
)
"""Asked by tools now and then; they only show what there is, and wait for nothing but the first reading of it."""
_METADATA: Final = int(ApiKey.METADATA)


class Listings:
    """Loop thread only."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._turns: defaultdict[int, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_AT_A_TIME))

    def turn(self, header: RequestHeader, request: Any) -> asyncio.Semaphore | None:
        """What to wait for before such a request is answered, and to hold until its answer is written; None: nothing.

        Clients ask for a few topics all the time: only who asks for many partitions waits.
        """
        key = header.api_key
        if key in _ALWAYS or (key == _METADATA and self._rows(header, request.topics) > LONG_ROWS):
            return self._turns[key]
        return None

    def _rows(self, header: RequestHeader, topics: Any) -> int:
        if topics is None or (not topics and header.version == 0):
            return sum([topic.row.partitions for topic in self._partitions.topics()])
        if len(topics) > _NAMES_LOOKED_AT:
            return LONG_ROWS + 1
        found = [self._named(row) for row in topics]
        return sum([topic.row.partitions for topic in found if topic is not None])

    def _named(self, row: Any) -> Topic | None:
        topic_id = getattr(row, "topic_id", None)
        if row.name is None and topic_id is not None:
            return self._partitions.topic_by_id(Uuid(topic_id.bytes))
        return self._partitions.topic(row.name or "")
