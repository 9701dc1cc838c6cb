"""Somebody else's log directories as a planner sees them: what of them may be copied. They are only read."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from tierd.base.errors import CorruptFile, StartRefused, Usage
from tierd.base.ids import PartitionId, TopicPartition
from tierd.cli.offline import Local, log_end_of, partitions_of
from tierd.cli.offline_views import remote_only, with_local
from tierd.config.resolve import LOCAL_ONLY_TOPICS, TopicDefaults
from tierd.storage import names
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.plan import rolled
from tierd.tiering.snapshots import snapshot_at


@dataclass(frozen=True, slots=True)
class Left:
    """A partition of which nothing, or not all, is imported, and why."""

    name: TopicPartition
    reason: str
    failed: bool = True
    """Somebody has to do something about it; False: a later import may find it ready."""


def look(
    directories: Sequence[Path],
    patterns: Sequence[str],
    layers: TopicDefaults,
    catalog: Catalog | None,
    *,
    active: bool = False,
) -> tuple[list[PartitionView], list[Left]]:
    """Partitions of the topics that match one of the *patterns*, or of all, and what is left out of them.

    With *active* the last segment of each counts as closed, too: nobody writes there any more. Raises StartRefused
    where that is not sure, Usage when a partition is in two directories, or nothing matches; OSError.
    """
    views: list[PartitionView] = []
    left: list[Left] = []
    seen: dict[TopicPartition, Path] = {}
    for directory in directories:
        partitions, error = partitions_of(directory)
        if error is not None:
            raise error
        if active and not (directory / names.CLEAN_SHUTDOWN).exists():
            raise StartRefused(f"{directory}: no Kafka has been stopped cleanly there: its active segments may change")
        flushed = _recovery_points(directory)
        for name, local in partitions.items():
            if name.topic in LOCAL_ONLY_TOPICS or not _matches(name.topic, patterns):
                continue
            if name in seen:
                raise Usage(f"{name} is in {seen[name]} and in {directory}: name the one that counts")
            seen[name] = directory
            view, why = _view(name, local, layers, catalog, flushed.get(name), active=active)
            views += [] if view is None else [view]
            left += [] if why is None else [why]
    if not seen:
        raise Usage(f"{', '.join(map(str, directories))}: there is no partition to import")
    return views, left


def _matches(topic: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(topic, pattern) for pattern in patterns)


def _recovery_points(directory: Path) -> dict[TopicPartition, int]:
    path = directory / names.RECOVERY_POINT_CHECKPOINT
    try:
        return dict(parse_checkpoint(path.read_bytes(), str(path)))
    except FileNotFoundError:
        return {}  # directories that were copied out of a whole one


def _view(
    name: TopicPartition,
    local: Local,
    layers: TopicDefaults,
    catalog: Catalog | None,
    flushed: int | None,
    *,
    active: bool,
) -> tuple[PartitionView | None, Left | None]:
    if local.topic_id is None:
        return None, Left(name, "its directory has no partition.metadata that says the topic's id")
    part = PartitionId(local.topic_id, name.partition)
    row = None if catalog is None else catalog.partition(part)
    copied_to = None if row is None else row.copied_to
    first = local.segments[0].base
    if copied_to is not None and first > copied_to:
        return None, Left(name, f"offsets {copied_to} to {first - 1} were deleted before they were imported")
    log_end = log_end_of(local.segments[-1])
    # What the writer lets go after it was imported stays in the bucket.
    log_start = (row.log_start or 0) if row is not None and copied_to is not None else max(local.log_start or 0, first)
    settings = layers.resolve(name.topic, {}, adopted=True)
    view = with_local(remote_only(part, name, settings, log_start=log_start, log_end=log_end), local)
    if active:
        view = rolled(view, view.active_append_ms or 0)
    torn = next((one for one in view.closed if one.base < (copied_to or 0) < one.next_base), None)
    if torn is not None:
        return None, Left(name, f"segment {torn.base} has grown since it was imported as an active one")
    safe = [one for one in view.closed if flushed is None or one.next_base <= flushed]
    why = None
    if len(safe) < len(view.closed):
        start = view.closed[len(safe)].base
        why = Left(name, f"from offset {start} on its writer has not flushed it yet", failed=False)
        view = replace(view, closed=tuple(safe), active_base=start)
    try:
        return _without_open(view), why
    except CorruptFile as error:
        return None, Left(name, f"it cannot be told which transactions are open: {error}")


def _without_open(view: PartitionView) -> PartitionView:
    """With the first offset of what was open at its end as the last stable one: what ends later is taken later."""
    if not view.closed:
        return view
    entries = parse_snapshot(snapshot_at(view.directory, view.closed, view.closed[-1].next_base))
    pins = [(one.txn_first_offset, one.producer_id) for one in entries if one.txn_first_offset is not None]
    if not pins:
        return view
    first, producer = min(pins)
    return replace(view, last_stable=first, pinned_by=f"a transaction of producer {producer} is open at offset {first}")
