"""The latest offset of each key in the part of the log that is to be cleaned, in bounded memory."""

from hashlib import blake2b

from tierd.base.errors import Usage

ENTRY_BYTES = 180
"""About what an entry takes at most: a key of 32 bytes, an offset, their share of a table that has just grown."""
_SHORT_BYTES = 32
_HASH_BYTES = 16


def token(key: bytes) -> bytes | int:
    """What stands for *key* in the map: itself when it is short, else a hash of it as a number, which no key is."""
    return key if len(key) <= _SHORT_BYTES else int.from_bytes(blake2b(key, digest_size=_HASH_BYTES).digest(), "big")


class OffsetMap:
    """Filled once, in offset order, then only asked."""

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

    def superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record with this key is in the map."""
        return self._offsets.get(key if len(key) <= _SHORT_BYTES else token(key), -1) > offset
