"""A closed segment that a start has not read again is looked at before its first use (ENGINE.md, "Recovery").

It must begin at its base or above and below the next one's, hold whole batches to the file's end, and end where the
next one begins, or at least behind all that its indexes name. Only what the last index entry leads to is walked, header
by header; what has to be done about it may take long (repairs.py). Loop thread only.
"""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.context import LogContext
from tierd.storage.gaps import Gap, Gaps
from tierd.storage.index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from tierd.storage.index import OffsetIndex
from tierd.storage.log_read import heads, is_latest
from tierd.storage.names import Suffix
from tierd.storage.recovery import Cut, cut_off
from tierd.storage.remaking import Remade, RemadeIndexes
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


_MOST_WALKED_BYTES = 4 * 1024 * 1024
"""Further than this behind its last entry an index made here does not end: one that does is made again."""

Told = Callable[[Cut | None, Gap | None], None]
"""Of the cut and the offsets lost, once all that is done about a segment is done."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """How far a segment is good."""

    position: int
    next_offset: int
    reason: str = ""
    """Why it is not good to its end."""


def settle(context: LogContext, name: TopicPartition, segments: Segments, gaps: Gaps, at: int, told: Told) -> bool:
    """Look at closed segment number *at*; whether all is as it was. What is torn or overlaps the next one is set aside
    and cut, a later one that lies in it wholly is set aside; offsets lost are noted first. One that ends whole, but
    before the next one begins, has lost nothing unless its indexes say so: compaction leaves such holes, and an adopted
    topic may have been compacted whatever it says now.

    Raises Repairing, CorruptFile, DiskFull, OSError; then it may be tried again.
    """
    first = at
    while first and not segments[first - 1].checked and _is_hollow(context, segments, first):
        first -= 1  # what it had may be whole there
    return all(_settle(context, name, segments, gaps, number, told) for number in range(first, at + 1))


def _is_hollow(context: LogContext, segments: Segments, at: int) -> bool:
    """Asked again after each of those below it was settled: very many may follow each other."""
    segment = segments[at]
    if not segment.hollow:
        ending = _look(context, segments, at)
        segment.hollow = bool(ending.reason) and not ending.position
    return segment.hollow


def _look(context: LogContext, segments: Segments, at: int) -> "_Ending":
    segment, stop = segments[at], segments.next_base(at)
    assert stop is not None
    context.repairs.check(segment)
    named = _named(segment)  # before its indexes are made again
    ending = _ending(context, segment, stop)
    if not ending.reason and ending.next_offset <= named < stop:
        return replace(ending, reason=f"its indexes name offset {named}")
    return ending


def _settle(context: LogContext, name: TopicPartition, segments: Segments, gaps: Gaps, at: int, told: Told) -> bool:
    """One of which it is clear what was before it."""
    segment, ending = segments[at], _look(context, segments, at)
    covered = _covered(segments, at, ending.next_offset)
    stop = segments.next_base(at + covered)
    assert stop is not None
    if ending.next_offset > stop:
        ending = _ending_below(context, segment, stop)
    lost = (ending.next_offset, stop) if ending.reason and ending.next_offset < stop else None
    if lost is not None and gaps.holds(lost):
        lost = None
    if not covered and lost is None and ending.position == segment.size_bytes:
        if not _has_times(context, segment):
            context.indexes.renew(segment)
        segment.checked = True
        if (remade := context.indexes.unsettled(segment)) is not None:
            remade.put()
            segment.largest = segment.view = None
        return True
    if lost is not None:
        facts = {"partition": str(name), "log": segment.where, "start": lost[0], "stop": lost[1]}
        log.warning("a closed segment ends before the next one begins", extra=facts)
        gaps.note(lost)
    removed = [_without(context, name, segments, at) for _ in range(covered)]
    mending = _Mending(context, name, segment, ending, lost, removed, gaps, told)
    context.repairs.do(segment, mending.run)
    return False


def _has_times(context: LogContext, segment: Segment) -> bool:
    """Whether the log says what the last entry of the time index does: retention and look-ups go by that. One made from
    the log is as good as that is."""
    if not segment.size_bytes or (indexes := context.indexes.of(segment)).offsets.from_log:
        return True
    fd = segment.handle.acquire()
    try:
        return is_latest(segment, fd, indexes.offsets, indexes.times.last)
    finally:
        segment.handle.release()


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
    if size - begin > _MOST_WALKED_BYTES and not entries.from_log:
        raise CorruptFile(segment.where, begin, "its index ends far before it")
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


def _covered(segments: Segments, at: int, end: int) -> int:
    """How many segments after number *at* end at or below *end*: all of them is in that one, too."""
    count = 0
    while (next_end := segments.next_base(at + count + 1)) is not None and next_end <= end:
        count += 1
    return count


def _without(context: LogContext, name: TopicPartition, segments: Segments, at: int) -> Segment:
    """Take the segment after number *at*, which lies in it, out of the log."""
    gone = segments.remove(at + 1)
    log.warning(
        "a segment that lies in the one before it is set aside", extra={"partition": str(name), "log": gone.where}
    )
    context.indexes.forget(gone)
    gone.handle.drop()
    segments[at].view = None
    return gone


class _Mending:
    """What has to be done about one segment: `run` in any thread, what it gives on the loop."""

    def __init__(
        self,
        context: LogContext,
        name: TopicPartition,
        segment: Segment,
        ending: _Ending,
        lost: Gap | None,
        covered: Sequence[Segment],
        gaps: Gaps,
        told: Told,
    ) -> None:
        self._context = context
        self._name = name
        self._segment = segment
        self._ending = ending
        self._lost = lost
        self._covered = covered
        self._gaps = gaps
        self._told = told
        self._directory = segment.directory
        self._waiting = context.indexes.unsettled(segment)
        self._inode = os.stat(segment.handle.path).st_ino
        self._torn = ending.position < segment.size_bytes

    def run(self) -> Callable[[], None]:
        """Raises CorruptFile, DiskFull, OSError: then it may be tried again."""
        for gone in self._covered:
            for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX, Suffix.TXN_INDEX):
                if (path := gone.path(suffix)).exists():
                    self._context.set_aside.move(self._name, path)
        self._gaps.keep()
        if not self._torn:
            return partial(self._take_in, None, None)
        remade = self._context.remake(self._segment, self._ending.position)
        try:
            cut = self._cut()
        except BaseException:
            remade.files.discard()
            raise
        return partial(self._take_in, remade, cut)

    def _cut(self) -> Cut | None:
        ending, context = self._ending, self._context
        position, end, reason = ending.position, ending.next_offset, ending.reason
        cut = cut_off(
            context.set_aside, context.disk, self._name, self._segment, position, end, reason, inode=self._inode
        )
        facts = {"partition": str(self._name), "base": self._segment.base, "position": position}
        log.warning("cut and set aside: %s", reason, extra=facts)
        return cut

    def _take_in(self, remade: RemadeIndexes | None, cut: Cut | None) -> None:
        segment = self._segment
        if segment.gone or segment.directory != self._directory:
            if remade is not None:
                remade.files.discard()
            return
        if remade is not None:
            segment.size_bytes = self._ending.position
            segment.hints.clear()
            segment.view = segment.largest = None
        segment.checked = True
        if remade is not None:
            self._context.indexes.take(remade)
        else:
            _put(self._waiting)
        self._told(cut, self._lost)


def _put(files: Remade | None) -> None:
    if files is not None:
        files.put()
