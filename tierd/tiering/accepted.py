"""Lost offsets that were accepted, kept in the catalog beside the heads: readers go on behind these. Any thread."""

import json
import threading
from collections.abc import Callable, Iterable

from tierd.base.ids import PartitionId
from tierd.storage.gaps import merged

Span = tuple[int, int]
"""Offsets [start, stop)."""


class AcceptedGaps:
    def __init__(self, kept: str | None, keep: Callable[[str], None]) -> None:
        """*kept* is what *keep* was given last."""
        self._keep = keep
        self._lock = threading.Lock()
        self._spans: dict[str, list[Span]] = {
            part: [(start, stop) for start, stop in spans] for part, spans in json.loads(kept or "{}").items()
        }

    def add(self, part: PartitionId, spans: Iterable[Span]) -> None:
        """Those that are known already are fine."""
        with self._lock:
            old = self._spans.get(str(part), [])
            new = list(merged((*old, *spans)))
            if new != old:
                self._spans = {**self._spans, str(part): new}
                self._keep(json.dumps(self._spans))

    def drop(self, part: PartitionId) -> None:
        """The partition is gone."""
        with self._lock:
            if str(part) in self._spans:
                self._spans = {other: spans for other, spans in self._spans.items() if other != str(part)}
                self._keep(json.dumps(self._spans))

    def spans(self, part: PartitionId) -> tuple[Span, ...]:
        """Ascending."""
        return tuple(self._spans.get(str(part), ()))

    def covers(self, part: PartitionId, start: int, stop: int) -> bool:
        """Whether all of [start, stop) is accepted as lost."""
        return any(first <= start and stop <= last for first, last in self._spans.get(str(part), []))
