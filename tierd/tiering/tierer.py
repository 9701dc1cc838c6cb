"""The tierer without its process: everything that happens at the bucket for one daemon. Loop thread only.

`process` puts it behind the socket pair; tests drive it directly.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from apscheduler.events import EVENT_JOB_ERROR, JobExecutionEvent
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, StartRefused
from tierd.base.ids import PartitionId, Uuid
from tierd.config.state_files import PAUSED, SET_ASIDE
from tierd.remote.errors import RequestRefused
from tierd.remote.open import Bucket
from tierd.remote.view import ClaimState, RemoteStatus, Waiting
from tierd.storage.disk import PosixDisk
from tierd.storage.setaside import SetAside
from tierd.storage.view import PartitionView, Seed
from tierd.tiering.bucket_look import look_at_bucket
from tierd.tiering.catalog import Catalog
from tierd.tiering.checking import Check
from tierd.tiering.claiming import Claiming, Taken
from tierd.tiering.clockguard import ClockGuard
from tierd.tiering.copying import Copying
from tierd.tiering.gaps import Gaps
from tierd.tiering.group_files import GroupFiles, newest_groups
from tierd.tiering.keys import check_keys
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.losses import Losses
from tierd.tiering.opening import ARCHIVE, Pulse, Survey, Surveyed
from tierd.tiering.options import OpenReport, OpenRequest, TiererOptions, TopicState
from tierd.tiering.pausing import Pause, Paused, keep_pause
from tierd.tiering.ports import LocalTier
from tierd.tiering.publish import Publisher
from tierd.tiering.retention import Retention
from tierd.tiering.room import Room
from tierd.tiering.rotation import Rotation
from tierd.tiering.seeds import seed_of
from tierd.tiering.state import TierState
from tierd.tiering.sweep import Sweep
from tierd.tiering.topics_there import topics_there
from tierd.tiering.verbs import Verbs

log = logging.getLogger(__name__)

_THREADS = 8
_A_TURN = 50
"""Partitions of a status that are looked at before others get their turn."""


class Tierer:
    """Call `open` once, then feed it changes; `schedule` begins what happens by the clock."""

    def __init__(
        self,
        options: TiererOptions,
        clock: Clock,
        bucket: Bucket,
        catalog: Catalog,
        local: LocalTier,
        *,
        disk: Disk | None = None,
        forget: Callable[[Uuid], None] = lambda _: None,
        fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "bucket")
        self.state = TierState(
            options=options,
            clock=clock,
            bucket=bucket,
            catalog=catalog,
            local=local,
            threads=self._threads,
            guard=ClockGuard(clock, options.clock_limit_ms),
            losses=Losses(catalog),
            forget=forget,
        )
        self._fatal = fatal
        self._disk = disk or PosixDisk()
        set_aside = SetAside(options.state_dir / SET_ASIDE, self._disk)
        self.publisher = Publisher(self.state, set_aside, local.tombstone_written)
        self.copying = Copying(self.state, self._copied, self._passed)
        self.room = Room(options.disk_evict_bytes, clock, self._disk.free_bytes)
        self.retention = Retention(self.state, self.publisher, self.copying.wake, self.room.scarce)
        self.verbs = Verbs(self.state, self.copying, self.retention)
        self.rotation = Rotation(self.state)
        self.gaps = Gaps(self.state, self.copying, self.publisher)
        self._group_files = GroupFiles(bucket, self.state.now_ms)
        self.sweep = Sweep(self.state, self.retention.trouble)
        self.check = Check(self.state, self._disk, self.look_into)
        self._claiming: Claiming | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pausing = asyncio.Lock()
        self._scheduler: AsyncIOScheduler | None = None

    # --- start -------------------------------------------------------------------------------------------------------
    async def open(self, request: OpenRequest) -> OpenReport:
        """Steps 5 of the start. Raises StartRefused; a silent bucket gives a pending claim."""
        state, options = self.state, self.state.options
        check_keys(state.catalog, state.bucket.ring)
        for topic in request.topics:
            if not state.catalog.set_topic(topic) and topic.deleted_ms is not None:
                state.local.tombstone_written(topic.topic_id)  # the run that wrote it ended before it could say so
        for view in request.views:
            state.views[view.id] = view
        survey = Survey(state.bucket, state.catalog, state.clock, Pulse(state.clock), options.settle_ms)
        self._claiming = Claiming(
            survey,
            request,
            silence_ms=options.silence_ms,
            retry_ms=options.retry_ms,
            blocking=state.blocking,
            on_settled=self._settled,
        )
        try:
            taken = await self._claiming.begin()
        except (CorruptFile, RequestRefused) as error:
            raise StartRefused(f"{state.bucket.url}: what makes it an archive cannot be read: {error}") from error
        if taken.surveyed is not None:
            check_keys(state.catalog, state.bucket.ring)  # of what was taken in, too
        state.claim = taken.claim  # the report tells it
        self._settled(taken)
        if taken.surveyed is not None:  # before anybody hears that offsets are lost
            await self._commit_again(taken.surveyed)
        rows = state.catalog.partitions()
        known = topics_there(state.catalog) if request.lost_host else state.catalog.topics()
        topics = tuple(known) if taken.surveyed is not None else ()
        pending = taken.claim.state is not ClaimState.HELD
        archive_id = state.catalog.get(ARCHIVE)
        return OpenReport(
            claim=taken.claim,
            remotes={row.part: state.remote(row.part) for row in rows},
            topics=topics,
            waiting=taken.run.waiting if pending else (),
            outside=taken.surveyed.outside if taken.surveyed is not None else (),
            archive_id=None if archive_id is None else Uuid.parse(archive_id),
            claimed_ms=taken.surveyed.claimed_ms if taken.surveyed is not None else None,
        )

    def _settled(self, taken: Taken) -> None:
        """The claim is decided, now or after a silence of the bucket."""
        state = self.state
        state.run = taken.run
        for part in taken.run.waiting if taken.claim.state is ClaimState.HELD else ():
            state.tell(part)  # before the claim: with it the broker begins them, behind what the bucket has
        state.set_claim(taken.claim)
        if taken.claim.state is not ClaimState.HELD:
            return
        if taken.surveyed is not None and taken.surveyed.losers:
            due_ms = state.now_ms() + state.options.age_guard_ms
            state.catalog.deleting(*taken.surveyed.losers, due_ms=due_ms)
        self._bury()
        if taken.surveyed is not None:
            state.rotten.update(taken.surveyed.rotten)
            self._note_losses(taken.surveyed)
        for topic in taken.surveyed.newer if taken.surveyed is not None else ():
            state.catalog.adopt_topic(topic)
            self._drop_views(topic.topic_id)  # with the older settings; the broker tells them again with these
            state.local.topic_is_newer(topic.topic_id, topic.config)
        for view in state.views.values():
            if view.settings.remote_storage_enable:
                self._know(view)
        if state.bucket.url.startswith("s3:"):  # what a directory can do is known
            self._spawn(look_at_bucket(self.state))
        self.copying.wake_all()

    async def _commit_again(self, surveyed: Surveyed) -> None:
        for one in surveyed.faulty:
            view = self.state.views.get(one.row.remote.part)
            if view is not None and await self.retention.commit_again(view, one.row, one.why):
                self.state.losses.mended(view.id, [one.row])

    def _note_losses(self, surveyed: Surveyed) -> None:
        """A look at the whole bucket has shown segments that are not whole. Of those that do not count nobody cares."""
        losses = self.state.losses
        for loser in surveyed.losers:
            losses.mended(loser.remote.part, [loser])
        for one in surveyed.faulty:
            part, segment_id = one.row.remote.part, one.row.remote.segment_id
            if part in self.state.views:
                losses.note(part, self.state.name_of(part), [one.row], {segment_id: one.why})

    def _bury(self) -> None:
        """Topics that the broker has though the bucket says they are deleted: its registry is an older one."""
        buried = {topic.topic_id for topic in self.state.catalog.topics() if topic.deleted_ms is not None}
        for topic_id in buried & {part.topic_id for part in self.state.views}:
            self._drop_views(topic_id)
            self.state.local.tombstone_written(topic_id)

    def _drop_views(self, topic_id: Uuid) -> None:
        for part in [part for part in self.state.views if part.topic_id == topic_id]:
            del self.state.views[part]
            self.copying.forget(part)

    def schedule(self) -> None:
        """Begin what happens by the clock; an error that nobody expects there is fatal."""
        options = self.state.options
        self._scheduler = scheduler = AsyncIOScheduler(timezone="UTC")
        jobs: list[tuple[Callable[[], Coroutine[Any, Any, None]], int]] = [
            (self._look_at_owner, options.owner_interval_ms),
            (self.publisher.tick, options.remote.head_interval_ms),
            (self.retention.tick, options.retention_interval_ms),
            (self.retention.delete_tick, options.delete_interval_ms),
            (self.retention.room_tick, options.room_look_ms),
            (self.sweep.tick, options.sweep_look_ms),
            (self.check.tick, options.verify_look_ms),
        ]
        for job, every_ms in jobs:
            scheduler.add_job(
                self._until_stopped(job),
                "interval",
                seconds=every_ms / 1000,
                name=job.__qualname__,
                coalesce=True,
                max_instances=1,
                misfire_grace_time=None,
            )
        scheduler.add_listener(self._job_failed, EVENT_JOB_ERROR)
        scheduler.start()

    def _until_stopped(self, job: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """The scheduler cancels what runs when it is shut down, and would log that as a failure."""

        async def run() -> None:
            try:
                await job()
            except asyncio.CancelledError:
                if not self.state.stopping:
                    raise

        return run

    async def _look_at_owner(self) -> None:
        """An owner that has nothing to copy learns of a take-over, too: until then it takes records."""
        await self.state.owned(self.state.options.owner_interval_ms // 2)

    def _job_failed(self, event: JobExecutionEvent) -> None:
        if self.state.stopping:
            return  # the scheduler cancels what runs
        if isinstance(event.exception, DiskFull):
            log.warning("a scheduled job waits for room: %s", event.exception)  # it comes again
            return
        log.error("a scheduled job failed: %s", event.traceback)
        if self._fatal is not None:
            self._fatal(event.exception)

    # --- changes -----------------------------------------------------------------------------------------------------
    def partition_changed(self, view: PartitionView) -> None:
        self.state.views[view.id] = view
        if view.settings.remote_storage_enable:
            self._know(view)
        self.copying.wake(view.id)
        if self.retention.has_lost(view):
            self._spawn(self.retention.give_up(view.id))

    def _know(self, view: PartitionView) -> None:
        row = self.state.catalog.partition(view.id)
        run = self.state.run
        if row is None and not self.state.held and run is not None and view.id in run.waiting:
            return  # a row would say that the catalog knows how far the bucket is
        delay_ms = view.settings.tierd_delete_delay_ms
        if row is None or (row.topic, row.delete_delay_ms) != (view.name.topic, delay_ms):
            self.state.catalog.know(view.id, view.name.topic, delay_ms)
        if view.log_start > (row.log_start or 0 if row else 0):
            self.retention.log_start_is(view.id, view.log_start)

    def topic_changed(self, topic: TopicState) -> None:
        """Also tells again, after a restart, what the bucket has already."""
        dirty = self.state.catalog.set_topic(topic)
        if topic.deleted_ms is None:
            return
        self._drop_views(topic.topic_id)
        if not dirty:
            self.state.local.tombstone_written(topic.topic_id)

    def _copied(self, part: PartitionId) -> None:
        self._spawn(self.retention.after_copy(part))

    def _passed(self, part: PartitionId) -> None:
        self._spawn(self.retention.look_now(part))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        if isinstance(error := task.exception(), DiskFull):
            log.warning("what follows a change waits for room: %s", error)  # the jobs do it, too
        else:
            task.result()

    def look_into(self, part: PartitionId, start: int, stop: int) -> int:
        """Somebody found offsets [start, stop) damaged in the bucket: these segments are read now, and copied again
        when they are. How many they are."""
        found = self.retention.suspect_range(part, start, stop)
        if found:
            self._spawn(self.retention.look_now(part))
        return found

    async def publish_head(self, part: PartitionId) -> None:
        """Write the head now. Raises RemoteUnavailable when that cannot be (yet)."""
        if not await self.state.owned() or not await self.publisher.heads([part]):
            raise RemoteUnavailable(
                f"the head of {self.state.name_of(part)} could not be written: {self.state.claim.detail or 'try again'}"
            )

    async def keep_groups(self, raw: bytes) -> None:
        """Write a group file. Raises RemoteUnavailable when that cannot be (yet)."""
        if not await self.state.owned():
            raise RemoteUnavailable(f"a group file could not be written: {self.state.claim.detail or 'try again'}")
        epoch = self.state.claim.epoch
        await self.state.blocking(lambda: self._group_files.keep(raw, epoch))

    async def pause(self, pause: Pause | None, *, dry: bool) -> Paused:
        """Hold all copies, those under way too, or go on without *pause*; with *dry* only say what is. Raises DiskFull,
        OSError."""
        state = self.state
        tiered = [part for part, view in state.views.items() if view.settings.remote_storage_enable]
        waiting = [one for part in tiered for one in self.copying.uncopied(part)]
        size_bytes, under_way = sum(one.size_bytes for one in waiting), self.copying.under_way
        async with self._pausing:  # what is decided, written and remembered is the same, whoever else asks meanwhile
            before = state.paused
            after = before if before is not None and pause is not None else pause
            if not dry and after != before:
                path = state.options.state_dir / PAUSED
                await state.blocking(lambda: keep_pause(path, after, self._disk))
                state.paused = after
                self.copying.wake_all()
        return Paused(before=before, after=after, segments=len(waiting), bytes=size_bytes, under_way=under_way)

    # --- questions ---------------------------------------------------------------------------------------------------
    async def status(self) -> list[RemoteStatus]:
        trouble = self.retention.trouble()
        rows = []
        for row in self.state.catalog.partitions():
            view = self.state.views.get(row.part)
            waiting = self.copying.waiting(row.part) if view else None
            if waiting is None and trouble is not None:
                waiting = Waiting("clock" if self.state.held else "claim", f"evictions and deletes wait: {trouble}")
            remote = self.state.remote(row.part)
            rows.append(RemoteStatus(remote=remote, oldest_uncopied_ms=self._oldest(view), waiting=waiting))
            if len(rows) % _A_TURN == 0:
                await asyncio.sleep(0)
        return rows

    def _oldest(self, view: PartitionView | None) -> int | None:
        """Age in ms of the oldest data that is not in the bucket; None when all of it is."""
        if view is None or not view.settings.remote_storage_enable:
            return None
        closed = self.copying.uncopied(view.id)
        since_ms = closed[0].append_ms if closed else view.active_append_ms
        return None if since_ms is None else max(0, self.state.clock.now_ms() - since_ms)

    async def seed(self, part: PartitionId) -> Seed:
        """Snapshot and epochs at the copied end. Raises RemoteUnavailable."""
        rows = self.state.catalog.segments(part, CopyState.COPY_FINISHED)
        return await self.state.blocking(lambda: seed_of(self.state.bucket, [row.remote for row in rows]))

    async def kept_groups(self) -> bytes | None:
        """The newest group file. Raises RemoteUnavailable."""
        return await self.state.blocking(lambda: newest_groups(self.state.bucket))

    # --- stop --------------------------------------------------------------------------------------------------------
    async def close(self) -> None:
        """Give up uploads (their rows name what lies in the bucket) and let the store and the catalog go; once."""
        if self.state.stopping:
            return
        await self.publisher.last_words()
        self.state.stopping = True
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
        if self._claiming is not None:
            await self._claiming.close()
        self.state.bucket.store.close()
        await self.copying.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.state.catalog.close()
