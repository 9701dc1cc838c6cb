"""Deletes that the bucket refuses (denied, or locked until a time): kept over a restart, and told in words.

What is refused stays and is tried again a day later (`deletion`, `sweep`).
"""

import json
import threading
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tierd.base.ids import ID_CHARS, PartitionId, Uuid
from tierd.remote.store import DeleteOutcome
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment

_KEPT = "refused_deletes"
REFUSED_AGAIN_MS = 86_400_000
"""A delete that the bucket refuses is tried again after a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedDelete:
    """What could not be deleted in one place."""

    where: str
    """Topic and partition; or that it was the sweep's."""
    objects: str
    """What it is: so many segments, or leftovers."""
    bytes: int
    why: str
    until_ms: int | None
    """Until when some of it is locked, where the bucket says so."""
    again_ms: int
    """When it is tried again next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """What the bucket has said of one batch."""

    key: str
    why: str
    until_ms: int | None

    @classmethod
    def of(cls, outcomes: Iterable[DeleteOutcome]) -> "Stuck | None":
        """The first refusal among *outcomes*, and the latest time that any of them names."""
        refused = [one for one in outcomes if one.refused is not None]
        if not refused:
            return None
        until_ms = max((one.until_ms for one in refused if one.until_ms is not None), default=None)
        return cls(key=refused[0].key, why=refused[0].refused or "", until_ms=until_ms)


class Refusals:
    """Any thread."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        kept = json.loads(catalog.get(_KEPT) or "{}")
        self._parts: dict[str, dict[str, Any]] = kept.get("parts", {})
        """By partition: `due`, times at which its refused segments are due; `why`, `until_ms`."""
        self._sweep: RefusedDelete | None = RefusedDelete(**kept["sweep"]) if kept.get("sweep") else None

    def note(self, part: PartitionId, stuck: Stuck | None, due_ms: int) -> None:
        """One batch of *part* was tried; None: all of it is gone."""
        with self._lock:
            known = self._parts.get(_name(part))
            if stuck is None and known is None:
                return
            if stuck is not None:
                due = [] if known is None else known["due"]
                self._parts[_name(part)] = {"due": [*due, due_ms], "why": stuck.why, "until_ms": stuck.until_ms}
                still = {row.due_ms for row in self._waiting(part)}
                self._parts[_name(part)]["due"] = sorted(still | {due_ms})
            elif not self._waiting(part):
                del self._parts[_name(part)]
            self._keep()

    def note_sweep(self, swept: RefusedDelete | None) -> None:
        """What the last sweep could not delete."""
        with self._lock:
            if swept != self._sweep:
                self._sweep = swept
                self._keep()

    def known(self) -> list[RefusedDelete]:
        """All that is refused now."""
        with self._lock:
            found = [self._of(part) for part in map(_part, sorted(self._parts))]
            return [one for one in (*found, self._sweep) if one is not None]

    def retry(self) -> None:
        """All refused segments are due at once: somebody has asked for it."""
        with self._lock:
            for part in map(_part, self._parts):
                self._catalog.deleting(*self._waiting(part))

    def _of(self, part: PartitionId) -> RefusedDelete | None:
        facts, rows = self._parts[_name(part)], self._waiting(part)
        if not rows:
            return None
        return RefusedDelete(
            where=f"{rows[0].remote.topic}-{part.partition}",
            objects=f"{len(rows)} segments",
            bytes=sum(row.remote.size_bytes for row in rows),
            why=facts["why"],
            until_ms=facts["until_ms"],
            again_ms=min(row.due_ms for row in rows if row.due_ms is not None),
        )

    def _waiting(self, part: PartitionId) -> Sequence[CatalogSegment]:
        """Its refused segments: what lost against another copy waits, too, but for other times."""
        due = set(self._parts[_name(part)]["due"])
        return [row for row in self._catalog.segments(part, CopyState.DELETE_STARTED) if row.due_ms in due]

    def _keep(self) -> None:
        sweep = None if self._sweep is None else asdict(self._sweep)
        self._catalog.put(_KEPT, json.dumps({"parts": self._parts, "sweep": sweep}))


def _name(part: PartitionId) -> str:
    return f"{part.topic_id}-{part.partition}"


def _part(name: str) -> PartitionId:
    return PartitionId(Uuid.parse(name[:ID_CHARS]), int(name[ID_CHARS + 1 :]))
