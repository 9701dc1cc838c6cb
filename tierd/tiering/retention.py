"""Lets data go: local segments that are safely copied, log start past what total retention releases, then objects.

Every decision is `plan`'s; here is its order of steps: persist first, then remove. Clock trouble or a lost claim
stops all of it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId
from tierd.config.topic import DAY_MS
from tierd.remote.errors import ClaimLost
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering import ahead, deletion
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import faults
from tierd.tiering.outlook import MOST_ROWS_IN_ALL, Outlook
from tierd.tiering.plan import covers, local_start_target, log_start_target, thin_to
from tierd.tiering.publish import Publisher
from tierd.tiering.recommit import commit_again, lacks_only_manifest
from tierd.tiering.rows import CatalogPartition, CatalogSegment
from tierd.tiering.state import COMMIT_WITHIN_MS, TierState
from tierd.tiering.suspects import Suspects

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Evicted:
    segments: int = 0
    bytes: int = 0


class Retention:
    """Loop thread only; LISTs and deletes run in threads."""

    def __init__(
        self,
        state: TierState,
        publisher: Publisher,
        mend: Callable[[PartitionId], None],
        scarce: Callable[[Path], bool] = lambda _: False,
    ) -> None:
        """*mend* is told partitions of which the bucket has lost segments; *scarce* says of a data directory whether it
        has little room."""
        self._state = state
        self._scarce = scarce
        self._mend = mend
        self._looked_ms: dict[PartitionId, int] = {}
        """When all segments of a partition were looked at last, by the monotonic clock."""
        self._publisher = publisher
        self._suspects = Suspects(state)
        self._compared: set[PartitionId] = set()
        """Whose local segments have been held against their copies in this run."""

    def trouble(self) -> str | None:
        """Why nothing is evicted or deleted now, in words; None when nothing stands against it."""
        if not self._state.held:
            return f"the claim is {self._state.claim.state.value}"
        return self._state.guard.trouble(self._state.bucket.store.now_ms())

    # --- local and total retention -----------------------------------------------------------------------------------
    async def tick(self) -> None:
        """Every tiered partition once."""
        if not await self._may_go():
            return
        for part in list(self._state.views):
            if self._state.stopping or not self._state.held:
                return
            await self.partition(part)
            await asyncio.sleep(0)  # most of it waits for nothing, and there may be very many

    async def _may_go(self) -> bool:
        trouble = self.trouble()
        if trouble is not None:
            log.info("evictions and deletes wait: %s", trouble)
            return False
        return await self._state.owned()

    async def partition(self, part: PartitionId) -> None:
        """One partition; the caller has just asked `owned`."""
        view = self._state.views.get(part)
        if view is None or not view.settings.remote_storage_enable:
            return
        try:
            await self._look_daily(view)
            await self._move_log_start(view)
            view = self._state.views.get(part, view)
            await self._evict(view, everything=self._hurries(view))
            self._mend_lost(part)
        except TierdError as error:  # the bucket is away, or the broker could not persist; the next tick tries again
            log.warning("retention of %s waits: %s", view.name, error)

    async def after_copy(self, part: PartitionId) -> None:
        """A copy was committed: local retention may have waited for it alone, or log start has passed it meanwhile."""
        row = self._state.catalog.partition(part)
        if row is not None and row.log_start:
            self.log_start_is(part, row.log_start)
        view = self._state.views.get(part)
        if view is None or self.trouble() is not None or self._early_target(view) <= view.local_start:
            return
        if await self._state.owned(COMMIT_WITHIN_MS):  # the copy has just asked
            await self.partition(part)

    def _hurries(self, view: PartitionView) -> bool:
        """Its disk has little room: local retention does not wait."""
        return self._scarce(view.directory.parent)

    def _early_target(self, view: PartitionView) -> int:
        return self._local_target(view, everything=self._hurries(view))

    async def room_tick(self) -> None:
        """What leaves a disk with little room does not wait for the next look."""
        if any(map(self._scarce, {view.directory.parent for view in self._state.views.values()})):
            await self.tick()

    async def evict_now(self, part: PartitionId) -> Evicted:
        """`tierd evict`: every local segment whose copy is committed and checked. Raises RemoteUnavailable."""
        view = self._state.views.get(part)
        if view is None or not view.settings.remote_storage_enable:
            return Evicted()
        await self._look(view)
        evicted = await self._evict(view, everything=True)
        self._mend_lost(part)
        return evicted

    async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
        """Whether a LIST shows whole copies of [start, stop), so that local ones may go. Raises RemoteUnavailable."""
        view = self._state.views.get(part)
        if view is None or not await self._may_go():
            raise RemoteUnavailable(f"{self._state.name_of(part)}: {self.trouble() or 'the bucket does not answer'}")
        rows = [
            row
            for row in self._state.catalog.segments(part, CopyState.COPY_FINISHED)
            if row.remote.base < stop and row.remote.next_base > start
        ]
        await self._check(view, rows)
        lost = {loss.segment_id for loss in self._state.losses.of(part)}
        ranges = [(row.remote.base, row.remote.next_base) for row in rows if row.remote.segment_id not in lost]
        return covers(ranges, start, stop)

    async def evictable(self, part: PartitionId) -> list[SegmentView]:
        """What `evict_now` would drop. Raises RemoteUnavailable."""
        view = self._state.views.get(part)
        if view is None or not view.settings.remote_storage_enable:
            return []
        await self._look(view)
        return await self._confirmed(view, everything=True)

    async def _move_log_start(self, view: PartitionView) -> None:
        settings = view.settings
        if settings.retention_ms is None and settings.retention_bytes is None:
            return
        target = log_start_target(view, self._state.catalog.views(view.id), now_ms=self._state.clock.now_ms())
        if target > view.log_start:
            log_start = await self._state.local.move_log_start(view.id, target)
            if log_start == view.log_start:
                return
            log.info("log start moved by retention", extra={"partition": str(view.name), "log_start": log_start})
            self.log_start_is(view.id, log_start)

    def log_start_is(self, part: PartitionId, log_start: int) -> None:
        """Durable in the broker: the head follows, segments below are released and later deleted."""
        moved = self._state.catalog.set_log_start(part, log_start)
        released = self._state.catalog.release(part, log_start, self._state.now_ms()) if log_start else 0
        if moved or released:
            self._state.tell(part)

    def _local_target(self, view: PartitionView, *, everything: bool) -> int:
        copies = self._copies(view)
        return local_start_target(
            view,
            [(one.base, one.next_base) for one in copies],
            now_ms=self._state.clock.now_ms(),
            everything=everything,
            given_up=self._given_up(view, copies),
        )

    def _copies(self, view: PartitionView) -> list[SegmentView]:
        """What the bucket has of the closed segments, and has not lost."""
        return ahead.copies(self._state.catalog, view, {loss.segment_id for loss in self._state.losses.of(view.id)})

    def _given_up(self, view: PartitionView, copies: Sequence[SegmentView]) -> int:
        """Where the local log ends that has lost what the bucket has. Not before it has begun in this run: until then
        it may be of another history, which is set aside."""
        return thin_to(view, copies) if view.leader_epoch == self._state.claim.epoch else view.local_start

    def has_lost(self, view: PartitionView) -> bool:
        """Whether the disk has lost records since they were copied; true once in a run: then `partition` is due."""
        begun = self._state.held and view.leader_epoch == self._state.claim.epoch
        if not begun or view.id in self._compared or not view.settings.remote_storage_enable:
            return False
        self._compared.add(view.id)
        if self._given_up(view, self._copies(view)) <= view.local_start:
            return False
        log.warning("the disk has lost records that the bucket has", extra={"partition": str(view.name)})
        return True

    async def give_up(self, part: PartitionId) -> None:
        """Let the bucket be read where the disk has lost records: now, not at the next tick."""
        if await self._may_go():
            await self.partition(part)

    async def look_now(self, part: PartitionId) -> None:
        """Look at *part* now, not at the next tick."""
        await self.give_up(part)

    async def outlooks(self, within_ms: int, topic: str | None = None) -> tuple[Outlook, ...]:
        """What would go up to *within_ms* from now, as far as the catalog knows; the bucket is not asked."""
        catalog, views = self._state.catalog, self._state.views
        found: list[Outlook] = []
        rows = 0
        for row in catalog.partitions():
            if topic is not None and row.topic != topic:
                continue
            view = views.get(row.part)
            if view is None or not view.settings.remote_storage_enable:
                one = ahead.look_at_released(catalog, row, deleted=view is None)
            else:
                one = self._outlook(view, within_ms)
            rows += len(one.rows)
            if not one.is_empty:
                found.append(one if rows <= MOST_ROWS_IN_ALL else one.without_rows)
            await asyncio.sleep(0)
        return tuple(found)

    def _outlook(self, view: PartitionView, within_ms: int) -> Outlook:
        copies, now_ms = self._copies(view), self._state.clock.now_ms()
        given_up = self._given_up(view, copies)
        return ahead.look(self._state.catalog, view, copies, now_ms=now_ms, within_ms=within_ms, given_up=given_up)

    async def _confirmed(self, view: PartitionView, *, everything: bool) -> list[SegmentView]:
        """What the plan releases, but only as far as a LIST has just shown the copies whole."""
        target = self._local_target(view, everything=everything)
        if target <= view.local_start:
            return []
        rows = self._state.catalog.segments(view.id, CopyState.COPY_FINISHED)
        await self._check(view, [row for row in rows if _touches(row, view, target)])
        target = min(target, self._local_target(view, everything=everything))
        return [one for one in view.closed if one.next_base <= target]

    async def _look_daily(self, view: PartitionView) -> None:
        """What lies in the bucket alone is not looked at by evictions: once a day, and first after the start."""
        now_ms = self._state.clock.monotonic_ms()
        looked_ms = self._looked_ms.get(view.id)
        if looked_ms is None or now_ms - looked_ms >= DAY_MS:
            await self._look(view)
            await self._suspects.look(view.id)
            self._looked_ms[view.id] = now_ms

    async def _look(self, view: PartitionView) -> None:
        rows = self._state.catalog.segments(view.id, CopyState.COPY_FINISHED)
        await self._check(view, [row for row in rows if row.released_ms is None])

    async def _check(self, view: PartitionView, rows: Sequence[CatalogSegment]) -> None:
        """One LIST: which of *rows* are whole. Raises RemoteUnavailable."""
        state = self._state
        found = await state.blocking(lambda: faults(state.bucket.store, state.bucket.keys, rows))
        still = {row.remote.segment_id for row in state.catalog.segments(view.id, CopyState.COPY_FINISHED)}
        looked = [row for row in rows if row.remote.segment_id in still]  # the others were copied again meanwhile
        for row in looked:
            if (why := found.get(row.remote.segment_id)) and await self.commit_again(view, row, why):
                del found[row.remote.segment_id]
        if state.losses.note(view.id, str(view.name), looked, found):
            state.tell(view.id)

    async def commit_again(self, view: PartitionView, row: CatalogSegment, why: str) -> bool:
        """Whether all that *row* had lost was its manifest, and that is there again."""
        state = self._state
        if not state.held or state.losses.is_damaged(row.remote.segment_id) or not lacks_only_manifest(row, why, view):
            return False
        facts = {"partition": str(view.name), "base": row.remote.base}
        try:
            await state.blocking(lambda: commit_again(state, row))
        except ClaimLost as lost:
            state.lose(str(lost))
            return False
        except TierdError as error:
            log.warning("a manifest that is gone could not be written again: %s", error, extra=facts)
            return False
        log.warning("a manifest that was gone is written again", extra=facts)
        return True

    def _mend_lost(self, part: PartitionId) -> None:
        if not self._state.losses.of(part):
            return
        rows = self._state.catalog.segments(part, CopyState.COPY_FINISHED)
        passed = [row for row in rows if row.released_ms is not None]
        if self._state.losses.mended(part, passed):  # log start has passed them: nobody needs them any more
            self._state.tell(part)
        self._mend(part)

    def suspect(self, part: PartitionId, key: str) -> None:
        """A read found the object *key* missing or damaged: the next tick looks at all that the bucket has of *part*,
        and reads all of that segment."""
        self._suspects.add(part, key)
        self._looked_ms.pop(part, None)

    def suspect_range(self, part: PartitionId, start: int, stop: int) -> int:
        """As `suspect`, of each segment with an offset in [start, stop); how many these are."""
        self._looked_ms.pop(part, None)
        return self._suspects.add_range(part, start, stop)

    async def _evict(self, view: PartitionView, *, everything: bool) -> Evicted:
        """Move local start behind what may go."""
        dropped = await self._confirmed(view, everything=everything)
        if not dropped:
            return Evicted()
        local_start = await self._state.local.evict(view.id, dropped[-1].next_base)
        gone = [one for one in dropped if one.next_base <= local_start]
        size = sum(one.size_bytes for one in gone)
        log.info(
            "local segments evicted",
            extra={"partition": str(view.name), "local_start": local_start, "segments": len(gone), "bytes": size},
        )
        return Evicted(len(gone), size)

    # --- objects -----------------------------------------------------------------------------------------------------
    async def delete_tick(self) -> None:
        """Released segments after their delay, deletes that were begun, topics that are gone."""
        state = self._state
        self._release_deleted_topics()
        now_ms = state.now_ms()
        parts = {part: self._deletable(part, now_ms) for part in state.catalog.releases()}
        begun = deletion.due(state.catalog, now_ms)
        if not (begun or any(parts.values()) or self._finished()) or not await self._may_go():
            return
        try:
            for part, rows in parts.items():
                if rows and await self._publisher.heads([part]):  # log start is in the bucket before data goes
                    await self._delete(part, rows, now_ms)
            for part in {row.remote.part for row in begun}:
                await self._delete(part, [row for row in begun if row.remote.part == part], now_ms)
            for partition in self._finished():
                await self._publisher.drop(partition)
        except TierdError as error:
            log.warning("deletes wait: %s", error)

    def _deletable(self, part: PartitionId, now_ms: int) -> list[CatalogSegment]:
        delay_ms = ahead.delay_of(self._state.catalog.partition(part))
        return self._state.catalog.released_before(part, now_ms - delay_ms)

    async def _delete(self, part: PartitionId, rows: Sequence[CatalogSegment], now_ms: int) -> None:
        state = self._state
        if state.stopping or not state.held:
            return
        for row in rows:
            state.forget(row.remote.segment_id)
        gone = await state.blocking(
            lambda: deletion.delete_segments(state.bucket, state.catalog, state.refusals, rows, now_ms=now_ms)
        )
        log.info("remote segments deleted", extra={"partition": state.name_of(part), "segments": gone})
        state.tell(part)

    def _release_deleted_topics(self) -> None:
        """Once the tombstone lies in the bucket, all that the topic has there is released."""
        catalog = self._state.catalog
        gone = {one.topic_id: one for one in catalog.topics() if one.deleted_ms is not None}
        if not gone:
            return
        for row in catalog.partitions():
            topic = gone.get(row.part.topic_id)
            if topic is not None and topic.deleted_ms is not None and not catalog.is_dirty(topic.topic_id):
                catalog.release(row.part, _EVERYTHING, topic.deleted_ms)

    def _finished(self) -> list[CatalogPartition]:
        """Partitions of deleted topics that have no segment left and whose tombstone lies in the bucket."""
        state, catalog = self._state, self._state.catalog
        gone = {one.topic_id for one in catalog.topics() if one.deleted_ms is not None}
        return [
            row
            for row in (catalog.partitions() if gone else ())
            if row.part.topic_id in gone
            and row.part not in state.views
            and not catalog.is_dirty(row.part.topic_id)
            and not catalog.segments(row.part)
        ]


_EVERYTHING = 2**62


def _touches(row: CatalogSegment, view: PartitionView, target: int) -> bool:
    return row.remote.base < target and row.remote.next_base > view.closed[0].base
