"""The quota of what is made and removed: CreateTopics, CreatePartitions and DeleteTopics, counted in partitions."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from tierd.base.ids import Uuid
from tierd.broker.partitions import Partitions
from tierd.broker.security.guarding import Answer, Fields, Handler, changed, split
from tierd.broker.security.quotas import Quotas
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader

_NEVER: Final = 1 << 15
STRICT_FROM: Final = {
    int(ApiKey.CREATE_TOPICS): 6,
    int(ApiKey.DELETE_TOPICS): 5,
    int(ApiKey.CREATE_PARTITIONS): 3,
    int(ApiKey.METADATA): _NEVER,
}
"""Clients of older versions do not know the refusal: they pause instead; so do those who make topics by mentioning
them."""
_REFUSED: Final[Fields] = {
    "error_code": ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    "error_message": "The throttling quota has been exceeded.",
}
_NOT_MADE: Final[Fields] = {
    **_REFUSED,
    "topic_id": None,
    "num_partitions": -1,
    "replication_factor": -1,
    "configs": (),
}


class Mutations:
    def __init__(self, quotas: Quotas, partitions: Partitions, default_partitions: int) -> None:
        self._quotas = quotas
        self._partitions = partitions
        self._default_partitions = default_partitions

    def counted(self, table: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        """The handlers of *table* that make or remove something, each behind its count."""
        return {
            ApiKey.CREATE_TOPICS: self._counted(
                table[ApiKey.CREATE_TOPICS], self._made, "topics", lambda row: {"name": row.name, **_NOT_MADE}
            ),
            ApiKey.CREATE_PARTITIONS: self._counted(
                table[ApiKey.CREATE_PARTITIONS], self._grown, "results", lambda row: {"name": row.name, **_REFUSED}
            ),
            ApiKey.DELETE_TOPICS: self._counted(table[ApiKey.DELETE_TOPICS], self._removed, "responses", _not_removed),
            ApiKey.METADATA: self._mentioned(table[ApiKey.METADATA]),
        }

    def _counted(
        self, handler: Handler, partitions: Callable[[Any], int], rows: str, refused: Callable[[Any], Fields]
    ) -> Handler:
        async def counted(header: RequestHeader, request: Any) -> Answer:
            if not self._quotas.any or getattr(request, "validate_only", False):
                answer: Answer = await handler(header, request)
                return answer
            field = "topics" if hasattr(request, "topics") else "topic_names"
            strict = header.version >= STRICT_FROM[header.api_key]
            allowed, not_now = await split(
                getattr(request, field),
                lambda row: self._quotas.take(partitions(row), header.session, header.client_id, strict=strict),
            )
            answer = await handler(header, changed(request, **{field: tuple(allowed)}))
            return {**answer, rows: [*answer[rows], *map(refused, not_now)]}

        return counted

    def _mentioned(self, handler: Handler) -> Handler:
        """Metadata: what it has made is counted afterwards."""

        async def counted(header: RequestHeader, request: Any) -> Answer:
            limited = self._quotas.any and request.topics
            absent = {row.name for row in request.topics if self._partitions.topic(row.name) is None} if limited else ()
            answer: Answer = await handler(header, request)
            for row in answer["topics"] if absent else ():
                if row["name"] in absent and not row["error_code"]:
                    self._quotas.take(len(row["partitions"]), header.session, header.client_id, strict=False)
            return answer

        return counted

    def _made(self, row: Any) -> int:
        return len(row.assignments) or (self._default_partitions if row.num_partitions < 0 else row.num_partitions)

    def _grown(self, row: Any) -> int:
        topic = self._partitions.topic(row.name)
        return 0 if topic is None else max(row.count - topic.row.partitions, 0)

    def _removed(self, row: Any) -> int:
        topic_id = getattr(row, "topic_id", None)
        if topic_id is not None:
            topic = self._partitions.topic_by_id(Uuid(topic_id.bytes))
        else:
            topic = self._partitions.topic(getattr(row, "name", row))
        return 0 if topic is None else topic.row.partitions


def _not_removed(row: Any) -> Fields:
    return {"name": getattr(row, "name", row), "topic_id": getattr(row, "topic_id", None), **_REFUSED}
