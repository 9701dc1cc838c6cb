"""Partitions as the planner sees them, while no daemon runs: out of registry, catalog and data directories, read only.

As far as nobody but a daemon can know it, the best is assumed: no transaction is open, all is flushed.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.registry import TopicRow
from tierd.broker.retention import going
from tierd.broker.status import untiered
from tierd.cli.offline import (
    STOPPED,
    Local,
    LocalSegment,
    data_dirs_of,
    log_end_of,
    log_start_of,
    partitions_of,
    registered,
)
from tierd.config.model import Settings
from tierd.config.resolve import TopicDefaults
from tierd.config.state_files import CATALOG, REGISTRY
from tierd.config.topic import TopicSettings
from tierd.storage import names
from tierd.storage.database import DatabaseDamaged
from tierd.storage.timeindex import TimeIndex
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering import ahead
from tierd.tiering.catalog import Catalog
from tierd.tiering.losses import Losses
from tierd.tiering.outlook import Outlook, outlook_of_untiered
from tierd.tiering.plan import uncopied
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.why import document, why_local, why_remote, why_uncopied

_NOBODYS = Uuid(bytes(16))
"""Of a partition of which nobody knows the topic's id: the catalog has nothing under it."""


@dataclass(frozen=True, slots=True)
class Offline:
    """What a stopped daemon has left."""

    views: tuple[PartitionView, ...]
    catalog: Catalog | None
    unread: tuple[str, ...]
    """Directories that cannot be looked at, and why."""

    @property
    def is_known(self) -> bool:
        """Whether it is known what the bucket has of each."""
        return self.catalog is not None or not any(view.settings.remote_storage_enable for view in self.views)


@contextmanager
def offline(settings: Settings) -> Iterator[Offline]:
    """Raises StartRefused when registry or catalog cannot be read."""
    topics, url = registered(settings.state_dir / REGISTRY)
    layers = replace(settings.topic_defaults, tiering=(url or settings.remote.url) is not None)
    path = settings.state_dir / CATALOG
    try:
        catalog = Catalog.open(path) if path.exists() else None
    except DatabaseDamaged as error:
        raise TierdError(f"{error}; the next start makes it again") from error
    try:
        known = {row.name: row for row in topics}
        found, unread = _everywhere(settings)
        places = set(found) | {TopicPartition(row.name, number) for row in topics for number in range(row.partitions)}
        views = (_view(layers, tp, known.get(tp.topic), found.get(tp), catalog) for tp in sorted(places))
        yield Offline(tuple(one for one in views if one is not None), catalog, tuple(unread))
    finally:
        if catalog is not None:
            catalog.close()


def _everywhere(settings: Settings) -> tuple[dict[TopicPartition, Local], list[str]]:
    found: dict[TopicPartition, Local] = {}
    unread = []
    for path in data_dirs_of(settings):
        here, error = partitions_of(path)
        found |= here
        if error is not None:
            unread.append(f"{path}: {error}")
    return found, unread


def _view(
    layers: TopicDefaults, tp: TopicPartition, topic: TopicRow | None, local: Local | None, catalog: Catalog | None
) -> PartitionView | None:
    """None of a partition that is nowhere."""
    topic_id = (topic.id if topic else local.topic_id if local else None) or _NOBODYS
    part = PartitionId(topic_id, tp.partition)
    remote = None if catalog is None else catalog.remote_partition(part)
    copied_to = None if remote is None else remote.copied_to
    if local is None and copied_to is None:
        return None
    log_end = log_end_of(local.segments[-1]) if local else copied_to or 0
    log_start = log_start_of(local, remote) or 0
    adopted = topic is None or topic.adopted
    settings = layers.resolve(tp.topic, topic.config if topic else {}, adopted=adopted)
    view = remote_only(part, tp, settings, log_start=log_start, log_end=log_end)
    return view if local is None else with_local(view, local)


def remote_only(
    part: PartitionId, tp: TopicPartition, settings: TopicSettings, *, log_start: int, log_end: int
) -> PartitionView:
    """A partition of which nothing is on a disk."""
    return PartitionView(
        name=tp,
        id=part,
        directory=Path(),
        settings=settings,
        log_start=log_start,
        local_start=log_end,
        log_end=log_end,
        last_stable=log_end,
        recovery_point=log_end,
        leader_epoch=0,
        closed=(),
        active_base=log_end,
        active_bytes=0,
        active_append_ms=None,
    )


