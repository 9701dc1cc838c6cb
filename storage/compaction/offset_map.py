"""The latest offset of each key in the part of the log that is to be cleaned, in bounded memory."""

from hashlib import blake2b

from tierd.base.errors import Usage

ENTRY_BYTES = 160
"""About what an entry takes: a key of 16 bytes, an offset, their share of the table (measured, just after it grew)."""
_SHORT = 16


def token(key: bytes) -> bytes:
    """What stands for *key* in the map: itself when shorter than 16 bytes, else 16 bytes of its hash."""
    return key if len(key) < _SHORT else blake2b(key, digest_size=_SHORT).digest()


class OffsetMap:
    """Filled once, in offset order, then only asked."""

    def __init__(self, memory_bytes: int) -> None:
        self._most = memory_bytes // ENTRY_BYTES
        if self._most < 1:
            raise Usage(f"{memory_bytes} bytes hold no entry of an offset map")
        self._offsets: dict[bytes, int] = {}
        self.stop = 0
        """The map speaks for offsets below this one; records from here on are kept whatever their key."""

    def __len__(self) -> int:
        return len(self._offsets)

    def put(self, key: bytes, offset: int) -> bool:
        """Enter *offset* as the latest of *key*; False, and nothing is entered, when there is no room left."""
        offsets = self._offsets
        if len(offsets) >= self._most:
            return False
        offsets[token(key)] = offset
        self.stop = offset + 1
        return True

    def superseded(self, key: bytes, offset: int) -> bool:
        """Whether a later record with this key is in the map."""
        return self._offsets.get(token(key), -1) > offset
