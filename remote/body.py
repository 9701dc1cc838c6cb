"""How the objects of one segment hold its bytes: which stored bytes are needed for which of its own (LAYOUT.md)."""

from dataclasses import dataclass

from tierd.remote.chunks import ChunkIndex, chunks_over
from tierd.remote.keyring import KeyRing
from tierd.remote.manifest import Manifest
from tierd.remote.ranges import ByteRange
from tierd.remote.transform import Bytes, Transform


@dataclass(frozen=True, slots=True)
class Body:
    """Made by `body_of`."""

    chunks: ChunkIndex
    transform: Transform

    def stored_range(self, part: ByteRange) -> ByteRange:
        """The bytes of `.log` that hold bytes *part* of the segment: whole chunks. *part* is not empty."""
        chunks = chunks_over(self.chunks, part.start, part.stop)
        return ByteRange(chunks[0].stored.start, chunks[-1].stored.stop)

    def restore(self, raw: Bytes, part: ByteRange, where: str) -> bytearray:
        """Bytes *part* of the segment out of those of its `stored_range`. Raises CorruptFile."""
        view, found = memoryview(raw), bytearray(part.length)
        chunks = chunks_over(self.chunks, part.start, part.stop)
        begin = chunks[0].stored.start
        for chunk in chunks:
            original, stored = chunk.original, chunk.stored
            whole = self.transform.restore(
                view[stored.start - begin : stored.stop - begin], original.length, where, stored.start
            )
            first, stop = max(part.start, original.start), min(part.stop, original.stop)
            found[first - part.start : stop - part.start] = memoryview(whole)[
                first - original.start : stop - original.start
            ]
        return found


def body_of(manifest: Manifest, ring: KeyRing, where: str) -> Body:
    """*where* is the manifest's key. Raises KeyMissing, and CorruptFile when its data key does not unwrap."""
    secret = None if manifest.encryption is None else ring.open(manifest.encryption, where)
    return Body(manifest.chunks, Transform(manifest.compressed, secret))
