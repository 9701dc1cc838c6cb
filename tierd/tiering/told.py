"""What the tierer is told of partitions and topics: kept here, so that one that is started anew is told all of it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from tierd.base.ids import PartitionId, Uuid
from tierd.storage.view import PartitionView
from tierd.tiering import messages as m
from tierd.tiering.options import TopicState


class Told:
    """Loop thread only."""

    def __init__(self, ready: Callable[[], bool], tell: Callable[[m.Message], None]) -> None:
        """*ready*: whether a tierer is open; what changes while none is goes to it with `catch_up`."""
        self._ready = ready
        self._tell = tell
        self._views: dict[PartitionId, PartitionView] = {}
        self._topics: dict[Uuid, TopicState] = {}
        self._behind: set[PartitionId | Uuid] = set()
        self._adopted: dict[Uuid, bool | None] = {}
        """What registry or bucket said of topics; none is adopted later on."""

    def begin(self, views: Iterable[PartitionView], topics: Iterable[TopicState]) -> None:
        self._views = {view.id: view for view in views}
        self._topics = {topic.topic_id: topic for topic in topics}
        self.bucket_says(self._topics.values())

    def bucket_says(self, topics: Iterable[TopicState]) -> None:
        """All topics, as a tierer knows them when it has opened."""
        self._adopted.update((topic.topic_id, topic.adopted) for topic in topics)

    def all_of_it(self) -> tuple[tuple[PartitionView, ...], tuple[TopicState, ...]]:
        """For a tierer that is about to open; what changes from here on is for `catch_up`."""
        self._behind.clear()
        return tuple(self._views.values()), tuple(self._topics.values())

    def catch_up(self) -> None:
        """Send what changed while the tierer was opening."""
        behind, self._behind = self._behind, set()
        for key in behind:
            if isinstance(key, PartitionId):
                self._send_view(key)
            else:
                self._send_topic(key)

    def partition_changed(self, view: PartitionView) -> None:
        self._views[view.id] = view
        self._send_view(view.id)

    def topic_changed(self, topic: TopicState) -> None:
        adopted = self._adopted.get(topic.topic_id, False)
        self._topics[topic.topic_id] = replace(topic, adopted=adopted)
        self._send_topic(topic.topic_id)

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        for part in [part for part in self._views if part.topic_id == topic_id]:
            del self._views[part]
        known = self._topics.get(topic_id)
        self._topics[topic_id] = TopicState(
            topic=topic,
            topic_id=topic_id,
            partitions=partitions,
            config=known.config if known else {},
            created_ms=known.created_ms if known else deleted_ms,
            deleted_ms=deleted_ms,
        )
        self._send_topic(topic_id)

    def forget_topic(self, topic_id: Uuid) -> None:
        """The bucket says that it is deleted: no tierer need hear of it."""
        self._topics.pop(topic_id, None)

    def bucket_has(self, topic_id: Uuid, config: dict[str, str]) -> None:
        """The bucket's settings are newer; the tierer knows that already."""
        self._topics[topic_id] = replace(self._topics[topic_id], config=config)

    def _send_view(self, part: PartitionId) -> None:
        if not self._ready():
            self._behind.add(part)
        elif part in self._views:
            self._tell(m.PartitionChanged(self._views[part]))

    def _send_topic(self, topic_id: Uuid) -> None:
        if not self._ready():
            self._behind.add(topic_id)
        elif topic_id in self._topics:
            self._tell(m.TopicChanged(self._topics[topic_id]))
