"""What the verbs `copy` and `evict` do, report on their way, and end with."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId
from tierd.remote.view import Claim, ClaimState, Waiting
from tierd.remote.watched import WatchedStore
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.copying import Copying
from tierd.tiering.retention import Retention
from tierd.tiering.state import TierState

_LOOK_S = 0.2
_TRIES = 3
"""So many failures in a row, the last one during the verb, and the verb says that the bucket does not answer."""
_ANSWER_S = 10
"""A bucket that says nothing for so long counts as one that does not answer."""
_STUCK = frozenset({"pinned", "paused", "lost", "uncleaned"})
_SOON = frozenset({"unflushed", "cleaning", "passed"})
"""Reasons that go by themselves, and soon."""


class Outcome(StrEnum):
    DONE = "done"
    PINNED = "pinned"
    """Something may not be copied now and will not be soon: an open transaction, copying switched off."""
    UNAVAILABLE = "unavailable"
    """The bucket does not answer, or this run's claim on it is still pending."""
    LOST = "lost"
    """Another run has the bucket."""
    TIMEOUT = "timeout"
    FAILED = "failed"
    """A local segment is broken or unreadable, or the clock is not to be trusted."""


@dataclass(frozen=True, slots=True)
class VerbProgress:
    segments_done: int
    segments: int
    bytes_done: int
    bytes: int