def with_local(view: PartitionView, local: Local) -> PartitionView:
    """*view* with what the disk has of it."""
    active = local.segments[-1]
    closed = tuple(_closed(segment, after.base) for segment, after in pairwise(local.segments))
    return replace(
        view,
        directory=local.directory / str(view.name),
        local_start=max(local.segments[0].base, view.log_start),
        closed=closed,
        active_base=active.base,
        active_bytes=active.size_bytes,
        active_append_ms=active.append_ms if active.size_bytes else None,
    )


def _closed(segment: LocalSegment, next_base: int) -> SegmentView:
    return SegmentView(
        base=segment.base,
        next_base=next_base,
        size_bytes=segment.size_bytes,
        largest_timestamp_ms=_largest_ms(segment),
        append_ms=segment.append_ms,
    )


def _largest_ms(segment: LocalSegment) -> int | None:
    """As its time index says; None without one."""
    path = segment.path.with_name(names.segment_file(segment.base, names.Suffix.TIME_INDEX))
    try:
        last = TimeIndex(path.read_bytes(), segment.base).last
    except (FileNotFoundError, CorruptFile):
        return None
    return None if last is None or last.timestamp_ms < 0 else last.timestamp_ms


def offline_outlooks(left: Offline, *, now_ms: int, within_ms: int) -> Iterator[Outlook]:
    """What retention will let go of each partition, once a daemon runs."""
    tiered = [view for view in left.views if view.settings.remote_storage_enable]
    for view in left.views:
        if not view.settings.remote_storage_enable:
            leaving = going(view, now_ms, now_ms + within_ms)
            yield outlook_of_untiered(view, leaving, now_ms=now_ms, within_ms=within_ms)
    if left.catalog is not None:
        yield from _in_two_tiers(left.catalog, tiered, now_ms=now_ms, within_ms=within_ms)


def _in_two_tiers(
    catalog: Catalog, views: Sequence[PartitionView], *, now_ms: int, within_ms: int
) -> Iterator[Outlook]:
    losses = Losses(catalog)
    for view in views:
        copied = ahead.copies(catalog, view, {loss.segment_id for loss in losses.of(view.id)})
        yield ahead.look(catalog, view, copied, now_ms=now_ms, within_ms=within_ms)
    here = {view.id for view in views}
    deleted = {topic.topic_id for topic in catalog.topics() if topic.deleted_ms is not None}
    for row in catalog.partitions():
        if row.part not in here:
            yield ahead.look_at_released(catalog, row, deleted=row.part.topic_id in deleted)


def offline_reasons(left: Offline, name: TopicPartition) -> dict[str, dict[str, Any] | None] | None:
    """What `tierd why` says of a partition: that nothing happens without a daemon, and what would stand against it
    beside that. None of one that is not there."""
    view = next((one for one in left.views if one.name == name), None)
    if view is None:
        return None
    now_ms = time.time_ns() // 1_000_000
    rows: list[CatalogSegment] = []
    committed: list[tuple[int, int]] = []
    if left.catalog is not None:
        rows = left.catalog.segments(view.id)
        lost = {loss.segment_id for loss in Losses(left.catalog).of(view.id)}
        committed = [(one.base, one.next_base) for one in ahead.copies(left.catalog, view, lost)]
    copied_to = None if left.catalog is None else left.catalog.remote_partition(view.id).copied_to
    waiting = STOPPED if view.settings.remote_storage_enable else untiered(name.topic, has_tier=True)
    some = uncopied(view, copied_to)
    is_behind = bool(some) or view.log_end > (copied_to or 0)
    delay_ms = ahead.delay_of(None if left.catalog is None else left.catalog.partition(view.id))
    answers = {
        "copy": why_uncopied(view, waiting if is_behind else None, some),
        "local": why_local(view, committed, now_ms=now_ms, trouble=STOPPED, waiting=waiting),
        "remote": why_remote(view, rows, now_ms=now_ms, bucket_ms=now_ms, delay_ms=delay_ms, trouble=STOPPED),
    }
    return {question: document(why) for question, why in answers.items()}
