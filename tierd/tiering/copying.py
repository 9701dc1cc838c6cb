"""Runs copies: a few partitions at a time, one segment each, in turn; failed ones again after a pause with jitter."""

import asyncio
import logging
import random
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tierd.base.errors import CorruptFile, RemoteUnavailable, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.errors import ClaimLost
from tierd.remote.view import Waiting
from tierd.remote.watched import WatchedStore
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.buffers import PartBuffers
from tierd.tiering.copier import Abandoned, Copier, CopierParts, Ownership
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.passed import passed_to
from tierd.tiering.plan import CopyFacts, CopyPlan, plan_copy, plan_mends, rolled, uncopied, why_waiting
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.settling import settle
from tierd.tiering.state import COMMIT_WITHIN_MS, TierState

log = logging.getLogger(__name__)

_UNCLEANED_LOOK_S = 10.0
_PASSED_MS = 1000
"""No more often retention is asked to let one partition's next segment go."""


@dataclass(slots=True)
class Attempt:
    """What is going on with one partition."""

    segment: SegmentView | None = None
    """Being copied now."""
    begun_ms: int = 0
    """Monotonic time at which that began."""
    task: asyncio.Task[None] | None = None
    """Of the copy that ran last."""
    failures: int = 0
    error: TierdError | OSError | None = None
    failed: int | None = None
    """Base of the segment whose last try failed."""
    timer: asyncio.TimerHandle | None = None
    """Set while a failed copy pauses."""
    passed_ms: int = -_PASSED_MS
    """Monotonic time at which retention was last asked to let the next segment go."""


@dataclass(slots=True)
class Totals:
    """Counted since the start; the verbs show differences."""

    segments: int = 0
    bytes: int = 0
    finished: list[Callable[[], None]] = field(default_factory=list)
    """Called after every copy, good or bad."""


