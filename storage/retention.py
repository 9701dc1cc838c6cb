"""What retention lets go, and when: one decision for the pass that does it and for the dry run that only tells it.

Pure. A segment is as old as min(largest timestamp, append time), whichever tier it is in: no timestamp from the future
pins one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from tierd.storage.view import PartitionView, SegmentView


class Rule(StrEnum):
    """Why a segment goes."""

    TIME = "retention.ms"
    SIZE = "retention.bytes"
    LOCAL_TIME = "local.retention.ms"
    LOCAL_SIZE = "local.retention.bytes"
    LOG_START = "log start"
    """Nobody can read it any more: DeleteRecords or an earlier retention has moved log start past it."""
    THIN = "lost here"
    """The disk has lost some of what the bucket has of it."""
    ASKED = "tierd evict"


@dataclass(frozen=True, slots=True)
class Going:
    segment: SegmentView
    rule: Rule
    at_ms: int
    """Wall clock; the time of the question when it is due already."""


@dataclass(frozen=True, slots=True)
class Staying:
    """The oldest local segment that stays: all behind it stay with it."""

    segment: SegmentView
    due_ms: int | None
    """When a limit lets it go. None: no limit that is set does, as far as the log is now."""
    rule: Rule | None
    """Of that limit."""
    copied: bool
    """False: due or not, it is not in the bucket."""


def total_going(
    view: PartitionView,
    remote: Iterable[SegmentView],
    *,
    now_ms: int,
    until_ms: int | None = None,
    below: int | None = None,
) -> list[Going]:
    """The oldest segments, of either tier, that total retention lets go up to *until_ms* (by default now).

    Safety: every byte counts once, whichever tiers hold it; by size a segment goes only when what stays is still at
    least `retention.bytes`; the active segment never goes, nor what ends above *below* (by default the last stable
    offset); stops at the first segment that stays. The caller must have loaded the remote state, else nothing may be
    decided. Of times to come it knows no appends.
    """
    settings = view.settings
    if not settings.deletes or (settings.retention_ms is None and settings.retention_bytes is None):
        return []
    below = view.last_stable if below is None else below
    until_ms = now_ms if until_ms is None else until_ms
    pieces = list(_pieces(view, remote))
    total_bytes = sum(piece.size_bytes for piece in pieces) + view.active_bytes
    going: list[Going] = []
    at_ms = now_ms
    for piece in pieces:
        limit = _total_limit(view, piece, total_bytes, now_ms)
        if piece.next_base > below or limit is None or limit[0] > until_ms:
            break
        at_ms = max(at_ms, limit[0])
        going.append(Going(piece, limit[1], at_ms))
        total_bytes -= piece.size_bytes
    return going


def _total_limit(view: PartitionView, piece: SegmentView, total_bytes: int, now_ms: int) -> tuple[int, Rule] | None:
    keep_ms, keep_bytes = view.settings.retention_ms, view.settings.retention_bytes
    limits = []
    if keep_ms is not None:  # one longer than time itself keeps all
        limits.append((max(0, piece.age_anchor_ms) + keep_ms + 1, Rule.TIME))
    if keep_bytes is not None and total_bytes - piece.size_bytes >= keep_bytes:
        limits.append((now_ms, Rule.SIZE))
    return min(limits, key=lambda limit: limit[0], default=None)


def _pieces(view: PartitionView, remote: Iterable[SegmentView]) -> Iterator[SegmentView]:
    """The log at or above log start as segments of either tier, ascending; without the active one.

    Of two pieces that overlap only the first counts its bytes: too small a total keeps, too large a one deletes.
    """
    end = first = view.log_start
    for piece in sorted([*remote, *view.closed], key=lambda one: (one.base, -one.next_base)):
        if piece.next_base > end:
            overlaps = piece.base < end and end > first
            yield replace(piece, size_bytes=0) if overlaps else piece
            end = piece.next_base


def local_going(
    view: PartitionView,
    committed: Iterable[tuple[int, int]],
    *,
    now_ms: int,
    until_ms: int | None = None,
    everything: bool = False,
    given_up: int = 0,
    leaving: Sequence[Going] = (),
) -> tuple[list[Going], Staying | None]:
    """The oldest closed segments that leave the disk up to *until_ms* (by default now): what local retention lets go,
    what ends at or below *given_up*, and what total retention lets go (*leaving*, as `total_going` gave it).

    Safety: stops at the first segment that is not, as far as it lies above log start, inside one contiguous run of
    *committed* ranges [base, next_base): a gap must never open. With *everything* no local limit matters.
    """
    covered = runs(committed)
    until_ms = now_ms if until_ms is None else until_ms
    local_bytes = sum(segment.size_bytes for segment in view.closed) + view.active_bytes
    going: list[Going] = []
    at_ms, past = now_ms, iter(leaving)
    passing = next(past, None)
    for segment in view.closed:
        while passing is not None and passing.segment.next_base < segment.next_base:
            passing = next(past, None)
        limits = list(_local_limits(view, segment, local_bytes, now_ms))
        copied = _is_copied(view, segment, covered)
        if everything or segment.next_base <= given_up:
            limits.append((now_ms, Rule.ASKED if everything else Rule.THIN))
        allowed = limits if copied else []
        if passing is not None:
            allowed = [(passing.at_ms, passing.rule), *allowed]
        due = min(allowed, key=_time, default=None)
        if due is None or due[0] > until_ms:
            limit = min([*limits, *allowed], key=_time, default=None)
            return going, Staying(segment, limit and limit[0], limit and limit[1], copied)
        at_ms = max(at_ms, due[0])
        going.append(Going(segment, due[1], at_ms))
        local_bytes -= segment.size_bytes
    return going, None


def _local_limits(
    view: PartitionView, segment: SegmentView, local_bytes: int, now_ms: int
) -> Iterator[tuple[int, Rule]]:
    keep_ms, keep_bytes = view.settings.local_retention_ms, view.settings.local_retention_bytes
    if segment.next_base <= view.log_start:
        yield now_ms, Rule.LOG_START
    if keep_ms is not None:
        yield segment.age_anchor_ms + keep_ms + 1, Rule.LOCAL_TIME
    if keep_bytes is not None and local_bytes - keep_bytes - segment.size_bytes >= 0:
        yield now_ms, Rule.LOCAL_SIZE


def _is_copied(view: PartitionView, segment: SegmentView, covered: Sequence[tuple[int, int]]) -> bool:
    """As far as it lies above log start."""
    first = max(segment.base, view.log_start)
    return first >= segment.next_base or any(start <= first and segment.next_base <= stop for start, stop in covered)


def _time(limit: tuple[int, Rule]) -> int:
    return limit[0]


def runs(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges joined where they touch or overlap, ascending."""
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((start, stop))
    return joined
