"""Committed segments that somebody found damaged: all their bytes are read, and what is wrong with them is noted.

A LIST sees sizes only. What is damaged is lost like what is missing: it is copied again while the disk has it.
"""

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.errors import NotFound
from tierd.remote.keys import ObjectKind, SegmentName
from tierd.remote.open import Bucket
from tierd.tiering.intake import entry_of
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.state import TierState
from tierd.tiering.verify.facts import Seen
from tierd.tiering.verify.segment import check_segment
from tierd.tiering.verify.verdicts import Verdict

_AGAIN_MS = 3_600_000
"""What was found sound is not read again earlier, however often it is suspected."""


class Suspects:
    """Loop thread only; the reading runs in a thread."""

    def __init__(self, state: TierState) -> None:
        self._state = state
        self._stems: dict[PartitionId, set[str]] = {}
        self._sound_ms: dict[Uuid, int] = {}

    def add_range(self, part: PartitionId, start: int, stop: int) -> int:
        """Every segment that has an offset in [start, stop); how many these are."""
        rows = self._state.catalog.segments(part, CopyState.COPY_FINISHED)
        found = [row.remote for row in rows if row.remote.base < stop and row.remote.next_base > start]
        for remote in found:
            self.add(part, remote.log_key)
            self._sound_ms.pop(remote.segment_id, None)
        return len(found)

    def add(self, part: PartitionId, key: str) -> None:
        """*key*: of one of a segment's objects."""
        self._stems.setdefault(part, set()).add(key.rpartition(".")[0])

    async def look(self, part: PartitionId) -> None:
        """Read what is suspected of *part*, and once more what is known to be damaged. Raises RemoteUnavailable."""
        state, now_ms = self._state, self._state.clock.monotonic_ms()
        stems = self._stems.get(part, set())
        missing = {loss.segment_id for loss in state.losses.of(part)}
        for row in state.catalog.segments(part, CopyState.COPY_FINISHED):
            segment_id = row.remote.segment_id
            if row.released_ms is not None or not row.remote.size_bytes:
                continue
            if not state.losses.is_damaged(segment_id) and (
                segment_id in missing or row.remote.stem not in stems or self._is_sound(segment_id, now_ms)
            ):
                continue
            why = await state.blocking(lambda row=row: damage(state.bucket, row))  # type: ignore[misc]
            if why is None:
                self._sound_ms[segment_id] = now_ms
            if state.losses.read(part, state.name_of(part), row, why):
                state.tell(part)
        self._stems.pop(part, None)

    def _is_sound(self, segment_id: Uuid, now_ms: int) -> bool:
        seen_ms = self._sound_ms.get(segment_id)
        return seen_ms is not None and now_ms - seen_ms < _AGAIN_MS


def damage(bucket: Bucket, row: CatalogSegment) -> str | None:
    """Why reads of the segment fail or give something else than was copied; None when all of it is sound. Blocking.

    What looks damaged is read twice. Raises RemoteUnavailable.
    """
    remote = row.remote
    name = SegmentName(remote.topic, remote.part.topic_id, remote.part.partition, remote.base, remote.segment_id)
    try:
        objects = {kind: bucket.store.head(remote.stem + kind) for kind in ObjectKind}
    except NotFound as error:
        return str(error)
    seen = Seen(name=name, stem=remote.stem, row=row, objects=objects, entry=entry_of(row))
    findings = check_segment(bucket, seen, deep=True, crc_expected=False)
    return next((one.reason for one in findings if one.verdict is Verdict.FAILURE), None)
