"""Offsets that the bucket is known to have lost: which they are, and that somebody has accepted that they are.

An accepted gap stands in the partition's head with who and why; its segments are forgotten, so that they hold nothing
up any more. What is left of their objects stays in the bucket.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tierd.base.errors import CorruptFile, RemoteUnavailable, Usage
from tierd.base.ids import PartitionId
from tierd.remote.heads import Gap, read_head
from tierd.tiering.copying import Copying
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.publish import Publisher
from tierd.tiering.rows import CatalogPartition
from tierd.tiering.state import TierState

log = logging.getLogger(__name__)

HOLE = "no segment has these offsets"


@dataclass(frozen=True, slots=True)
class Missing:
    """Offsets [start, stop) that cannot be read from the bucket, though they should be there."""

    start: int
    stop: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """One gap of a partition."""

    topic: str
    partition: int
    start: int
    stop: int
    accepted: bool
    why: str
    """What was found, or the reason for which it was accepted."""
    who: str = ""
    accepted_ms: int | None = None


def holes(ranges: Iterable[tuple[int, int]], start: int, stop: int) -> list[Missing]:
    """What of [start, stop) no range has."""
    found, at = [], start
    for first, last in [*sorted(ranges), (stop, stop)]:
        if min(first, stop) > at:
            found.append(Missing(at, min(first, stop), HOLE))
        at = max(at, last)
    return found


def still_open(missing: Iterable[Missing], accepted: Sequence[Gap]) -> list[Missing]:
    """What nobody has accepted yet, ascending."""
    found = []
    for one in missing:
        inside = [(gap.start, gap.stop) for gap in accepted]
        found += [Missing(left.start, left.stop, one.why) for left in holes(inside, one.start, one.stop)]
    return sorted(found, key=lambda one: one.start)


def chosen(missing: Sequence[Missing], start: int | None, stop: int | None, name: str) -> list[Missing]:
    """Those that lie in [start, stop), all without both. Raises Usage unless they are whole, and all of it."""
    found = [one for one in missing if (start is None or one.stop > start) and (stop is None or one.start < stop)]
    if not found:
        raise Usage(f"{name}: nothing is known to be lost there (`tierd gaps list`)")
    first, last = found[0].start if start is None else start, found[-1].stop if stop is None else stop
    sound = [] if start is None else holes([(one.start, one.stop) for one in found], first, last)
    if sound:
        raise Usage(f"{name}: offsets {sound[0].start} to {sound[0].stop - 1} are not lost")
    cut = next((one for one in found if one.start < first or one.stop > last), None)
    if cut is not None:
        raise Usage(f"{name}: offsets {cut.start} to {cut.stop - 1} are lost together: accept all of them")
    return found


class Gaps:
    """Loop thread only."""

    def __init__(self, state: TierState, copying: Copying, publisher: Publisher) -> None:
        self._state = state
        self._copying = copying
        self._publisher = publisher

    async def known(self) -> tuple[GapRow, ...]:
        """Accepted ones and open ones. Raises RemoteUnavailable; a head that does not parse has no accepted ones."""
        rows: list[GapRow] = []
        for row in self._live():
            accepted = await self._accepted(row)
            rows += [_accepted_row(row, gap) for gap in accepted]
            rows += [_open_row(row, one) for one in still_open(self._missing(row), accepted)]
        return tuple(rows)

    async def accept(
        self, topic: str, partition: int, start: int | None, stop: int | None, *, who: str, why: str, dry: bool
    ) -> tuple[GapRow, ...]:
        """Accept what is lost in [start, stop), or all of the partition that is; gives what was.

        Raises Usage when that is not what is lost, or the disk still has it; RemoteUnavailable.
        """
        row = self._find(topic, partition)
        name = f"{topic}-{partition}"
        found = chosen(self._missing(row), start, stop, name)
        again = next((one for one in found if self._comes_back(row.part, one)), None)
        if again is not None:
            raise Usage(f"{name}: offsets {again.start} to {again.stop - 1} are on the disk: they are copied again")
        now_ms = self._state.clock.now_ms()
        gaps = tuple(Gap(start=one.start, stop=one.stop, reason=why, who=who, accepted_ms=now_ms) for one in found)
        if not dry:
            await self._keep(row, gaps)
        return tuple(_accepted_row(row, gap) for gap in gaps)

    async def _keep(self, row: CatalogPartition, gaps: Sequence[Gap]) -> None:
        """The head first; then what lies in the gaps is forgotten, and nothing waits for it any more."""
        state = self._state
        if not await state.owned() or not await self._publisher.accept(row.part, gaps):
            why = state.claim.detail or "the bucket does not answer"
            raise RemoteUnavailable(f"the head of {state.name_of(row.part)} could not be written: {why}")
        lost = {loss.segment_id for loss in state.losses.of(row.part)}
        rows = [
            one for one in state.catalog.segments(row.part, CopyState.COPY_FINISHED) if one.remote.segment_id in lost
        ]
        inside = [
            one
            for one in rows
            if any(gap.start <= one.remote.base and one.remote.next_base <= gap.stop for gap in gaps)
        ]
        state.catalog.gaps.add(row.part, [(gap.start, gap.stop) for gap in gaps])
        state.catalog.deleting(*inside)
        state.catalog.deleted(*inside)  # the rows: objects that are left are nobody's to delete
        for one in inside:
            state.forget(one.remote.segment_id)
        state.losses.mended(row.part, inside)
        for gap in gaps:
            facts = {"start": gap.start, "stop": gap.stop, "who": gap.who, "why": gap.reason}
            log.warning("lost offsets are accepted", extra={"partition": state.name_of(row.part), **facts})
        state.tell(row.part)
        self._copying.wake(row.part)

    def _missing(self, row: CatalogPartition) -> list[Missing]:
        """Holes between log start and copied end, and segments that are lost."""
        state = self._state
        committed = [one.remote for one in state.catalog.segments(row.part, CopyState.COPY_FINISHED)]
        ranges = [(one.base, one.next_base) for one in committed]
        view = state.views.get(row.part)
        told = [at for at in (row.log_start, view.log_start if view is not None else None) if at is not None]
        log_start = max(told or [min((first for first, _ in ranges), default=0)])
        lost = [Missing(loss.base, loss.next_base, loss.why) for loss in state.losses.of(row.part)]
        found = [*lost, *holes(ranges, log_start, row.copied_to or 0)]
        return sorted((one for one in found if one.stop > log_start), key=lambda one: one.start)

    def _comes_back(self, part: PartitionId, one: Missing) -> bool:
        """Whether the disk has a segment that takes the lost one's place."""
        mends = self._copying.mends(part) if part in self._state.views else ()
        return any((segment.base, segment.next_base) == (one.start, one.stop) for segment in mends)

    def _live(self) -> list[CatalogPartition]:
        deleted = {topic.topic_id for topic in self._state.catalog.topics() if topic.deleted_ms is not None}
        return [row for row in self._state.catalog.partitions() if row.part.topic_id not in deleted]

    def _find(self, topic: str, partition: int) -> CatalogPartition:
        found = [row for row in self._live() if (row.topic, row.part.partition) == (topic, partition)]
        if len(found) > 1:
            found = [row for row in found if row.part in self._state.views]
        if not found:
            raise Usage(f"{topic}-{partition}: the bucket has no such partition")
        return found[0]

    async def _accepted(self, row: CatalogPartition) -> tuple[Gap, ...]:
        bucket = self._state.bucket

        def read() -> tuple[Gap, ...]:
            try:
                head = read_head(bucket.store, bucket.keys, row.topic, row.part.topic_id, row.part.partition)
            except CorruptFile:
                return ()
            return head.head.gaps if head is not None else ()

        return await self._state.blocking(read)


def _accepted_row(row: CatalogPartition, gap: Gap) -> GapRow:
    return GapRow(
        topic=row.topic,
        partition=row.part.partition,
        start=gap.start,
        stop=gap.stop,
        accepted=True,
        why=gap.reason,
        who=gap.who,
        accepted_ms=gap.accepted_ms,
    )


def _open_row(row: CatalogPartition, one: Missing) -> GapRow:
    return GapRow(
        topic=row.topic, partition=row.part.partition, start=one.start, stop=one.stop, accepted=False, why=one.why
    )
