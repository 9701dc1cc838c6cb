"""OffsetCommit and OffsetFetch from version 10 on: topics go by id there, and by name everywhere behind this."""

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final
from uuid import UUID

from kio.index import load_request_schema

from tierd.broker.partitions import Partitions
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.wire.header import RequestHeader
from tierd.wire.schema import shapes

_FROM: Final = 10
_NO_OFFSET: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}

Fields = dict[str, Any]
Handler = Callable[[RequestHeader, Any], Awaitable[Any]]


def _element(entity: type[Any], name: str) -> type[Any]:
    """The class of the elements of an array."""
    found = next(shape.entity for shape in shapes(entity) if shape.name == name)
    assert found is not None
    return found


_COMMITTED: Final = _element(load_request_schema(ApiKey.OFFSET_COMMIT, _FROM - 1), "topics")
_GROUP: Final = _element(load_request_schema(ApiKey.OFFSET_FETCH, _FROM - 1), "groups")
_FETCHED: Final = _element(_GROUP, "topics")


class OffsetsById:
    """Stands before the handlers of both."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def before(self, table: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
        return {
            **table,
            ApiKey.OFFSET_COMMIT: self._commit(table[ApiKey.OFFSET_COMMIT]),
            ApiKey.OFFSET_FETCH: self._fetch(table[ApiKey.OFFSET_FETCH]),
        }

    def _commit(self, handler: Handler) -> Handler:
        async def answer(header: RequestHeader, request: Any) -> Any:
            if header.version < _FROM:
                return await handler(header, request)
            topics, unknown = self._named(request.topics, _COMMITTED)
            fields: Fields = dict(await handler(header, dataclasses.replace(request, topics=topics)))
            fields["topics"] = self._with_ids(fields["topics"]) + [
                _refused(topic, _committed(topic)) for topic in unknown
            ]
            return fields

        return answer

    def _fetch(self, handler: Handler) -> Handler:
        async def answer(header: RequestHeader, request: Any) -> Any:
            if hasattr(request, "groups"):  # all offsets of one group, asked for a thousand times, are shown once
                each = {(group.group_id, group.topics): group for group in request.groups}
                request = dataclasses.replace(request, groups=tuple(each.values()))
            if header.version < _FROM:
                return await handler(header, request)
            groups, unknown = [], {}
            for group in request.groups:
                topics = None
                if group.topics is not None:
                    topics, unknown[group.group_id] = self._named(group.topics, _FETCHED)
                groups.append(dataclasses.replace(group, topics=topics))
            fields: Fields = dict(await handler(header, dataclasses.replace(request, groups=tuple(groups))))
            fields["groups"] = [self._shown(group, unknown.get(group["group_id"], ())) for group in fields["groups"]]
            return fields

        return answer

    def _shown(self, group: Fields, unknown: Iterable[Any]) -> Fields:
        topics = self._with_ids(group["topics"])
        if not group["error_code"]:
            topics += [_refused(topic, _fetched(topic)) for topic in unknown]
        return {**group, "topics": topics}

    def _named(self, topics: Iterable[Any], entity: type[Any]) -> tuple[tuple[Any, ...], list[Any]]:
        """*topics* as version 9 has them, and those whose ids are unknown."""
        named, unknown = [], []
        for topic in topics:
            name = None if topic.topic_id is None else self._partitions.names.get(topic.topic_id.bytes)
            if name is None:
                unknown.append(topic)
                continue
            others = {field.name: getattr(topic, field.name) for field in dataclasses.fields(topic)}
            del others["topic_id"]
            named.append(entity(name=name, **others))
        return tuple(named), unknown

    def _with_ids(self, rows: Iterable[Fields]) -> list[Fields]:
        """Without topics that have gone."""
        found = [(row, self._partitions.topic(row["name"])) for row in rows]
        return [{**row, "topic_id": UUID(bytes=topic.id.raw)} for row, topic in found if topic is not None]


def _refused(topic: Any, rows: list[Fields]) -> Fields:
    return {"topic_id": topic.topic_id, "partitions": rows}


def _committed(topic: Any) -> list[Fields]:
    return [
        {"partition_index": part.partition_index, "error_code": ErrorCode.UNKNOWN_TOPIC_ID} for part in topic.partitions
    ]


def _fetched(topic: Any) -> list[Fields]:
    return [
        {"partition_index": index, **_NO_OFFSET, "error_code": ErrorCode.UNKNOWN_TOPIC_ID}
        for index in topic.partition_indexes
    ]
