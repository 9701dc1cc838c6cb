"""The codecs of Kafka: what a compressed batch holds behind its header (storage/FORMAT.md, "Compression").

Decompression gives pieces of bounded size, so that a small hostile batch cannot take the memory: who joins
them says how much is too much. All formats may consist of several frames (or members) in a row, as Kafka's
own readers allow; a cut or damaged one raises CorruptFile.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from io import BytesIO

import cramjam
import lz4.frame
import zstandard
from typing_extensions import Buffer

from tierd.base.errors import CorruptFile
from tierd.storage.zstdframes import frame_end

PIECE_BYTES = 256 * 1024
"""No piece is larger, save one snappy block, which knows only whole."""
LIMIT_BYTES = 256 * 1024 * 1024
"""Default for joining; Kafka's largest request is 100 MiB, uncompressed."""

_ZSTD_WINDOW_BYTES = 128 * 1024 * 1024  # the most that zstd's own tools and Kafka's reader accept
_GZIP_WBITS = 31
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_MOST = 64
"""A snappy copy of 3 bytes gives at most 64: a block that claims more than this ratio lies about its size."""


class Codec(IntEnum):
    """The codec bits of a batch; persisted, do not change."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class _Damage(Exception):
    """What is wrong, before it is known where."""


def pieces(codec: int, data: Buffer, where: str = "", position: int = 0) -> Iterator[Buffer]:
    """The plain bytes of *data*, piece by piece. Raises CorruptFile (*where*, *position*) when they do not decode."""
    if codec == Codec.NONE:
        yield data
        return
    decode = _DECODERS.get(codec)
    if decode is None:
        raise CorruptFile(where, position, f"unknown compression codec {codec}")
    try:
        yield from decode(memoryview(data))
    except (_Damage, zlib.error, zstandard.ZstdError, cramjam.DecompressionError, RuntimeError) as error:
        # lz4 raises a plain RuntimeError for broken frames
        raise CorruptFile(where, position, f"broken {Codec(codec).name.lower()} data: {error}") from error


def decompress(
    codec: int, data: Buffer, *, limit_bytes: int = LIMIT_BYTES, where: str = "", position: int = 0
) -> bytes:
    """All plain bytes of *data*. Raises CorruptFile when they do not decode or are more than *limit_bytes*."""
    if codec == Codec.NONE and memoryview(data).nbytes <= limit_bytes:
        return bytes(data)
    out = bytearray()
    for piece in pieces(codec, data, where, position):
        out += piece
        if len(out) > limit_bytes:
            raise CorruptFile(where, position, f"more than {limit_bytes} bytes when decompressed")
    return bytes(out)


def compress(codec: int, data: Buffer, *, level: int | None = None) -> bytes:
    """*data* as Kafka's Java producer frames it; *level* only for gzip, lz4 and zstd."""
    match Codec(codec):
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            packer = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=_GZIP_WBITS)
            return packer.compress(data) + packer.flush()
        case Codec.SNAPPY:
            return _xerial(memoryview(data))
        case Codec.LZ4:
            packed: bytes = lz4.frame.compress(
                data,
                compression_level=level or 0,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                store_size=False,
            )
            return packed
        case Codec.ZSTD:
            return zstandard.ZstdCompressor(level=3 if level is None else level).compress(memoryview(data))


def _gzip(data: memoryview) -> Iterator[Buffer]:
    rest: Buffer = data
    while memoryview(rest).nbytes:
        member = zlib.decompressobj(_GZIP_WBITS)
        yield member.decompress(rest, PIECE_BYTES)
        while not member.eof:
            piece = member.decompress(member.unconsumed_tail, PIECE_BYTES)
            if not piece and not member.unconsumed_tail and not member.eof:
                raise _Damage("it is cut short")
            yield piece
        rest = member.unused_data


def _snappy(data: memoryview) -> Iterator[Buffer]:
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield _snappy_block(data)
        return
    at = 0
    while at < data.nbytes:
        if data[at : at + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:  # streams may follow one another
            at += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if at + size > data.nbytes or not size:
            raise _Damage("it is cut short")
        yield _snappy_block(data[at : at + size])
        at += size
    if at != data.nbytes:
        raise _Damage("its stream header is cut short")


def _snappy_block(block: memoryview) -> Buffer:
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if claimed > _SNAPPY_MOST * block.nbytes:
        raise _Damage(f"a block of {block.nbytes} bytes claims to hold {claimed}")
    plain: Buffer = cramjam.snappy.decompress_raw(block)
    return plain


def _lz4(data: memoryview) -> Iterator[Buffer]:
    rest: Buffer | None = data
    while rest is not None and memoryview(rest).nbytes:
        frame = lz4.frame.LZ4FrameDecompressor()
        yield frame.decompress(rest, max_length=PIECE_BYTES)
        while not frame.eof:
            if frame.needs_input:
                raise _Damage("it is cut short")
            yield frame.decompress(b"", max_length=PIECE_BYTES)
        rest = frame.unused_data


def _zstd(data: memoryview) -> Iterator[Buffer]:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    at = 0
    while at < data.nbytes:
        # The library ends a cut frame without a word, so the frame's end is found first.
        stop = frame_end(data, at)
        if stop is None:
            raise _Damage("it is cut short or no zstd frame")
        with unpacker.stream_reader(data[at:stop], read_across_frames=False) as reader:
            while piece := reader.read(PIECE_BYTES):
                yield piece
        at = stop


def _xerial(data: memoryview) -> bytes:
    out = BytesIO()
    out.write(_XERIAL_HEADER)
    for start in range(0, data.nbytes, _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out.write(len(block).to_bytes(4, "big"))
        out.write(block)
    return out.getvalue()


_DECODERS: dict[int, Callable[[memoryview], Iterator[Buffer]]] = {
    Codec.GZIP: _gzip,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: _zstd,
}
