"""The local segments of one partition in order; the last one is active. Loop thread only."""

from bisect import bisect_right
from collections.abc import Iterator

from tierd.storage.segment import Segment


class Segments:
    """Never empty. A segment's offsets end where the next one begins."""

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __getitem__(self, i: int) -> Segment:
        return self._segments[i]

    def since(self, i: int) -> list[Segment]:
        """Segment *i* and those after it."""
        return self._segments[i:]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def closed(self) -> list[Segment]:
        return self._segments[:-1]

    def find(self, offset: int) -> int:
        """Number of the segment whose range holds *offset* (the first one when it lies below them all)."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def next_base(self, i: int) -> int | None:
        """Where segment *i* ends; None for the active one."""
        return self._bases[i + 1] if i + 1 < len(self._bases) else None

    def ranges(self) -> Iterator[tuple[Segment, int]]:
        """(closed segment, its next base), oldest first."""
        return zip(self._segments[:-1], self._bases[1:], strict=True)

    def append(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base)
        self.active = segment

    def below(self, offset: int) -> list[Segment]:
        """Closed segments that end at or below *offset*."""
        return [segment for segment, next_base in self.ranges() if next_base <= offset]

    def drop(self, count: int) -> list[Segment]:
        """Take the oldest *count* out of the list."""
        assert count < len(self._segments)
        del self._bases[:count]
        gone = self._segments[:count]
        del self._segments[:count]
        return _gone(gone)

    def replace(self, start: int, count: int, new: Segment) -> list[Segment]:
        """Put *new* in the place of *count* closed segments from number *start* on, the first of which has its base."""
        assert start + count < len(self._segments)
        gone = self._segments[start : start + count]
        assert gone[0].base == new.base
        self._segments[start : start + count] = [new]
        self._bases[start : start + count] = [new.base]
        return _gone(gone)

    def remove(self, i: int) -> Segment:
        """Take closed segment *i*, not the first, out: the one before it ends where it did."""
        assert 0 < i < len(self._segments) - 1
        del self._bases[i]
        return _gone([self._segments.pop(i)])[0]

    def drop_last(self) -> Segment:
        """Take the active segment out; the one before it becomes active."""
        gone = self._segments.pop()
        self._bases.pop()
        self.active = self._segments[-1]
        return _gone([gone])[0]

    def restart(self, active: Segment) -> list[Segment]:
        """Go on with *active* alone; give the old ones."""
        gone, self._segments = self._segments, [active]
        self._bases = [active.base]
        self.active = active
        return _gone(gone)


def _gone(segments: list[Segment]) -> list[Segment]:
    for segment in segments:
        segment.gone = True
    return segments
