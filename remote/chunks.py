"""The chunk index of a manifest: how the stored `.log` object maps to the segment's own bytes (LAYOUT.md).

A segment is cut into chunks of one original size, the last one shorter. `fixed`: each stored chunk but the last has one
size, too. `variable` (compressed): the stored sizes are a packed list. Without compression and encryption both sides
are equal and the object is the segment, byte for byte.
"""

import base64
import binascii
import struct
from dataclasses import dataclass, replace
from itertools import accumulate

import zstandard

from tierd.base.errors import CorruptFile
from tierd.remote.ranges import ByteRange

DEFAULT_CHUNK_BYTES = 4 * 1024 * 1024
MAX_CHUNKS = 1 << 20
"""More than 2 GiB in chunks of 2 KiB; a bound on what a hostile manifest makes us unpack."""

_INT = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Chunk:
    """One chunk: bytes [original.start, original.stop) of the segment lie in *stored* of the object."""

    original: ByteRange
    stored: ByteRange


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedChunks:
    """Without compression. With a single chunk only the final size means anything."""

    original_chunk_bytes: int
    original_file_bytes: int
    transformed_chunk_bytes: int
    final_transformed_bytes: int

    @property
    def count(self) -> int:
        return -(-self.original_file_bytes // self.original_chunk_bytes)

    @property
    def stored_bytes(self) -> int:
        """Size of the `.log` object."""
        return max(0, self.count - 1) * self.transformed_chunk_bytes + self.final_transformed_bytes

    def chunk(self, number: int) -> Chunk:
        start, stored = number * self.original_chunk_bytes, number * self.transformed_chunk_bytes
        last = number == self.count - 1
        size = self.final_transformed_bytes if last else self.transformed_chunk_bytes
        stop = min(start + self.original_chunk_bytes, self.original_file_bytes)
        return Chunk(ByteRange(start, stop), ByteRange(stored, stored + size))


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableChunks:
    """With compression: a stored size per chunk."""

    original_chunk_bytes: int
    original_file_bytes: int
    stored_ends: tuple[int, ...]
    """Where each stored chunk ends; the running sum of the sizes."""

    @property
    def count(self) -> int:
        return len(self.stored_ends)

    @property
    def stored_bytes(self) -> int:
        return self.stored_ends[-1] if self.stored_ends else 0

    @property
    def sizes(self) -> tuple[int, ...]:
        starts = (0, *self.stored_ends)
        return tuple(stop - start for start, stop in zip(starts, self.stored_ends, strict=False))

    def chunk(self, number: int) -> Chunk:
        start = number * self.original_chunk_bytes
        stop = min(start + self.original_chunk_bytes, self.original_file_bytes)
        stored = self.stored_ends[number - 1] if number else 0
        return Chunk(ByteRange(start, stop), ByteRange(stored, self.stored_ends[number]))


ChunkIndex = FixedChunks | VariableChunks


def plain_chunks(file_bytes: int, chunk_bytes: int = DEFAULT_CHUNK_BYTES) -> FixedChunks:
    """The chunk index of a segment that is stored as it is."""
    whole = max(0, -(-file_bytes // chunk_bytes) - 1) * chunk_bytes
    return FixedChunks(
        original_chunk_bytes=chunk_bytes,
        original_file_bytes=file_bytes,
        transformed_chunk_bytes=chunk_bytes,
        final_transformed_bytes=file_bytes - whole,
    )


def sealed_chunks(file_bytes: int, chunk_bytes: int, more_bytes: int) -> FixedChunks:
    """The chunk index of a segment that is encrypted and not compressed: each chunk is larger by *more_bytes*."""
    plain = plain_chunks(file_bytes, chunk_bytes)
    return replace(
        plain,
        transformed_chunk_bytes=plain.transformed_chunk_bytes + more_bytes,
        final_transformed_bytes=plain.final_transformed_bytes + more_bytes,
    )


def variable_chunks(file_bytes: int, chunk_bytes: int, sizes: tuple[int, ...]) -> VariableChunks:
    return VariableChunks(
        original_chunk_bytes=chunk_bytes, original_file_bytes=file_bytes, stored_ends=tuple(accumulate(sizes))
    )


def chunks_over(index: ChunkIndex, start: int, stop: int) -> list[Chunk]:
    """The chunks that hold original bytes [start, stop), ascending; cut at the segment's end."""
    stop = min(stop, index.original_file_bytes)
    if start >= stop:
        return []
    first, last = start // index.original_chunk_bytes, (stop - 1) // index.original_chunk_bytes
    return [index.chunk(number) for number in range(first, last + 1)]


def encode_sizes(sizes: tuple[int, ...]) -> str:
    """Stored sizes as the manifest's `transformedChunks`: padded base64 of one zstd frame.

    Inside, big-endian: count i32; one value: that value i32; more: smallest of all but the last i32, width u8, all but
    the last as (value - smallest) in *width* bytes, the last i32.
    """
    packed = _INT.pack(len(sizes))
    if len(sizes) == 1:
        packed += _INT.pack(sizes[0])
    elif sizes:
        base = min(sizes[:-1])
        width = max(1, -(-max(size - base for size in sizes[:-1]).bit_length() // 8))
        packed += _INT.pack(base) + bytes([width])
        packed += b"".join((size - base).to_bytes(width, "big") for size in sizes[:-1])
        packed += _INT.pack(sizes[-1])
    return base64.b64encode(zstandard.ZstdCompressor().compress(packed)).decode("ascii")


def decode_sizes(text: str, where: str) -> tuple[int, ...]:
    """Inverse of `encode_sizes`. Raises CorruptFile; never unpacks more than MAX_CHUNKS sizes."""
    try:
        frame = base64.b64decode(text, validate=True)
        if not 0 <= zstandard.frame_content_size(frame) <= 4 * MAX_CHUNKS + 16:
            raise CorruptFile(where, 0, "transformedChunks: not a zstd frame of a sane, stated size")
        packed = zstandard.ZstdDecompressor().decompress(frame)
        sizes = _unpack_sizes(packed)
    except (binascii.Error, zstandard.ZstdError, struct.error, ValueError) as error:
        raise CorruptFile(where, 0, f"transformedChunks: {error}") from error
    if any(size < 0 for size in sizes):
        raise CorruptFile(where, 0, "transformedChunks: a chunk of negative size")
    return sizes


def _unpack_sizes(packed: bytes) -> tuple[int, ...]:
    """Raises struct.error or ValueError when the bytes are not exactly one list."""
    (count,) = _INT.unpack_from(packed, 0)
    if count < 2:
        if count < 0 or len(packed) != 4 + 4 * count:
            raise ValueError(f"{len(packed)} bytes for {count} sizes")
        return tuple(_INT.unpack_from(packed, 4)) if count else ()
    (base,) = _INT.unpack_from(packed, 4)
    width = packed[8] if len(packed) > 8 else 0
    if not 1 <= width <= 4 or len(packed) != 13 + (count - 1) * width:
        raise ValueError(f"{len(packed)} bytes for {count} sizes of width {width}")
    body = packed[9:-4]
    sizes = [base + int.from_bytes(body[at : at + width], "big") for at in range(0, len(body), width)]
    return (*sizes, _INT.unpack_from(packed, len(packed) - 4)[0])
