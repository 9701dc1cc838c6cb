"""The latest offset of each key in the part of the log that is to be cleaned, in bounded memory."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import compress, repeat

from tierd.base.errors import Usage

ENTRY_BYTES = 196
"""About what an entry takes at most: a key of 32 bytes, an offset, their share of a table that has just grown and of
the offsets in order."""
_SHORT_BYTES = 32
_HASH_BYTES = 16
_MOST_EDGES = 100_000
_MARKS_PER_KEY = 8
"""A byte for each offset takes no more memory than the offsets of the keys in order, when there are no more."""


def token(key: bytes) -> bytes | int:
    """What stands for *key* in the map: itself when it is short, else a hash of it as a number, which no key is."""
    return key if len(key) <= _SHORT_BYTES else int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big")


class Ranges:
    """Offsets in ranges, entered in order; neighbours become one. What there is no room for is left out."""

    def __init__(self) -> None:
        self._edges = array("q")
        """Where a range begins, where it ends, and so on."""

    def add(self, start: int, stop: int) -> None:
        edges = self._edges
        if edges and edges[-1] == start:
            edges[-1] = stop
        elif len(edges) < _MOST_EDGES:
            edges.extend((start, stop))

    def __contains__(self, offset: int) -> bool:
        return bisect_right(self._edges, offset) % 2 == 1


class OffsetMap:
    """Filled in offset order, then `close`d, then only asked. By batches: C loops then do what would be a call per
    record."""

    def __init__(self, memory_bytes: int, start: int = 0) -> None:
        """It is to speak for offsets from *start* on: those below were cleaned before."""
        self._most = memory_bytes // ENTRY_BYTES
        if self._most < 1:
            raise Usage(f"{memory_bytes} bytes hold no entry of an offset map")
        self._offsets: dict[bytes | int, int] = {}
        self._ordered = array("q")
        self._marks = bytearray()
        self.start = self.stop = start
        """The map speaks for offsets up to `stop`; records from there on are kept whatever their key."""
        self.dense = Ranges()
        """Batches whose records all were entered, record number i with offset delta i: of these `latest_within` tells
        which stay."""
        self.valued = Ranges()
        """Those of them without tombstones."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Enter *offset* as the latest of *key*; False, and nothing is entered, when there is no room left."""
        offsets = self._offsets
        if len(offsets) >= self._most:
            return False
        offsets[key if len(key) <= _SHORT_BYTES else token(key)] = offset
        self.stop = offset + 1
        return True

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int], longest: int | None = None) -> bool:
        """The same for several keys, none of more than *longest* bytes where that is known; False when there was no
        room for all of them."""
        if len(self._offsets) + len(keys) > self._most:
            return all(map(self.put, keys, offsets))
        if keys:
            short = longest is not None and longest <= _SHORT_BYTES
            self._offsets.update(zip(keys if short else _tokens(keys), offsets, strict=True))
            self.stop = offsets[-1] + 1
        return True

    def close(self) -> None:
        """Nothing is entered any more."""
        span, latest = self.stop - self.start, self._offsets.values()
        if span > _MARKS_PER_KEY * len(latest):
            self._ordered = array("q", sorted(latest))
            return
        marks, start = bytearray(span), self.start
        for offset in latest:
            marks[offset - start] = 1
        self._marks = marks

    def latest(self, keys: Sequence[bytes]) -> Iterator[int]:
        """For each key the latest offset in the map; -1 when it is not there."""
        return map(self._offsets.get, _tokens(keys), repeat(-1))

    def latest_within(self, start: int, stop: int) -> list[int]:
        """The offsets in [start, stop), less *start*, that are the latest of their keys. After `close`; the map speaks
        for all of them."""
        if self._marks:
            return list(compress(range(stop - start), self._marks[start - self.start : stop - self.start]))
        ordered = self._ordered
        return [offset - start for offset in ordered[bisect_left(ordered, start) : bisect_left(ordered, stop)]]


def _tokens(keys: Sequence[bytes]) -> Iterable[bytes | int]:
    return keys if max(map(len, keys), default=0) <= _SHORT_BYTES else map(token, keys)
