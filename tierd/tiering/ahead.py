"""Looks ahead in a catalog, for `tierd retention --dry-run`, by the decisions of the pass; with or without a daemon."""

from collections.abc import Collection, Iterable

from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import DAY_MS
from tierd.storage.retention import local_going, total_going
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.outlook import Outlook, outlook, outlook_of_released
from tierd.tiering.rows import CatalogPartition, CatalogSegment

_EVER = 2**62


def copies(catalog: Catalog, view: PartitionView, lost: Collection[Uuid]) -> list[SegmentView]:
    """What the bucket has of the closed segments, without those that it has *lost*."""
    if not view.closed:
        return []
    committed = catalog.in_range(view.id, view.closed[0].base, view.closed[-1].next_base)
    return [one.view for one in committed if one.segment_id not in lost]


def look(
    catalog: Catalog,
    view: PartitionView,
    copied: Iterable[SegmentView],
    *,
    now_ms: int,
    within_ms: int,
    given_up: int = 0,
) -> Outlook:
    """Of a partition that has logs; *copied* as `copies` gives it."""
    settings, until_ms = view.settings, now_ms + within_ms
    limited = settings.retention_ms is not None or settings.retention_bytes is not None
    rows = catalog.segments(view.id) if limited else _going_already(catalog, view.id)
    committed = [row.remote.view for row in rows if row.state is CopyState.COPY_FINISHED]
    leaving = total_going(view, committed, now_ms=now_ms, until_ms=until_ms)
    local = local_going(
        view,
        [(one.base, one.next_base) for one in copied],
        now_ms=now_ms,
        until_ms=until_ms,
        given_up=given_up,
        leaving=leaving,
    )
    return outlook(view, leaving, local, rows, delay_ms=delay_of(catalog.partition(view.id)), now_ms=now_ms)


def look_at_released(catalog: Catalog, row: CatalogPartition, *, deleted: bool) -> Outlook:
    """Of a partition of which nothing else goes: its topic is *deleted*, or is not tiered any more."""
    rows = _going_already(catalog, row.part)
    return outlook_of_released(row.part, row.topic, rows, delay_ms=delay_of(row), deleted=deleted)


def delay_of(row: CatalogPartition | None) -> int:
    """How long objects of the partition stay in the bucket once they are released."""
    return DAY_MS if row is None or row.delete_delay_ms is None else row.delete_delay_ms


def _going_already(catalog: Catalog, part: PartitionId) -> list[CatalogSegment]:
    return [*catalog.released_before(part, _EVER), *catalog.segments(part, CopyState.DELETE_STARTED)]
