"""The latest offset of each key in the part of the log that is to be cleaned, in bounded memory."""

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import repeat

from tierd.base.errors import Usage

ENTRY_BYTES = 180
"""About what an entry takes at most: a key of 32 bytes, an offset, their share of a table that has just grown."""
_SHORT_BYTES = 32
_HASH_BYTES = 16


def token(key: bytes) -> bytes | int:
    """What stands for *key* in the map: itself when it is short, else a hash of it as a number, which no key is."""
    return key if len(key) <= _SHORT_BYTES else int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big")


class OffsetMap:
    """Filled once, in offset order, then only asked. By batches: C loops then do what would be a call per record."""

    def __init__(self, memory_bytes: int) -> None:
        self._most = memory_bytes // ENTRY_BYTES
        if self._most < 1:
            raise Usage(f"{memory_bytes} bytes hold no entry of an offset map")
        self._offsets: dict[bytes | int, int] = {}
        self.stop = 0
        """The map speaks for offsets below this one; records from here on are kept whatever their key."""

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

    def put_all(self, keys: Sequence[bytes], offsets: Sequence[int]) -> bool:
        """The same for several keys; False when there was no room for all of them."""
        if len(self._offsets) + len(keys) > self._most or not _all_short(keys):
            return all(map(self.put, keys, offsets))
        if keys:
            self._offsets.update(zip(keys, offsets, strict=True))
            self.stop = offsets[-1] + 1
        return True

    def latest(self, keys: Sequence[bytes]) -> Iterator[int]:
        """For each key the latest offset in the map; -1 when it is not there."""
        tokens = keys if _all_short(keys) else map(token, keys)
        return map(self._offsets.get, tokens, repeat(-1))


def _all_short(keys: Sequence[bytes]) -> bool:
    return max(map(len, keys), default=0) <= _SHORT_BYTES
