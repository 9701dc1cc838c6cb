"""What would leave disk and bucket, when and why: what `tierd retention --dry-run` shows. Pure.

It decides nothing: what goes is what `storage.retention` told the pass, or would tell it later.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tierd.base.ids import PartitionId
from tierd.storage.retention import Going, Rule, Staying, local_going
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment

LOCAL, REMOTE = "local", "remote"
GONE_TOPIC = "topic deleted"
FAILED_COPY = "failed copy"
"""It was not committed, or another copy of its range counts."""
MOST_ROWS = 1_000
"""Of one partition; the sums know all."""
MOST_ROWS_IN_ALL = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlookRow:
    """One segment leaves one tier."""

    tier: str
    start: int
    stop: int
    """Exclusive."""
    bytes: int
    """In that tier: of the `.log`, in the bucket with all that belongs to it."""
    rule: str
    """Rule, GONE_TOPIC or FAILED_COPY."""
    at_ms: int | None
    """Wall clock, at the next look from then on. None: only the bucket's owner knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """Of one partition."""

    part: PartitionId
    topic: str
    log_start: int | None
    """Now."""
    log_start_then: int | None
    log_bytes: int
    """That leave the log, each byte once, whichever tiers have it."""
    rows: tuple[OutlookRow, ...] = ()
    more: int = 0
    """Rows above MOST_ROWS."""
    local_bytes: int = 0
    remote_bytes: int = 0
    staying: Staying | None = None
    future_segments: int = 0
    """With a record from the future, in either tier: they are as old as their last append, and go as others do."""
    future_ms: int | None = None
    """The latest of these timestamps."""

    def document(self) -> dict[str, Any]:
        """As JSON values: a partition of `tierd retention --json`."""
        staying = self.staying
        return {
            "topic": self.topic,
            "topic_id": str(self.part.topic_id),
            "partition": self.part.partition,
            "log_start": self.log_start,
            "log_start_then": self.log_start_then,
            "log_bytes": self.log_bytes,
            "local_bytes": self.local_bytes,
            "remote_bytes": self.remote_bytes,
            "rows": [asdict(row) for row in self.rows],
            "more": self.more,
            "future_segments": self.future_segments,
            "future_ms": self.future_ms,
            "stays": None
            if staying is None
            else {
                "start": staying.segment.base,
                "stop": staying.segment.next_base,
                "bytes": staying.segment.size_bytes,
                "due_ms": staying.due_ms,
                "rule": staying.rule,
                "copied": staying.copied,
            },
        }

    @property
    def is_stuck(self) -> bool:
        """A limit that has passed would let the oldest local segment go, but the bucket does not have it."""
        return self.staying is not None and self.staying.due_ms is not None and not self.staying.copied

    @property
    def is_empty(self) -> bool:
        return not (self.rows or self.is_stuck or self.future_segments)

    @property
    def without_rows(self) -> "Outlook":
        """Only their sums."""
        return replace(self, rows=(), more=self.more + len(self.rows))


def outlook(
    view: PartitionView,
    leaving: Sequence[Going],
    local: tuple[Sequence[Going], Staying | None],
    remote: Sequence[CatalogSegment],
    *,
    delay_ms: int,
    now_ms: int,
) -> Outlook:
    """*leaving* is `total_going`'s and *local* `local_going`'s answer; *remote*: all rows that these may concern, and
    those that are released or being deleted already; their objects stay for *delay_ms*."""
    gone, staying = local
    rows = [*(_local_row(one) for one in gone), *_remote_rows(view.log_start, leaving, remote, delay_ms)]
    then = leaving[-1].segment.next_base if leaving else view.log_start
    future = _future([*view.closed, *(row.remote.view for row in remote)], now_ms)
    return _outlook(
        rows,
        Outlook(
            part=view.id,
            topic=view.name.topic,
            log_start=view.log_start,
            log_start_then=then,
            log_bytes=sum(one.segment.size_bytes for one in leaving),
            staying=staying,
            future_segments=len(future),
            future_ms=max(future.values(), default=None),
        ),
    )


def _future(segments: Iterable[SegmentView], now_ms: int) -> dict[int, int]:
    """By base, the timestamps that no clock has reached yet."""
    found = {one.base: one.largest_timestamp_ms for one in segments}
    return {base: at_ms for base, at_ms in found.items() if at_ms is not None and at_ms > now_ms}


def outlook_of_untiered(view: PartitionView, leaving: Sequence[Going], *, now_ms: int, within_ms: int) -> Outlook:
    """Of a partition that no bucket holds: local limits say nothing of it."""
    local, _ = local_going(view, (), now_ms=now_ms, until_ms=now_ms + within_ms, leaving=leaving)
    return outlook(view, leaving, (local, None), (), delay_ms=0, now_ms=now_ms)


def outlook_of_released(
    part: PartitionId, topic: str, remote: Iterable[CatalogSegment], *, delay_ms: int, deleted: bool
) -> Outlook:
    """Of a partition of which only what is released already goes."""
    rows = list(_remote_rows(0, (), remote, delay_ms, released=GONE_TOPIC if deleted else Rule.LOG_START))
    return _outlook(rows, Outlook(part=part, topic=topic, log_start=None, log_start_then=None, log_bytes=0))


def _outlook(rows: Sequence[OutlookRow], whole: Outlook) -> Outlook:
    by_tier = {tier: sum(row.bytes for row in rows if row.tier == tier) for tier in (LOCAL, REMOTE)}
    return replace(
        whole,
        rows=tuple(rows[:MOST_ROWS]),
        more=max(0, len(rows) - MOST_ROWS),
        local_bytes=by_tier[LOCAL],
        remote_bytes=by_tier[REMOTE],
    )


def _local_row(one: Going) -> OutlookRow:
    segment = one.segment
    return OutlookRow(
        tier=LOCAL,
        start=segment.base,
        stop=segment.next_base,
        bytes=segment.size_bytes,
        rule=one.rule,
        at_ms=one.at_ms,
    )


def _remote_rows(
    log_start: int,
    leaving: Sequence[Going],
    remote: Iterable[CatalogSegment],
    delay_ms: int,
    *,
    released: str = Rule.LOG_START,
) -> Iterator[OutlookRow]:
    passing = iter(leaving)
    now = next(passing, None)
    for row in sorted(remote, key=lambda one: one.remote.next_base):
        while now is not None and now.segment.next_base < row.remote.next_base:
            now = next(passing, None)
        if row.state is CopyState.DELETE_STARTED:
            yield _remote_row(row, FAILED_COPY if row.released_ms is None else released, row.due_ms or row.released_ms)
        elif row.state is not CopyState.COPY_FINISHED:
            continue
        elif row.released_ms is not None:
            yield _remote_row(row, released, row.released_ms + delay_ms)
        elif row.remote.next_base <= log_start:
            yield _remote_row(row, released, None)
        elif now is not None:
            yield _remote_row(row, now.rule, now.at_ms + delay_ms)


def _remote_row(row: CatalogSegment, rule: str, at_ms: int | None) -> OutlookRow:
    remote = row.remote
    return OutlookRow(
        tier=REMOTE,
        start=remote.base,
        stop=remote.next_base,
        bytes=remote.log_bytes + remote.indexes_bytes + row.manifest_bytes,
        rule=rule,
        at_ms=at_ms,
    )
