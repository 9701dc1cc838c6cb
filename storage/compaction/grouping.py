"""Which neighbours become one segment: as many as fit together by their sizes before they are cleaned. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from tierd.storage.compaction.job import Source
from tierd.storage.index import MAX_RELATIVE


@dataclass(frozen=True, slots=True)
class Sized:
    """A source and the sizes of its index files, as they are now."""

    source: Source
    index_bytes: int
    time_index_bytes: int


class _Group:
    """A run in the making, with its sums."""

    def __init__(self, first: Sized) -> None:
        self.members = [first]
        self._log_bytes = first.source.size_bytes
        self._index_bytes = first.index_bytes
        self._time_index_bytes = first.time_index_bytes

    def take(self, sized: Sized, segment_bytes: int, index_bytes: int) -> bool:
        """Add *sized* unless the run would become too large."""
        log_bytes = self._log_bytes + sized.source.size_bytes
        index = self._index_bytes + sized.index_bytes
        times = self._time_index_bytes + sized.time_index_bytes
        far = sized.source.next_base - 1 - self.members[0].source.base > MAX_RELATIVE
        if log_bytes > segment_bytes or max(index, times) > index_bytes or (far and sized.source.size_bytes):
            return False
        self._log_bytes, self._index_bytes, self._time_index_bytes = log_bytes, index, times
        self.members.append(sized)
        return True


def groups(sources: Sequence[Sized], segment_bytes: int, index_bytes: int) -> list[list[Sized]]:
    """Runs of neighbours whose logs are together at most *segment_bytes*, each kind of index at most *index_bytes*,
    and whose offsets fit into one index."""
    found: list[_Group] = []
    for sized in sources:
        if not (found and found[-1].take(sized, segment_bytes, index_bytes)):
            found.append(_Group(sized))
    return [group.members for group in found]
