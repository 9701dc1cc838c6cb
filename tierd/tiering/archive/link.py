"""The broker's end where the bucket is only read: the RemoteTier of an archive. Loop thread only."""

import asyncio
import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Protocol

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import ArchivedTopic, Claim, ClaimState, RemotePartition, RemoteStatus
from tierd.storage.view import PartitionView
from tierd.tiering import messages as m
from tierd.tiering.heartbeat import Patience
from tierd.tiering.link import TierLink
from tierd.tiering.options import Identity, OpenRequest, TiererOptions
from tierd.tiering.ports import LocalTier

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "tierd.tiering", "--archive")
_NOBODY = Claim(state=ClaimState.NONE, epoch=0, detail="the bucket is only read")


class Shows(Protocol):
    """What clients see of the bucket. `broker.archived.Archived` has this shape."""

    def show(self, topics: Iterable[ArchivedTopic], gone: Iterable[Uuid]) -> None:
        """*topics* are new or others than before; those with the ids *gone* are no more."""


class ArchiveLink(TierLink):
    """`open_archive` starts the first tierer and shows what the bucket has; `follow` goes on with what is new."""

    def __init__(
        self,
        options: TiererOptions,
        local: LocalTier,
        shows: Shows,
        clock: Clock,
        *,
        command: Sequence[str] = COMMAND,
        patience: Patience | None = None,
    ) -> None:
        super().__init__(options, local, clock, command=command, patience=patience)
        self._claim = _NOBODY
        self._shows = shows
        self._topics: dict[Uuid, ArchivedTopic] = {}
        self._old: str | None = None
        self._following: asyncio.Task[None] | None = None

    async def open_archive(self, identity: Identity) -> None:
        """All that the bucket has is shown when this returns. Raises StartRefused, RemoteUnavailable."""
        await self.open((), topics=(), local_epoch=-1, identity=identity)
        self._following = asyncio.create_task(self._follow())
        self._following.add_done_callback(self._followed)

    async def _start(self, request: OpenRequest) -> m.Opened:
        await self._child.start()
        await self._ask(lambda n: m.Configure(n, self._options))
        opened: m.ArchiveOpened = await self._ask(m.OpenArchive)
        self.running.set()
        self._old = None
        here = {topic.topic_id for topic in opened.topics}
        self._show(opened.topics, [topic_id for topic_id in self._topics if topic_id not in here])
        return m.Opened(opened.call, self._claim, (), (), (), (), None)

    async def _follow(self) -> None:
        while True:
            await self.running.wait()
            try:
                news: m.ArchiveNews = await self._ask(m.NextArchive)
            except RemoteUnavailable:  # it has ended; the next one shows everything when it opens
                await self._child.gone.wait()
                continue
            self._old = news.trouble
            self._show(news.topics, news.gone)

    def _followed(self, task: "asyncio.Task[None]") -> None:
        """Nobody expected an error: what is shown stays as it is, and that is told."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._old = f"what is new in the bucket is not shown until a restart: {error!r}"
            log.critical("the archive is not followed any more", exc_info=error)

    def _show(self, topics: Sequence[ArchivedTopic], gone: Sequence[Uuid]) -> None:
        for topic_id in gone:
            self._topics.pop(topic_id, None)
        self._topics.update({topic.topic_id: topic for topic in topics})
        self._shows.show(topics, gone)

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await super().close()

    @property
    def trouble(self) -> str | None:
        return super().trouble or self._old

    # --- RemoteTier: there is nothing to tell, and all that is to be known is here ------------------------------------
    def remote_partition(self, part: PartitionId) -> RemotePartition | None:
        topic = self._topics.get(part.topic_id)
        known = () if topic is None else topic.partitions
        return known[part.partition].remote if part.partition < len(known) else None

    async def status(self) -> dict[PartitionId, RemoteStatus]:
        remotes = [one.remote for topic in self._topics.values() for one in topic.partitions]
        return {one.id: RemoteStatus(remote=one, oldest_uncopied_ms=None, waiting=None) for one in remotes}

    def partition_changed(self, view: PartitionView) -> None:
        """Only the broker's own topics change, and nothing of them goes to the bucket."""

    def topic_changed(
        self, topic: str, topic_id: Uuid, partitions: int, config: dict[str, str], created_ms: int
    ) -> None:
        """As above."""

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        """As above."""