class Copying:
    """*on_copied* is told each committed segment, *on_passed* partitions whose next segment total retention lets go.

    Loop thread only; the copies themselves run in threads.
    """

    def __init__(
        self,
        state: TierState,
        on_copied: Callable[[PartitionId], None],
        on_passed: Callable[[PartitionId], None] = lambda _: None,
    ) -> None:
        self._state = state
        self._on_copied = on_copied
        self._on_passed = on_passed
        threads = state.options.remote.copy_threads
        self._copies = ThreadPoolExecutor(threads, "copy")
        self._uploads = ThreadPoolExecutor(2 * threads, "upload")
        self._buffers = PartBuffers(state.options.remote.part_bytes)
        self._queue: OrderedDict[PartitionId, None] = OrderedDict()
        self._attempts: dict[PartitionId, Attempt] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._uncleaned: set[PartitionId] = set()
        self._uncleaned_timer: asyncio.TimerHandle | None = None
        self.totals = Totals()
        self._counting = threading.Lock()

    # --- what to do --------------------------------------------------------------------------------------------------
    def wake(self, part: PartitionId) -> None:
        """Something about *part* changed: look whether there is a segment to copy."""
        self._forgive(part)
        self._queue[part] = None
        self._pump()

    def _forgive(self, part: PartitionId) -> None:
        """The segment that could not be copied has left the log (retention took it): no reason to pause any more."""
        attempt, view = self._attempts.get(part), self._state.views.get(part)
        if attempt is None or view is None or attempt.timer is None:
            return
        if all(segment.base != attempt.failed for segment in view.closed):
            attempt.timer.cancel()
            attempt.failures, attempt.error, attempt.failed, attempt.timer = 0, None, None, None

    def wake_all(self) -> None:
        self._queue.update(dict.fromkeys(self._state.views))
        self._pump()

    def hurry(self) -> None:
        """Forget the pauses after failures; `tierd copy` asks for now."""
        for part, attempt in self._attempts.items():
            if attempt.timer is not None:
                attempt.timer.cancel()
                attempt.timer = None
                self._queue[part] = None
        self.wake_all()

    def forget(self, part: PartitionId) -> None:
        attempt = self._attempts.get(part)
        if attempt is not None and attempt.segment is None:
            if attempt.timer is not None:
                attempt.timer.cancel()
            del self._attempts[part]

    def plan(self, part: PartitionId, *, roll: bool = False) -> CopyPlan:
        """What is to be copied; with *roll* as if the active segment had been closed."""
        view, facts = self._state.views[part], self._facts(part)
        return plan_copy(rolled(view, facts.now_ms) if roll else view, facts)

    def mends(self, part: PartitionId) -> tuple[SegmentView, ...]:
        """Segments to copy again, because the bucket has lost them."""
        lost = self._lost(part)
        return plan_mends(self._state.views[part], self._facts(part), lost)[0] if lost else ()

    def _lost(self, part: PartitionId) -> dict[tuple[int, int], int]:
        return {(loss.base, loss.next_base): loss.size_bytes for loss in self._state.losses.of(part)}

    def waiting(self, part: PartitionId) -> Waiting | None:
        view, facts = self._state.views[part], self._facts(part)
        lost = self._state.losses.of(part)
        if not lost:
            return why_waiting(view, facts)
        _, gone = plan_mends(view, facts, self._lost(part))
        first = next((loss for loss in lost if (loss.base, loss.next_base) in gone), lost[0])
        if gone:
            then = "and there is no such whole local segment any more: these offsets cannot be read from it"
        else:
            then = "it is copied again from the local one" + (f"; {facts.retrying}" if facts.retrying else "")
        return Waiting("lost", f"offsets {first.base} to {first.next_base - 1}: {first.why}; {then}")

    def _next(self, part: PartitionId, attempt: Attempt) -> SegmentView | None:
        """What to copy now: what was lost before what is new, unless that has just failed."""
        plan, mends = self.plan(part), self.mends(part)
        failed = attempt.failed if attempt.error is not None else None
        queue = [*(one for one in mends if one.base != failed), *plan.segments, *mends]
        if not queue:
            self._look_again(part, plan.waiting)
            self._let_go(part, attempt, plan.waiting)
        return queue[0] if queue else None

    def uncopied(self, part: PartitionId) -> tuple[SegmentView, ...]:
        """Closed segments that are not in the bucket."""
        row = self._state.catalog.partition(part)
        return uncopied(self._state.views[part], row.copied_to if row else None)

    @property
    def under_way(self) -> int:
        """Copies that run now."""
        return len(self._running)

    def error(self, part: PartitionId) -> TierdError | OSError | None:
        """Of the last try, until one succeeds."""
        attempt = self._attempts.get(part)
        return attempt.error if attempt else None

    def failures(self, part: PartitionId) -> int:
        attempt = self._attempts.get(part)
        return attempt.failures if attempt else 0

    def _facts(self, part: PartitionId) -> CopyFacts:
        row = self._state.catalog.partition(part)
        attempt = self._attempts.get(part, Attempt())
        store = self._state.bucket.store
        return CopyFacts(
            claim=self._state.claim.state,
            copied_to=row.copied_to if row else None,
            loaded=row is not None,
            copying=attempt.segment.base if attempt.segment else None,
            copying_ms=self._state.clock.monotonic_ms() - attempt.begun_ms,
            silent_ms=store.calls.silent_ms if isinstance(store, WatchedStore) else 0,
            retrying=None if attempt.error is None else _failures(attempt),
            passed_to=passed_to(self._state, self._state.views[part], row.copied_to if row else None),
            paused=None if self._state.paused is None else str(self._state.paused),
            now_ms=self._state.clock.now_ms(),
        )

    def _pump(self) -> None:
        """Start copies while a thread is free; each partition has one at a time, then goes to the end of the queue."""
        while self._queue and len(self._running) < self._state.options.remote.copy_threads:
            if not self._state.held or self._state.stopping or self._state.paused is not None:
                return
            part, _ = self._queue.popitem(last=False)
            attempt = self._attempts.setdefault(part, Attempt())
            if part not in self._state.views or attempt.segment is not None or attempt.timer is not None:
                continue
            segment = self._next(part, attempt)
            if segment is None:
                continue
            attempt.segment, attempt.begun_ms = segment, self._state.clock.monotonic_ms()
            task = asyncio.ensure_future(self._copy(self._state.views[part], segment, attempt))
            attempt.task = task
            self._running.add(task)
            task.add_done_callback(self._done)

    def _let_go(self, part: PartitionId, attempt: Attempt, waiting: Waiting | None) -> None:
        """Retention's own look may be far off, and what can be copied lies behind."""
        now_ms = self._state.clock.monotonic_ms()
        if waiting is None or waiting.reason != "passed" or now_ms < attempt.passed_ms + _PASSED_MS:
            return
        attempt.passed_ms = now_ms
        self._on_passed(part)

    def _look_again(self, part: PartitionId, waiting: Waiting | None) -> None:
        """What waits for its cleaning does not wait for ever: time alone may make it ready."""
        if waiting is None or waiting.reason != "uncleaned":
            return
        self._uncleaned.add(part)
        if self._uncleaned_timer is None:
            self._uncleaned_timer = asyncio.get_running_loop().call_later(_UNCLEANED_LOOK_S, self._look_at_uncleaned)

    def _look_at_uncleaned(self) -> None:
        self._uncleaned_timer = None
        parts, self._uncleaned = self._uncleaned, set()
        self._queue.update(dict.fromkeys(parts))
        self._pump()

    async def hold(self, part: PartitionId) -> None:
        """Return once no copy of *part* runs and it is known of every earlier one what became of it.

        Its view says `cleaning`, so none begins meanwhile. Raises RemoteUnavailable.
        """
        attempt = self._attempts.get(part)
        if attempt is not None and attempt.segment is not None and attempt.task is not None:
            await asyncio.wait({attempt.task})
        if not self._state.held or self._state.catalog.partition(part) is None:
            raise RemoteUnavailable("what the bucket has of this partition is not known yet")
        await self._state.blocking(lambda: self._settle(part))
        self._state.tell(part)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.result()  # what is not handled in _copy is a bug: the loop's handler ends the process
        self._pump()
        if not self._running:
            self._buffers.trim()

    # --- one copy ----------------------------------------------------------------------------------------------------
    async def _copy(self, view: PartitionView, segment: SegmentView, attempt: Attempt) -> None:
        state, part = self._state, view.id
        loop = asyncio.get_running_loop()
        begun_ms = state.clock.monotonic_ms()
        try:
            lost = {loss.segment_id for loss in state.losses.of(part)}
            retired = await loop.run_in_executor(self._copies, lambda: self._try(view, segment, lost))
        except Abandoned:
            attempt.segment = None
            self._queue[part] = None  # for when a pause is over, which it may be already
        except ClaimLost as lost:  # nothing was committed; a row names the objects, which are the winner's to judge
            attempt.segment = None
            state.lose(str(lost))
        except (TierdError, OSError) as error:
            attempt.segment = None
            now = state.views.get(part)
            if isinstance(error, FileNotFoundError) and now is not None and now.directory != view.directory:
                self._queue[part] = None  # it has moved to another data directory: from there, at once
            else:
                self._failed(part, attempt, segment, error)
            self._forgive(part)
        else:
            attempt.segment, attempt.failures, attempt.error = None, 0, None
            self.totals.segments += 1
            took_ms = state.clock.monotonic_ms() - begun_ms
            facts = {"partition": str(view.name), "base": segment.base, "bytes": segment.size_bytes, "took_ms": took_ms}
            log.info("segment copied again" if retired else "segment copied", extra=facts)
            self._mended(part, retired)
            state.tell(part)
            self._on_copied(part)
            self._queue[part] = None
        for told in list(self.totals.finished):
            told()

    def _mended(self, part: PartitionId, retired: list[CatalogSegment]) -> None:
        for row in retired:
            self._state.forget(row.remote.segment_id)
        if retired:
            self._state.losses.mended(part, retired)

    def _try(self, view: PartitionView, segment: SegmentView, lost: set[Uuid]) -> list[CatalogSegment]:
        """In a thread. An earlier try whose outcome is unknown is settled first, so that no range is copied twice.

        Gives the lost copies that this one takes the place of: what is left of them goes.
        """
        settled = self._settle(view.id)
        same = [row for row in self._state.catalog.segments(view.id, CopyState.COPY_FINISHED) if _is_of(row, segment)]
        whole = [row for row in same if row.remote.segment_id not in lost]
        if segment.base not in settled and not whole:
            self._run(view, segment)
        retired = [row for row in same if row.remote.segment_id in lost]
        self._state.catalog.deleting(*retired)
        return retired

    def _run(self, view: PartitionView, segment: SegmentView) -> None:
        state = self._state
        run = state.run
        owner = Ownership(epoch=state.claim.epoch, incarnation=run.incarnation if run else None)
        Copier(
            self._parts(),
            owner,
            view,
            segment,
            stopping=lambda: state.stopping or not state.held or state.paused is not None,
            require_owned=lambda: state.require_owned(COMMIT_WITHIN_MS),
            on_bytes=self._sent,
        ).run()

    def _settle(self, part: PartitionId) -> set[int]:
        """In a thread: find out about tries with an unknown outcome; the bases of those that did succeed."""
        state, settle_ms = self._state, self._state.options.settle_ms
        return {
            row.remote.base
            for row in state.catalog.segments(part, CopyState.COPY_STARTED)
            if settle(state.bucket, state.catalog, state.clock, row, settle_ms) is CopyState.COPY_FINISHED
        }

    def _sent(self, length: int) -> None:
        """Called by upload threads."""
        with self._counting:
            self.totals.bytes += length

    def _parts(self) -> CopierParts:
        state = self._state
        return CopierParts(
            store=state.bucket.store,
            keys=state.bucket.keys,
            catalog=state.catalog,
            clock=state.clock,
            uploads=self._uploads,
            buffers=self._buffers,
            node_id=state.options.node_id,
            settle_ms=state.options.settle_ms,
            abandon_ms=state.options.age_guard_ms // 2,
            compress=state.options.remote.compression == "zstd",
            chunk_bytes=state.options.remote.chunk_bytes,
            ring=state.bucket.ring,
        )

    def _failed(self, part: PartitionId, attempt: Attempt, segment: SegmentView, error: TierdError | OSError) -> None:
        """Again after a pause: doubled each time; the longest at once when another try is unlikely to help."""
        attempt.failures += 1
        attempt.error, attempt.failed = error, segment.base
        limit_ms = self._state.options.remote.retry_max_ms
        pause_ms = min(limit_ms, self._state.options.retry_ms * 2 ** min(attempt.failures - 1, 20))
        if isinstance(error, CorruptFile) or not isinstance(error, RemoteUnavailable):
            pause_ms = limit_ms
        pause_s = pause_ms / 1000 * random.uniform(0.5, 1)  # noqa: S311 (jitter)
        facts = {"base": segment.base, "failures": attempt.failures, "pause_s": pause_s}
        log.warning("copy failed: %s", error, extra={"partition": self._state.name_of(part), **facts})
        attempt.timer = asyncio.get_running_loop().call_later(pause_s, self._again, part, attempt)

    def _again(self, part: PartitionId, attempt: Attempt) -> None:
        attempt.timer = None
        self.wake(part)

    async def close(self) -> None:
        """*state.stopping* is set and the store is closed: copies give up soon; wait for them."""
        if self._uncleaned_timer is not None:
            self._uncleaned_timer.cancel()
        for attempt in self._attempts.values():
            if attempt.timer is not None:
                attempt.timer.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._copies.shutdown(wait=False, cancel_futures=True)
        self._uploads.shutdown(wait=False, cancel_futures=True)


def _failures(attempt: Attempt) -> str:
    """In words: how many, why the last one, and when it is tried again."""
    failed = f"try {attempt.failures} failed: {attempt.error}"
    if attempt.timer is None:
        return failed
    left_s = max(0.0, attempt.timer.when() - asyncio.get_running_loop().time())
    return f"{failed}; the next one begins in {left_s:.0f} s"


def _is_of(row: CatalogSegment, segment: SegmentView) -> bool:
    return (row.remote.base, row.remote.next_base) == (segment.base, segment.next_base)
