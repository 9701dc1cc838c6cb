"""Takes out of the bucket what nobody needs (`orphans` decides): once a day, and when `tierd sweep` asks for it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeVar

from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.errors import ClaimLost
from tierd.remote.heads import read_head
from tierd.remote.keys import HeadKey, ObjectKind, PageKey, SegmentObject
from tierd.remote.limits import Urgency, urgent
from tierd.remote.store import DeleteOutcome
from tierd.remote.versions import VersionedStore
from tierd.remote.view import ClaimState
from tierd.storage.view import PartitionView
from tierd.tiering import version_sweep
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.old_versions import OldVersions
from tierd.tiering.old_versions import purge as purge_versions
from tierd.tiering.orphans import GOES, Guard, Holdings, Kind, Leftover, leftovers, old_uploads
from tierd.tiering.refusals import REFUSED_AGAIN_MS, RefusedDelete
from tierd.tiering.state import TierState
from tierd.tiering.verbs import Outcome

log = logging.getLogger(__name__)

_SWEPT_MS = "swept_ms"
Item = TypeVar("Item")

_BATCH = 300
"""Leftovers in one go: their keys stay below 1,000 a request."""
NAMED = 1000
"""So many leftovers are named one by one in a result; all are counted."""


@dataclass(frozen=True, slots=True)
class SweptRow:
    """One leftover, and what became of it."""

    kind: str
    keys: tuple[str, ...]
    bytes: int
    why: str
    gone: bool
    refused: str | None = None
    """Why the bucket does not delete it."""
    until_ms: int | None = None
    """Until when it is locked, where the bucket says so."""


@dataclass(slots=True)
class Old:
    """What a versioned bucket keeps."""

    versions: int | None = None
    """None: it keeps none, or does not say."""
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    outcome: Outcome
    detail: str = ""
    rows: tuple[SweptRow, ...] = ()
    """At most NAMED of them."""
    found: int = 0
    """Leftovers of all kinds."""
    gone: int = 0
    """Of these deleted; in a dry run: that would be."""
    bytes: int = 0
    """Of what is gone."""
    unexplained: int = 0
    versions: int | None = None
    """Old versions and markers of deletes that the bucket keeps; None: it keeps none, or does not say."""
    version_bytes: int = 0
    refused: tuple[RefusedDelete, ...] = ()
    """Deletes that the bucket refuses, of retention too."""


class Sweep:
    """Loop thread only; LISTs and deletes run in threads."""

    def __init__(self, state: TierState, trouble: Callable[[], str | None]) -> None:
        """*trouble* says why nothing may be deleted now, or None."""
        self._state = state
        self._trouble = trouble
        self._one = asyncio.Lock()

    async def tick(self) -> None:
        """The sweep by the clock, when it is due: however often the daemon is started."""
        state, every_ms = self._state, self._state.options.remote.sweep_interval_ms
        last, now_ms = state.catalog.get(_SWEPT_MS), state.now_ms()
        if not every_ms or (last is not None and 0 <= now_ms - int(last) < every_ms):
            return
        result = await self.run(dry=False, purge=state.options.remote.sweep_versions)
        if result.outcome is not Outcome.DONE:
            log.info("the sweep waits: %s", result.detail)

    async def run(self, *, dry: bool, purge: bool = False, retry: bool = False) -> SweepResult:
        """`tierd sweep`. With *dry* nothing is deleted: `gone` is what would be.

        *purge*: old versions, too. *retry*: deletes that the bucket has refused are due at once.
        """
        refused = await self._may_not()
        if refused is not None:
            return refused
        async with self._one:
            if retry and not dry:
                await self._state.blocking(self._state.refusals.retry)
            return await self._run(dry=dry, purge=purge)

    async def _run(self, *, dry: bool, purge: bool) -> SweepResult:
        state, views = self._state, dict(self._state.views)
        rows: list[SweptRow] = []
        old = Old()
        try:
            for batch in _batches(await state.blocking(lambda: self._look(views))):
                if dry:
                    rows += [_done(one, None) for one in batch]
                elif await state.owned():
                    rows += await state.blocking(partial(self._delete, batch))
                else:
                    return replace(_result(rows), outcome=Outcome.LOST, detail=state.claim.detail)
            await self._versions(views, rows, old, dry=dry, purge=purge)
        except ClaimLost:
            return replace(_result(rows), outcome=Outcome.LOST, detail=state.claim.detail)
        except RemoteUnavailable as error:
            return replace(_result(rows), outcome=Outcome.UNAVAILABLE, detail=str(error))
        return self._end(_result(rows), rows, old, dry=dry)

    async def _versions(
        self, views: Mapping[PartitionId, PartitionView], rows: list[SweptRow], old: "Old", *, dry: bool, purge: bool
    ) -> None:
        """Count them in *old*; with *purge* also delete them, a row for each key. Raises ClaimLost."""
        state = self._state
        store = await state.blocking(lambda: version_sweep.kept_by(state.bucket))
        if store is None:
            return
        old.versions = 0
        known = partial(self._holdings, views=views, ask=False)
        batches = version_sweep.batches(store, state.bucket, known, self._guard())
        while (batch := await state.blocking(partial(self._next, batches))) is not None:
            old.versions += sum(len(one.versions) + len(one.markers) for one in batch)
            old.bytes += sum(one.bytes for one in batch)
            if not purge:
                continue
            if not dry and not await state.owned():
                raise ClaimLost(state.claim.detail)
            rows += await state.blocking(partial(self._purge, store, batch, dry=dry))

    def _end(self, result: SweepResult, rows: Sequence[SweptRow], old: "Old", *, dry: bool) -> SweepResult:
        state = self._state
        result = replace(result, versions=old.versions, version_bytes=old.bytes)
        if not dry:
            state.refusals.note_sweep(_refusal(rows, state.now_ms()))
            state.catalog.put(_SWEPT_MS, str(state.now_ms()))
            if result.gone or result.unexplained:
                facts = {"gone": result.gone, "bytes": result.bytes, "unexplained": result.unexplained}
                log.info("the bucket was swept", extra=facts)
        return replace(result, refused=tuple(state.refusals.known()))

    async def _may_not(self) -> SweepResult | None:
        """Only the newest owner sweeps, and by a clock that can be trusted."""
        state = self._state
        if not await state.owned():
            lost = state.claim.state is ClaimState.LOST
            detail = state.claim.detail or "the bucket does not answer"
            return SweepResult(outcome=Outcome.LOST if lost else Outcome.UNAVAILABLE, detail=detail)
        trouble = self._trouble()
        return None if trouble is None else SweepResult(outcome=Outcome.FAILED, detail=trouble)

    # --- in a thread -------------------------------------------------------------------------------------------------
    @urgent(Urgency.LATER)
    def _look(self, views: Mapping[PartitionId, PartitionView]) -> list[Leftover]:
        """Everything that is not in use, folder by folder."""
        state = self._state
        keys, store = state.bucket.keys, state.bucket.store
        found: list[Leftover] = []
        for _, folder in groupby(store.list(keys.prefix), lambda info: info.key.rpartition("/")[0]):
            listed = list(folder)
            found += leftovers(keys, listed, self._holdings((info.key for info in listed), views), self._guard())
        uploads = list(store.list_uploads(keys.prefix))
        known = self._holdings((upload.key for upload in uploads), views)
        return found + old_uploads(keys, uploads, known, self._guard())

    @urgent(Urgency.LATER)
    def _next(self, batches: Iterator[list[OldVersions]]) -> list[OldVersions] | None:
        return next(batches, None)

    @urgent(Urgency.LATER)
    def _purge(self, store: VersionedStore, batch: Sequence[OldVersions], *, dry: bool) -> list[SweptRow]:
        refused = {} if dry else purge_versions(store, batch)
        return [_purged(one, refused.get(one.key)) for one in batch]

    def _guard(self) -> Guard:
        return Guard(self._state.now_ms(), self._state.options.age_guard_ms)

    def _holdings(
        self, listed: Iterable[str], views: Mapping[PartitionId, PartitionView], *, ask: bool = True
    ) -> dict[PartitionId, Holdings]:
        """Of every partition that *listed* keys belong to; *ask*: its head says what it names.

        The catalog is asked behind the LIST: a copy has its row there before its first byte leaves.
        """
        topics: dict[PartitionId, str] = {}
        segments: dict[PartitionId, set[Uuid]] = {}
        for key in map(self._state.bucket.keys.parse, listed):
            if isinstance(key, SegmentObject):
                part = PartitionId(key.name.topic_id, key.name.partition)
                topics[part] = key.name.topic
                if ask:
                    segments.setdefault(part, set()).add(key.name.segment_id)
            elif isinstance(key, HeadKey | PageKey):
                topics[PartitionId(key.topic_id, key.partition)] = key.topic
        return {
            part: self._holding(part, topic, segments.get(part, set()), views.get(part))
            for part, topic in topics.items()
        }

    def _holding(self, part: PartitionId, topic: str, listed: set[Uuid], view: PartitionView | None) -> Holdings:
        state = self._state
        row, rows = state.catalog.partition(part), state.catalog.segments(part)
        lost = {loss.segment_id for loss in state.losses.of(part)}
        known = state.catalog.topic(part.topic_id)
        ids = frozenset(one.remote.segment_id for one in rows)
        whole = [one.remote for one in rows if one.state is CopyState.COPY_FINISHED]
        log_start = row.log_start or 0 if row is not None else 0
        return Holdings(
            rows=ids,
            ranges=[(one.base, one.next_base) for one in whole if one.segment_id not in lost],
            accepted=state.catalog.gaps.spans(part),
            log_start=log_start if view is None else max(log_start, view.log_start),
            local=None if view is None else (view.local_start, view.log_end),
            named=self._named(part, topic) if listed - ids else frozenset(),
            kept=row is not None,
            live=view is not None or (known is not None and known[0].deleted_ms is None),
            deleted=known is not None and known[0].deleted_ms is not None and not known[1],
        )

    def _named(self, part: PartitionId, topic: str) -> frozenset[Uuid] | None:
        bucket = self._state.bucket
        try:
            stored = read_head(bucket.store, bucket.keys, topic, part.topic_id, part.partition)
        except CorruptFile:
            return None
        return frozenset(entry.segment_id for entry in stored.head.entries) if stored is not None else frozenset()

    @urgent(Urgency.LATER)
    def _delete(self, batch: Sequence[Leftover]) -> list[SweptRow]:
        """Manifests in a request of their own: a reader never sees one without its data."""
        store = self._state.bucket.store
        going = [one for one in batch if one.kind in GOES]
        for one in going:
            if one.upload_id is not None:
                store.abort_upload(one.keys[0], one.upload_id)
        objects = [one for one in going if one.upload_id is None]
        manifests = store.delete([one.keys[0] for one in objects if _has_manifest(one)])
        refused = _refused(manifests)
        ready = [one for one in objects if one.keys[0] not in refused]
        refused |= _refused(store.delete([key for one in ready for key in one.keys if not _is_manifest(key)]))
        return [_done(one, next((refused[key] for key in one.keys if key in refused), None)) for one in batch]


def _refusal(rows: Sequence[SweptRow], now_ms: int) -> RefusedDelete | None:
    """What a sweep could not delete; None when all went."""
    refused = [row for row in rows if row.refused is not None]
    if not refused:
        return None
    return RefusedDelete(
        where="the sweep",
        objects=f"{len(refused)} leftovers",
        bytes=sum(row.bytes for row in refused),
        why=refused[0].refused or "",
        until_ms=max((row.until_ms for row in refused if row.until_ms is not None), default=None),
        again_ms=now_ms + REFUSED_AGAIN_MS,
    )


def _is_manifest(key: str) -> bool:
    return key.endswith(ObjectKind.MANIFEST)


def _has_manifest(one: Leftover) -> bool:
    return _is_manifest(one.keys[0])


def _refused(outcomes: Iterable[DeleteOutcome]) -> dict[str, DeleteOutcome]:
    return {one.key: one for one in outcomes if one.refused is not None}


def _done(one: Leftover, refused: DeleteOutcome | None) -> SweptRow:
    gone = one.kind in GOES and refused is None
    if refused is not None:
        log.error("the bucket refuses a delete", extra={"key": one.keys[0], "reason": refused.refused})
        return SweptRow(one.kind.value, one.keys, one.bytes, one.why, False, refused.refused, refused.until_ms)
    return SweptRow(one.kind.value, one.keys, one.bytes, one.why, gone)


def _purged(one: OldVersions, refused: DeleteOutcome | None) -> SweptRow:
    row = SweptRow(Kind.VERSION.value, (one.key,), one.bytes, one.why, one.goes and refused is None)
    return row if refused is None else replace(row, refused=refused.refused, until_ms=refused.until_ms)


def _batches(found: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for at in range(0, len(found), _BATCH):
        yield found[at : at + _BATCH]


def _result(rows: Sequence[SweptRow]) -> SweepResult:
    """What cannot be explained and what stays is named before the rest."""
    gone = [row for row in rows if row.gone]
    refused = [row for row in rows if row.refused is not None]
    return SweepResult(
        outcome=Outcome.FAILED if refused else Outcome.DONE,
        detail=f"the bucket refuses {len(refused)} deletes: {refused[0].refused}" if refused else "",
        rows=tuple(sorted(rows, key=lambda row: (row.kind != Kind.UNEXPLAINED, row.refused is None)))[:NAMED],
        found=len(rows),
        gone=len(gone),
        bytes=sum(row.bytes for row in gone),
        unexplained=sum(row.kind == Kind.UNEXPLAINED for row in rows),
    )
