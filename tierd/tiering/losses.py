"""Committed segments whose objects the bucket has lost: a LIST shows them missing or of another size, or their bytes
were read and are not those that were copied (`suspects`).

They stay readable for the catalog until they are copied again from the local original (`copying`); while one is
known, nothing from it on leaves the disk. Kept in the catalog, so that a start knows them. Loop thread only.
"""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tierd.base.ids import PartitionId, Uuid
from tierd.base.logs import Doubling
from tierd.remote.keys import Keys, ObjectKind, SegmentObject
from tierd.remote.store import ObjectInfo, ObjectStore
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment

log = logging.getLogger(__name__)

_KEY, _DAMAGED = "lost", "damaged"


@dataclass(frozen=True, slots=True)
class Loss:
    """A committed segment over offsets [base, next_base), and what is wrong with its objects."""

    segment_id: Uuid
    base: int
    next_base: int
    size_bytes: int
    """That were copied."""
    why: str


class Losses:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lost: dict[PartitionId, dict[Uuid, Loss]] = {}
        self._seen = Doubling()
        self._damaged: dict[Uuid, str] = {
            Uuid.parse(one): why for one, why in json.loads(catalog.get(_DAMAGED) or "{}").items()
        }
        """Whose bytes were read and are wrong: what a LIST shows of them is nothing to go by."""
        self._load(json.loads(catalog.get(_KEY) or "{}"))

    def _load(self, kept: Mapping[str, str]) -> None:
        rows = self._catalog.in_state(CopyState.COPY_FINISHED) if kept else []
        for row in rows:
            why = kept.get(str(row.remote.segment_id))
            if why is not None:
                self._add(row, why)

    def of(self, part: PartitionId) -> list[Loss]:
        """Ascending."""
        return sorted(self._lost.get(part, {}).values(), key=lambda loss: loss.base)

    def ranges(self, part: PartitionId) -> tuple[tuple[int, int], ...]:
        """Offsets [start, stop) of each."""
        return tuple((loss.base, loss.next_base) for loss in self.of(part))

    def note(self, part: PartitionId, name: str, looked: Iterable[CatalogSegment], faults: Mapping[Uuid, str]) -> bool:
        """A LIST has shown the *looked* segments; *faults* says which are not whole. True when anything changed.

        Each is logged when it is first seen, and then at the 2nd, 4th, 8th, ... look.
        """
        before = self.of(part)
        for row in looked:
            why = faults.get(row.remote.segment_id) or self._damaged.get(row.remote.segment_id)
            if why is None:
                self._drop(part, row.remote.segment_id)
                continue
            self._add(row, why)
            seen = self._seen.failed(row.remote.segment_id)
            if seen is not None:
                facts = {"partition": name, "base": row.remote.base, "next_base": row.remote.next_base, "looks": seen}
                log.error("the bucket has lost a segment: %s", why, extra=facts)
        changed = before != self.of(part)
        if changed:
            self._keep()
        return changed

    def read(self, part: PartitionId, name: str, row: CatalogSegment, why: str | None) -> bool:
        """All bytes of a segment were read: *why* they are no good, None when they are. True when anything changed."""
        if why is None:
            self._damaged.pop(row.remote.segment_id, None)
        else:
            self._damaged[row.remote.segment_id] = why
        return self.note(part, name, [row], {})

    def is_damaged(self, segment_id: Uuid) -> bool:
        """Whether its bytes were read and were no good."""
        return segment_id in self._damaged

    def mended(self, part: PartitionId, rows: Iterable[CatalogSegment]) -> bool:
        """*rows* are of no account any more; True when one of them was lost."""
        before = self.of(part)
        for row in rows:
            self._drop(part, row.remote.segment_id)
        if before == self.of(part):
            return False
        self._keep()
        return True

    def _add(self, row: CatalogSegment, why: str) -> None:
        remote = row.remote
        loss = Loss(remote.segment_id, remote.base, remote.next_base, remote.size_bytes, why)
        self._lost.setdefault(remote.part, {})[remote.segment_id] = loss

    def _drop(self, part: PartitionId, segment_id: Uuid) -> None:
        self._seen.well(segment_id)
        self._damaged.pop(segment_id, None)
        self._lost.get(part, {}).pop(segment_id, None)

    def _keep(self) -> None:
        everything = (loss for some in self._lost.values() for loss in some.values())
        self._catalog.put(_DAMAGED, json.dumps({str(one): why for one, why in self._damaged.items()}))
        self._catalog.put(_KEY, json.dumps({str(loss.segment_id): loss.why for loss in everything}))


def faults(store: ObjectStore, keys: Keys, rows: Sequence[CatalogSegment]) -> dict[Uuid, str]:
    """Of *rows* (of one partition, ascending): those whose three objects a LIST does not show whole, and why. Blocking.

    Raises RemoteUnavailable.
    """
    wanted = [row for row in rows if row.remote.size_bytes]
    if not wanted:
        return {}
    first = wanted[0].remote
    folder = keys.partition_folder(first.topic, first.part.topic_id, first.part.partition)
    listed: list[ObjectInfo] = []
    for info in store.list(folder, start_after=f"{folder}{first.base:020d}"):
        key = keys.parse(info.key)
        if isinstance(key, SegmentObject) and key.name.base > wanted[-1].remote.base:
            break
        listed.append(info)
    return faults_of(wanted, listed)


def faults_of(rows: Iterable[CatalogSegment], listed: Iterable[ObjectInfo]) -> dict[Uuid, str]:
    """Which of *rows* have not all their objects among the *listed* ones, and why."""
    sizes = {info.key: info.size for info in listed}
    found = {row.remote.segment_id: fault(row, sizes) for row in rows if row.remote.size_bytes}
    return {segment_id: why for segment_id, why in found.items() if why is not None}


def gone(key: str) -> str:
    return f"{key} is not there any more"


def fault(row: CatalogSegment, sizes: Mapping[str, int]) -> str | None:
    """What is wrong with a segment's objects, whose *sizes* by key a LIST has shown; None when they are whole."""
    wanted = {
        ObjectKind.LOG: row.remote.log_bytes,
        ObjectKind.INDEXES: row.remote.indexes_bytes,
        ObjectKind.MANIFEST: row.manifest_bytes if row.remote.key_id is None else 0,  # a rotation changes its size
    }
    for kind, size in wanted.items():
        key = row.remote.stem + kind
        if key not in sizes:
            return gone(key)
        if sizes[key] != size and (size or kind is not ObjectKind.MANIFEST):
            return f"{key} has {sizes[key]} bytes, {size} were copied"
    return None
