"""What groups need of the broker (`groups.ports`): topic ids, who coordinates, and answers that wait for the disk."""

from collections.abc import Mapping
from typing import Any

from tierd.base.ids import NO_ID, Uuid
from tierd.broker.connection import CloseQuietly
from tierd.broker.entrances import Advertised
from tierd.broker.groups.consumer.model import Layout
from tierd.broker.groups.handlers import Handler
from tierd.broker.internal_topic import InternalTopic
from tierd.broker.partitions import Partitions
from tierd.storage.errors import StorageFailed
from tierd.wire.api import ApiKey
from tierd.wire.header import RequestHeader


def once_settled(table: Mapping[ApiKey, Handler], topic: InternalTopic) -> dict[ApiKey, Handler]:
    """The same handlers; what they answer waits for what they have appended. A failing disk closes the connection."""

    def settling(handler: Handler) -> Handler:
        async def answer(header: RequestHeader, request: Any) -> Mapping[str, object]:
            fields = await handler(header, request)
            try:
                await topic.settled()
            except StorageFailed as error:
                raise CloseQuietly from error
            return fields

        return answer

    return {key: settling(handler) for key, handler in table.items()}


class TopicIds:
    """Looks up what offsets are committed for."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        found = self._partitions.get(topic, partition)
        if found is None:
            return None
        return found.id.topic_id if found.has_id else NO_ID

    def layout(self, topic: str) -> Layout | None:
        found = self._partitions.topic(topic)
        return None if found is None else Layout(found.id, found.row.partitions)

    def names(self) -> list[str]:
        return [topic.name for topic in self._partitions.topics()]

    def name_of(self, topic_id: Uuid) -> str | None:
        found = self._partitions.topic_by_id(topic_id)
        return None if found is None else found.name


class OneNode:
    """Coordinator of every group and transactional id."""

    def __init__(self, node_id: int, advertised: Advertised) -> None:
        self._node_id = node_id
        self._advertised = advertised

    def coordinator(self, key_type: int, key: str, listener: str) -> tuple[int, str, int] | None:
        return (self._node_id, *self._advertised(listener))
