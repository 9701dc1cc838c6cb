"""Where local records are not those that the bucket has at the same offsets: two runs wrote there, each for itself.

That happens when a copy of a data directory, or an older state of it, was written to while the bucket did not answer.
The leader epochs of both sides tell, and the first appends of runs whose claim the bucket never took.
"""

import json
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from tierd.base.errors import CorruptFile
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.manifest import EpochStart
from tierd.storage.epochs import parse_epochs
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.sidecars import EPOCHS_FILE

_UNCLAIMED = "unclaimed"


def outside(catalog: Catalog, views: Iterable[PartitionView]) -> dict[PartitionId, int]:
    """Partitions whose local log leaves the bucket's history below the copied end, and the offset where it does."""
    unclaimed = unclaimed_firsts(catalog)
    found = {}
    for view in views:
        row = catalog.partition(view.id)
        if row is None or row.copied_to is None:
            continue
        stop = min(row.copied_to, view.log_end)
        starts = [differs_at(local_epochs(view), catalog.in_range(view.id, view.local_start, stop), stop)]
        if (first := unclaimed.get(view.id)) is not None and first < stop:
            starts.append(first)
        known = [start for start in starts if start is not None]
        if known:
            found[view.id] = max(min(known), view.local_start)
    return found


def differs_at(local: Sequence[EpochStart], remote: Iterable[RemoteSegment], stop: int) -> int | None:
    """The first offset below *stop* that lies in different epochs here and there. What either does not know fits."""
    for segment in remote:
        end = min(segment.next_base, stop)
        turns = {one.start for one in (*local, *segment.epochs) if segment.base < one.start < end}
        for offset in sorted({segment.base, *turns} if segment.base < end else ()):
            here, there = _epoch_at(local, offset), _epoch_at(segment.epochs, offset)
            if here is not None and there is not None and here != there:
                return offset
    return None


def _epoch_at(epochs: Sequence[EpochStart], offset: int) -> int | None:
    at = bisect_right(epochs, offset, key=lambda one: one.start)
    return epochs[at - 1].epoch if at else None


def local_epochs(view: PartitionView) -> tuple[EpochStart, ...]:
    """Those of the local checkpoint; empty when there is none to read."""
    try:
        entries = parse_epochs((view.directory / EPOCHS_FILE).read_bytes(), EPOCHS_FILE)
    except (FileNotFoundError, CorruptFile):
        return ()
    return tuple(EpochStart(entry.epoch, entry.start_offset) for entry in entries)


# --- runs whose claim was never taken --------------------------------------------------------------------------------
def unclaimed_firsts(catalog: Catalog) -> dict[PartitionId, int]:
    """The first offset of each partition that a run may have written to without ever having the bucket."""
    rows = json.loads(catalog.get(_UNCLAIMED) or "[]")
    return {PartitionId(Uuid.parse(topic_id), number): first for topic_id, number, first in rows}


def add_unclaimed(catalog: Catalog, firsts: Mapping[PartitionId, int]) -> None:
    """A run ended without its claim: remember where it began, if no earlier one did so further back."""
    known = unclaimed_firsts(catalog)
    merged = {**firsts, **{part: min(first, firsts.get(part, first)) for part, first in known.items()}}
    rows = [[str(part.topic_id), part.partition, first] for part, first in sorted(merged.items())]
    catalog.put(_UNCLAIMED, json.dumps(rows))


def forget_unclaimed(catalog: Catalog) -> None:
    """A run has the bucket, and all local records fit to it."""
    if catalog.get(_UNCLAIMED) not in (None, "[]"):
        catalog.put(_UNCLAIMED, "[]")
