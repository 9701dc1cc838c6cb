"""Looks at the bucket now and again, and keeps what is new until the broker asks for it. Loop thread only."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from tierd.base.errors import StartRefused, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.base.logs import Doubling
from tierd.remote.facts import facts_of, traps
from tierd.remote.view import ArchivedTopic
from tierd.tiering.archive.survey import Survey

log = logging.getLogger(__name__)

_A_TURN = 50
"""Topics in one answer."""


@dataclass(slots=True)
class News:
    """What the broker has not been told."""

    changed: dict[Uuid, ArchivedTopic] = field(default_factory=dict)
    renamed: set[Uuid] = field(default_factory=set)
    gone: set[Uuid] = field(default_factory=set)

    def take(self) -> tuple[tuple[ArchivedTopic, ...], tuple[Uuid, ...]]:
        """The next part of it: all that goes or gives a name to another at once, of the rest so much that the broker
        is not kept long from its clients."""
        first = [topic_id for topic_id in self.changed if topic_id in self.renamed]
        others = [topic_id for topic_id in self.changed if topic_id not in self.renamed]
        topics = tuple(self.changed.pop(topic_id) for topic_id in (*first, *others[:_A_TURN]))
        gone = tuple(self.gone)
        self.renamed.clear()
        self.gone.clear()
        return topics, gone


class Keeper:
    """`open` looks for the first time; then `run` until it is cancelled."""

    def __init__(
        self,
        survey: Survey,
        interval_ms: int,
        *,
        forget: Callable[[Uuid], None],
        rearranged: Callable[[PartitionId], None],
    ) -> None:
        """*forget*: told of segments that readers see no more. *rearranged*: of partitions with others than before."""
        self._survey = survey
        self._interval_s = interval_ms / 1000
        self._forget = forget
        self._rearranged = rearranged
        self._shown: dict[Uuid, ArchivedTopic] = {}
        self._news = News()
        self._trouble: str | None = None
        self._told_trouble: str | None = None
        self._some = asyncio.Event()
        self._failing = Doubling()

    async def open(self) -> tuple[ArchivedTopic, ...]:
        """All topics. Raises StartRefused where nobody has ever written, RemoteUnavailable, DiskFull."""
        await self._look()
        if not self._shown and not self._survey.has_owner:
            raise StartRefused(f"{self._survey.bucket.url} holds nothing that can be served: check --remote")
        self._news = News()
        self._some.clear()
        self._say(self._survey.lacks)
        return tuple(self._shown.values())

    async def run(self) -> None:
        """Raises what nobody expected."""
        await asyncio.to_thread(self.tell_traps)
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._look()
            except TierdError as error:
                self._has_failed(error)
            else:
                self._failing.well("look")
                self._say(self._survey.lacks)

    def tell_traps(self) -> None:
        """In a thread: what is set on the bucket and takes objects away from readers."""
        bucket = self._survey.bucket
        try:
            facts = facts_of(bucket.store)
        except TierdError as error:
            log.info("what is set on the bucket could not be read: %s", error)
            return
        for line in traps(facts, bucket.keys.prefix) if facts is not None else ():
            log.warning("bucket: %s", line)

    async def news(self) -> tuple[tuple[ArchivedTopic, ...], tuple[Uuid, ...], str | None]:
        """What has changed and what is gone since the last answer, and what is wrong now; waits for it."""
        await self._some.wait()
        self._told_trouble = self._trouble
        topics, gone = self._news.take()
        if not self._news.changed:
            self._some.clear()
        return topics, gone, self._trouble

    async def _look(self) -> None:
        try:
            topics = await asyncio.to_thread(self._survey.look)
        finally:
            changes = self._survey.changes()
            for segment_id in changes.gone:
                self._forget(segment_id)
            for part in changes.rearranged:
                self._rearranged(part)
        self._take(topics)

    def _take(self, topics: dict[Uuid, ArchivedTopic]) -> None:
        for topic_id, topic in topics.items():
            before = self._shown.get(topic_id)
            if before != topic:
                self._news.changed[topic_id] = topic
                self._news.gone.discard(topic_id)
            if before is not None and before.name != topic.name:
                self._news.renamed.add(topic_id)
        for topic_id in self._shown.keys() - topics.keys():
            self._news.changed.pop(topic_id, None)
            self._news.gone.add(topic_id)
        self._shown = topics
        if self._news.changed or self._news.gone:
            self._some.set()

    def _has_failed(self, error: TierdError) -> None:
        times = self._failing.failed("look")
        if times is not None:
            log.warning("the bucket could not be looked at", extra={"times": times, "why": str(error)})
        self._say(f"what is new in the bucket is not shown: {error}")

    def _say(self, trouble: str | None) -> None:
        self._trouble = trouble
        if trouble != self._told_trouble:
            self._some.set()
