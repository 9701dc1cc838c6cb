"""Keeps the bucket's own documents up with the catalog: heads (CAS, batched) and topic files."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from tierd.base.errors import DiskFull, TierdError
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.remote.errors import ClaimLost
from tierd.remote.heads import Gap, Head, StoredHead, update_head
from tierd.remote.topics import TopicFile, put_topic
from tierd.storage.setaside import SetAside
from tierd.tiering.deletion import delete_head
from tierd.tiering.divergence import local_epochs
from tierd.tiering.intake import entry_of
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.opening import HEADS_MS
from tierd.tiering.options import TopicState
from tierd.tiering.rows import CatalogPartition
from tierd.tiering.state import TierState

log = logging.getLogger(__name__)


_LAST_WORDS_S = 2
_WHY_IS_LOST = "accepted; the head that said why did not parse"


class Publisher:
    """Writes what is dirty. A head or file that fails stays dirty and is tried at the next tick."""

    def __init__(self, state: TierState, set_aside: SetAside, on_tombstone: Callable[[Uuid], None]) -> None:
        """*set_aside* keeps the bytes of a head that does not parse and is written over."""
        self._state = state
        self._set_aside = set_aside
        self._on_tombstone = on_tombstone
        self._writing = asyncio.Lock()
        """One document at a time, removals too: a head that is removed does not come back behind its removal."""
        self._stored: dict[PartitionId, StoredHead] = {}
        """What this process wrote last, without entries: the next update needs no GET."""
        self._kept: dict[PartitionId, bytes] = {}
        """Heads that have been set aside and are not written over yet."""
        self._accepting: dict[PartitionId, Sequence[Gap]] = {}
        """Gaps on their way into a head."""

    async def tick(self) -> None:
        """Everything that is dirty, after one look whether the bucket is still ours."""
        topics, heads = self._state.catalog.topics(dirty=True), self._state.catalog.dirty_heads()
        if (topics or heads) and await self._state.owned():
            await self._topics(topics)
            await self.heads(heads)

    async def last_words(self) -> None:
        """At a stop: what is behind, as far as the bucket takes it at once. The next start would write it, too."""
        try:
            async with asyncio.timeout(_LAST_WORDS_S):
                await self.tick()
        except (TimeoutError, DiskFull):
            log.info("some heads or topic files are behind when tierd stops")

    async def heads(self, parts: Sequence[PartitionId]) -> bool:
        """True when all of *parts* are written. The caller has just asked `owned`."""
        written: list[bool] = []
        try:
            for part in parts:
                written.append(await self._head_written(part))
        finally:
            if any(written):
                with suppress(DiskFull):  # the next start looks longer then
                    self._state.catalog.put(HEADS_MS, str(self._state.now_ms()))
        return all(written)

    async def accept(self, part: PartitionId, gaps: Sequence[Gap]) -> bool:
        """Write *gaps* into the head, beside those that are there; False when that cannot be. As `heads` otherwise."""
        self._accepting[part] = gaps
        try:
            return await self.heads([part])
        finally:
            del self._accepting[part]

    async def _head_written(self, part: PartitionId) -> bool:
        if not await self._step(partial(self._write_head, part)):
            return False
        self._kept.pop(part, None)
        if self._state.rotten.pop(part, None) is not None:
            log.warning("a head that did not parse is written again", extra={"partition": self._state.name_of(part)})
            self._state.tell(part)
        return True

    async def drop(self, partition: CatalogPartition) -> None:
        """The head, then the row, of a deleted topic's partition that has nothing else left. Raises TierdError."""
        async with self._writing:
            bucket, part = self._state.bucket, partition.part
            await self._state.blocking(lambda: delete_head(bucket, partition.topic, part))
            self._state.catalog.drop_partition(part)
            self._stored.pop(part, None)

    async def _topics(self, topics: Sequence[TopicState]) -> None:
        for topic in topics:
            if await self._step(partial(self._write_topic, topic)) and topic.deleted_ms is not None:
                self._on_tombstone(topic.topic_id)

    async def _step(self, work: Callable[[], None]) -> bool:
        """False when it has to be done again; once the claim is lost nothing is tried any more."""
        try:
            async with self._writing:
                if self._state.stopping or not self._state.held:
                    return False
                await self._state.blocking(work)
        except ClaimLost as lost:
            self._state.lose(str(lost))
            return False
        except (TierdError, OSError) as error:  # away, or a document of a later format: the others go on
            log.warning("a head or topic file is behind: %s", error)
            return False
        return True

    # --- in a thread -------------------------------------------------------------------------------------------------
    def _write_topic(self, topic: TopicState) -> None:
        bucket = self._state.bucket
        put_topic(
            bucket.store,
            bucket.keys,
            TopicFile(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=topic.partitions,
                config=topic.config,
                created_ms=topic.created_ms,
                deleted_ms=topic.deleted_ms,
                epoch=self._state.claim.epoch,
                adopted=topic.adopted,
            ),
        )
        self._state.catalog.topic_written(topic)

    def _write_head(self, part: PartitionId) -> None:
        catalog, bucket = self._state.catalog, self._state.bucket
        catalog.head_taken(part)
        row = catalog.partition(part)
        if row is None:
            return
        try:
            stored = update_head(
                bucket.store,
                bucket.keys,
                lambda old: self._head(part, row.topic, old),
                topic=row.topic,
                topic_id=part.topic_id,
                partition=part.partition,
                known=self._stored.pop(part, None),
                on_rotten=partial(self._keep, TopicPartition(row.topic, part.partition), part),
            )
        except (TierdError, OSError):
            catalog.touch_head(part)
            raise
        self._stored[part] = StoredHead(replace(stored.head, entries=()), stored.etag)

    def _keep(self, name: TopicPartition, part: PartitionId, raw: bytes, why: str) -> None:
        """What a head says that nothing else does, log start and gaps, is then as disk and catalog know it."""
        self._state.rotten[part] = why
        if self._kept.get(part) != raw:
            kept = self._set_aside.keep(name, "head.json", raw)
            self._kept[part] = raw
            log.error("a head does not parse and is set aside: %s", why, extra={"partition": str(name), "kept": kept})

    def _known_gaps(self, part: PartitionId) -> tuple[Gap, ...]:
        """What the catalog knows of gaps that were accepted; who did it and why stood in the head alone."""
        return tuple(
            Gap(start=start, stop=stop, reason=_WHY_IS_LOST) for start, stop in self._state.catalog.gaps.spans(part)
        )

    def _head(self, part: PartitionId, topic: str, old: Head | None) -> Head:
        """The catalog's state; gaps, and a log start further on, stay as they are in the bucket."""
        state = self._state
        assert state.run is not None
        row = state.catalog.partition(part)
        rows = state.catalog.segments(part, CopyState.COPY_FINISHED)
        log_start = row.log_start or 0 if row else 0
        view = state.views.get(part)
        lineage = () if view is None else local_epochs(view)
        new = Head(
            topic=topic,
            topic_id=part.topic_id,
            partition=part.partition,
            epoch=state.claim.epoch,
            incarnation=state.run.incarnation,
            updated_ms=state.clock.now_ms(),
            lineage=lineage or (old.lineage if old else ()),
            log_start=max(log_start, old.log_start if old else 0),
            copied_to=row.copied_to if row else None,
            gaps=_joined(old.gaps if old else self._known_gaps(part), self._accepting.get(part, ())),
            entries=tuple(entry_of(one) for one in rows),
        )
        return new


def _joined(old: Sequence[Gap], new: Sequence[Gap]) -> tuple[Gap, ...]:
    """Ascending; what is accepted again counts as it was accepted last."""
    gaps = {(gap.start, gap.stop): gap for gap in (*old, *new)}
    return tuple(gaps[span] for span in sorted(gaps))