@dataclass(frozen=True, slots=True)
class VerbRow:
    """A partition that the verb left with work undone, and why."""

    part: PartitionId
    topic: str
    copied_to: int | None
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """What the verb would do with a partition: segments over offsets [start, stop)."""

    part: PartitionId
    topic: str
    start: int
    stop: int
    segments: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyUse:
    """One key, and what is encrypted under it."""

    key_id: str
    file: str | None
    """None: the ring lacks it."""
    active: bool
    """New segments are encrypted under it."""
    segments: int
    bytes: int
    """Of their `.log` objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbResult:
    outcome: Outcome
    detail: str = ""
    segments: int = 0
    """Done by this verb, or beside it while it ran."""
    bytes: int = 0
    left: tuple[VerbRow, ...] = ()
    planned: tuple[PlannedRow, ...] = ()
    """Of a dry run; `segments` and `bytes` are its sums then."""
    keys: tuple[KeyUse, ...] = ()
    """Of `keys` alone."""


Report = Callable[[VerbProgress], None]


class Verbs:
    def __init__(self, state: TierState, copying: Copying, retention: Retention) -> None:
        self._state = state
        self._copying = copying
        self._retention = retention

    # --- dry runs ----------------------------------------------------------------------------------------------------
    async def plan(self, verb: str, *, roll: bool = False) -> VerbResult:
        """What `copy` or `evict` would do now; nothing is copied, rolled or dropped.

        *roll*: as if the active segments had been closed. A bucket that does not answer changes the outcome only.
        """
        refused = unclaimed(self._state.claim) if verb == "copy" else await self._may_not_evict()
        if refused is not None:
            return refused
        rows = []
        segments: Sequence[SegmentView]
        try:
            for view in list(self._state.views.values()):
                if verb == "copy":
                    segments = (*self._copying.mends(view.id), *self._copying.plan(view.id, roll=roll).segments)
                else:
                    segments = await self._retention.evictable(view.id)
                if segments:
                    rows.append(_planned(view, segments))
        except RemoteUnavailable as error:
            return VerbResult(outcome=Outcome.UNAVAILABLE, detail=str(error))
        left = self._left()
        if verb == "evict":
            left = [row for row in left if row.waiting.reason == "lost"]
        outcome, detail = _lost_or_done(left)
        if not await self._answers():
            outcome, detail = Outcome.UNAVAILABLE, self._state.claim.detail or "the bucket does not answer"
        return VerbResult(
            outcome=outcome,
            detail=detail,
            segments=sum(row.segments for row in rows),
            bytes=sum(row.bytes for row in rows),
            left=tuple(left),
            planned=tuple(rows),
        )

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await self._state.owned()
        except TimeoutError:
            return False

    # --- copy --------------------------------------------------------------------------------------------------------
    async def copy(self, *, wait: bool, timeout_ms: int | None, report: Report) -> VerbResult:
        """Copy all that may be copied now. Without *wait* it is only queued; a timeout leaves it queued."""
        refused = unclaimed(self._state.claim)
        if refused is not None:
            return refused
        before = {part: self._copying.failures(part) for part in self._state.views}
        ends = {part: view.active_base for part, view in self._state.views.items()}  # what closes later is not for it
        begun = self._copying.totals.segments, self._copying.totals.bytes
        self._copying.hurry()
        if not wait:
            return VerbResult(outcome=Outcome.DONE)
        done = asyncio.Event()
        self._copying.totals.finished.append(done.set)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                outcome, detail = await self._until_copied(before, ends, begun, done, report)
        except TimeoutError:
            outcome, detail = self._not_done(ends, f"not done after {timeout_ms} ms")
        finally:
            self._copying.totals.finished.remove(done.set)
        totals = self._copying.totals
        return VerbResult(
            outcome=outcome,
            detail=detail,
            segments=totals.segments - begun[0],
            bytes=totals.bytes - begun[1],
            left=tuple(self._left()),
        )

    async def _until_copied(
        self,
        before: dict[PartitionId, int],
        ends: dict[PartitionId, int],
        begun: tuple[int, int],
        done: asyncio.Event,
        report: Report,
    ) -> tuple[Outcome, str]:
        while True:
            refused = unclaimed(self._state.claim)
            if refused is not None:
                return refused.outcome, refused.detail
            busy = self._busy(ends)
            self._report(busy, begun, report)
            broken = [part for part in busy if self._fails(part, before.get(part, 0))]
            if busy and len(broken) == len(busy):
                return self._verdict(broken[0])
            if not busy:
                stuck = [row for row in self._left() if row.waiting.reason in _STUCK]
                return (Outcome.PINNED, stuck[0].waiting.detail) if stuck else (Outcome.DONE, "")
            done.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await done.wait()

    def _fails(self, part: PartitionId, before: int) -> bool:
        """Again and again, this time too: the pauses after earlier failures are long, and nobody waits for another."""
        failures = self._copying.failures(part)
        return failures > before and failures >= _TRIES

    def _not_done(self, ends: dict[PartitionId, int], detail: str) -> tuple[Outcome, str]:
        """The time is over: because of the bucket, when nothing that is left to do gets an answer from it."""
        busy = self._busy(ends)
        errors = [self._copying.error(part) for part in busy]
        away = next((error for error in errors if isinstance(error, RemoteUnavailable)), None)
        if away is not None and all(isinstance(error, RemoteUnavailable) for error in errors):
            return Outcome.UNAVAILABLE, f"{detail}: {away}"
        store = self._state.bucket.store
        if busy and isinstance(store, WatchedStore) and store.calls.silent_ms >= 1000 * _ANSWER_S:
            return Outcome.UNAVAILABLE, f"{detail}: the bucket has not answered for {store.calls.silent_ms // 1000} s"
        return Outcome.TIMEOUT, detail

    def _verdict(self, part: PartitionId) -> tuple[Outcome, str]:
        error = self._copying.error(part)
        return (Outcome.UNAVAILABLE if isinstance(error, RemoteUnavailable) else Outcome.FAILED), str(error)

    def _busy(self, ends: dict[PartitionId, int]) -> list[PartitionId]:
        """Partitions that have something to be copied now, or in a moment, below their *ends*."""
        return [part for part in self._state.views if self._is_busy(part, ends.get(part, 0))]

    def _is_busy(self, part: PartitionId, end: int) -> bool:
        plan = self._copying.plan(part)
        if self._copying.mends(part) or any(segment.base < end for segment in plan.segments):
            return True
        soon = plan.waiting is not None and plan.waiting.reason in _SOON
        return soon and any(segment.base < end for segment in self._copying.uncopied(part))

    def _report(self, busy: list[PartitionId], begun: tuple[int, int], report: Report) -> None:
        todo = [segment for part in busy for segment in self._copying.plan(part).segments]
        totals = self._copying.totals
        segments, size = totals.segments - begun[0], totals.bytes - begun[1]
        report(VerbProgress(segments, segments + len(todo), size, size + sum(one.size_bytes for one in todo)))

    def _left(self) -> list[VerbRow]:
        """Partitions with a closed segment that is not in the bucket, or is not any more."""
        rows = []
        for part, view in self._state.views.items():
            waiting = self._copying.waiting(part)
            if waiting is None or waiting.reason in ("active", "untiered"):
                continue
            if waiting.reason != "lost" and not self._copying.uncopied(part):
                continue
            row = self._state.catalog.partition(part)
            rows.append(VerbRow(part, view.name.topic, row.copied_to if row else None, waiting))
        return rows

    # --- evict -------------------------------------------------------------------------------------------------------
    async def evict(self, report: Report) -> VerbResult:
        """Drop every local segment whose copy is committed and checked, whatever local retention says."""
        refused = await self._may_not_evict()
        if refused is not None:
            return refused
        segments = size = 0
        try:
            for part in list(self._state.views):
                evicted = await self._retention.evict_now(part)
                segments, size = segments + evicted.segments, size + evicted.bytes
                report(VerbProgress(segments, segments, size, size))
        except RemoteUnavailable as error:
            return VerbResult(outcome=Outcome.UNAVAILABLE, detail=str(error), segments=segments, bytes=size)
        left = tuple(self._left())
        outcome, detail = _lost_or_done(left)
        return VerbResult(outcome=outcome, detail=detail, segments=segments, bytes=size, left=left)

    async def _may_not_evict(self) -> VerbResult | None:
        refused = unclaimed(self._state.claim)
        if refused is not None:
            return refused
        trouble = self._retention.trouble()
        if trouble is not None:
            return VerbResult(outcome=Outcome.FAILED, detail=trouble)
        if not await self._state.owned():
            silent = VerbResult(outcome=Outcome.UNAVAILABLE, detail="the bucket does not answer")
            return unclaimed(self._state.claim) or silent
        return None


def unclaimed(claim: Claim) -> VerbResult | None:
    """Why a verb must not write to the bucket; None while the claim is held."""
    if claim.state is ClaimState.HELD:
        return None
    outcome = Outcome.LOST if claim.state is ClaimState.LOST else Outcome.UNAVAILABLE
    return VerbResult(outcome=outcome, detail=claim.detail)


def _lost_or_done(left: Sequence[VerbRow]) -> tuple[Outcome, str]:
    """What the bucket has lost keeps the disk from being emptied: it must not end as if all were well."""
    lost = next((row.waiting.detail for row in left if row.waiting.reason == "lost"), None)
    return (Outcome.DONE, "") if lost is None else (Outcome.PINNED, lost)


def _planned(view: PartitionView, segments: Sequence[SegmentView]) -> PlannedRow:
    size_bytes = sum(one.size_bytes for one in segments)
    return PlannedRow(view.id, view.name.topic, segments[0].base, segments[-1].next_base, len(segments), size_bytes)
