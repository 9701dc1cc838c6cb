"""A closed segment that a start has not read again is looked at before its first use (ENGINE.md, "Recovery").

It must begin at its base or above and below the next one's, hold whole batches to the file's end, and end where the
next one begins, or at least behind all that its indexes name. Only what the last index entry leads to is walked, header
by header. Loop thread only.
"""

import logging
import os
from dataclasses import dataclass, replace

from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.context import LogContext
from tierd.storage.gaps import Gap, Gaps
from tierd.storage.index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from tierd.storage.index import OffsetIndex
from tierd.storage.log_read import heads
from tierd.storage.names import Suffix
from tierd.storage.recovery import Cut, cut_off
from tierd.storage.segment import Segment, tail_of
from tierd.storage.segments import Segments
from tierd.storage.sparse import OffsetEntries
from tierd.storage.timeindex import ENTRY_BYTES as TIME_ENTRY_BYTES
from tierd.storage.timeindex import TimeIndex

log = logging.getLogger(__name__)

_INDEXES = (
    (Suffix.INDEX, OffsetIndex, OFFSET_ENTRY_BYTES),
    (Suffix.TIME_INDEX, TimeIndex, TIME_ENTRY_BYTES),
)


@dataclass(frozen=True, slots=True)
class Settled:
    """What has become of a segment."""

    changed: bool = False
    """Segments, or what is known of lost offsets, are not what they were."""
    cut: Cut | None = None
    lost: Gap | None = None


@dataclass(frozen=True, slots=True)
class _Ending:
    """How far a segment is good."""

    position: int
    next_offset: int
    reason: str = ""
    """Why it is not good to its end."""


def settle(context: LogContext, name: TopicPartition, segments: Segments, gaps: Gaps, at: int) -> Settled:
    """Look at closed segment number *at*. What is torn or overlaps the next one is set aside and cut, a later one that
    lies in it wholly is set aside; offsets lost are noted first. One that ends whole, but before the next one begins,
    has lost nothing unless its indexes say so: compaction leaves such holes, and an adopted topic may have been
    compacted whatever it says now.

    Raises CorruptFile, DiskFull, OSError; then it may be tried again.
    """
    segment, stop = segments[at], segments.next_base(at)
    assert stop is not None
    named = _named(segment)  # before its indexes are made again
    ending = _ending(context, segment, stop)
    if not ending.reason and ending.next_offset <= named < stop:
        ending = replace(ending, reason=f"its indexes name offset {named}")
    if ending.reason and not ending.position and at and not segments[at - 1].checked:
        before = settle(context, name, segments, gaps, at - 1)  # it may be whole there
        if before.changed:
            return before
    removed = _drop_covered(context, name, segments, at, ending.next_offset)
    stop = segments.next_base(at)
    assert stop is not None
    if ending.next_offset > stop:
        ending = _ending_below(context, segment, stop)
    lost = (ending.next_offset, stop) if ending.reason and ending.next_offset < stop else None
    if lost is not None and gaps.holds(lost):
        lost = None
    if lost is not None:
        facts = {"partition": str(name), "log": segment.where, "start": lost[0], "stop": lost[1]}
        log.warning("a closed segment ends before the next one begins", extra=facts)
        gaps.note(lost)
    cut = None
    torn = ending.position < segment.size_bytes
    if torn:
        cut = _cut(context, name, segment, ending)
    segment.checked = True
    return Settled(removed or torn or lost is not None, cut, lost)


def _named(segment: Segment) -> int:
    """The last offset that one of its index files names; one below its base when none does."""
    found = segment.base - 1
    for suffix, view, entry_bytes in _INDEXES:
        try:
            last = view(tail_of(segment.path(suffix), entry_bytes), segment.base).last
        except FileNotFoundError:
            continue
        found = found if last is None else max(found, last.offset)
    return found


def _ending(context: LogContext, segment: Segment, stop: int) -> _Ending:
    if not segment.size_bytes:
        return _Ending(0, segment.base)
    fd = segment.handle.acquire()
    try:
        size = min(os.fstat(fd).st_size, segment.size_bytes)
        try:
            _, first, _, _ = next(heads(fd, 0, size, segment.where), (0, segment.base, 0, 0))
        except CorruptFile as error:
            return _Ending(0, segment.base, error.reason)
        if not segment.base <= first < stop:
            return _Ending(0, segment.base, f"it begins with offset {first}")
        try:
            return _walk(segment, fd, size, context.indexes.of(segment).offsets)
        except CorruptFile:  # the index leads astray, or to the very batch that is torn
            return _walk(segment, fd, size, context.indexes.renew(segment).offsets)
    finally:
        segment.handle.release()


def _walk(segment: Segment, fd: int, size: int, entries: OffsetEntries) -> _Ending:
    """Raises CorruptFile when the last of *entries* does not lead to its batch."""
    begin = position = entries.positions[-1] if len(entries) else 0
    expected = entries.relatives[-1] + entries.base if len(entries) else None
    end = segment.base
    try:
        for at, base, last, batch_bytes in heads(fd, begin, size, segment.where):
            if expected is not None and last != expected:
                raise CorruptFile(segment.where, at, f"the index says {expected} where the batch ends at {last}")
            if base < end:
                return _Ending(position, end, f"offset {base} comes again")
            expected = None
            position, end = at + batch_bytes, last + 1
    except CorruptFile as error:
        if expected is not None:
            raise
        return _Ending(position, end, error.reason)
    return _Ending(position, end)


def _ending_below(context: LogContext, segment: Segment, stop: int) -> _Ending:
    """Before the first batch that reaches to *stop* or beyond."""
    entries = context.indexes.of(segment).offsets
    number = entries.floor_at(stop - 1)
    position = entries.positions[number] if number >= 0 else 0
    end = segment.base
    fd = segment.handle.acquire()
    try:
        for at, _, last, _ in heads(fd, position, segment.size_bytes, segment.where):
            position = at
            if last >= stop:
                break
            end = last + 1
    finally:
        segment.handle.release()
    return _Ending(position, end, f"offset {stop} is the next segment's")


def _drop_covered(context: LogContext, name: TopicPartition, segments: Segments, at: int, end: int) -> bool:
    """Set aside the segments after number *at* that end at or below *end*: all of them is in that one, too."""
    dropped = False
    while (next_end := segments.next_base(at + 1)) is not None and next_end <= end:
        gone = segments.remove(at + 1)
        log.warning(
            "a segment that lies in the one before it is set aside", extra={"partition": str(name), "log": gone.where}
        )
        context.indexes.forget(gone)
        gone.handle.drop()
        for path in (gone.path(suffix) for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX)):
            if path.exists():
                context.set_aside.move(name, path)
        segments[at].view = None
        dropped = True
    return dropped


def _cut(context: LogContext, name: TopicPartition, segment: Segment, ending: _Ending) -> Cut | None:
    cut = cut_off(context.set_aside, context.disk, name, segment, ending.position, ending.next_offset, ending.reason)
    segment.hints.clear()
    segment.view = segment.largest = None
    context.indexes.renew(segment)
    facts = {"partition": str(name), "base": segment.base, "position": ending.position}
    log.warning("cut and set aside: %s", ending.reason, extra=facts)
    return cut
