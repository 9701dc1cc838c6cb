"""What other producers send decodes; what lies about its size costs nothing."""

import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard

from tierd.base.errors import CorruptFile
from tierd.storage.compression import PIECE_BYTES, Codec, compress, decompress, pieces

PLAIN = b"".join(b"%d:some words " % i for i in range(50_000))
COMPRESSED = [codec for codec in Codec if codec is not Codec.NONE]
MIB = 1024 * 1024


@pytest.mark.parametrize("codec", COMPRESSED)
def test_streams_may_follow_one_another(codec: Codec) -> None:
    assert decompress(codec, compress(codec, PLAIN) + compress(codec, b"end")) == PLAIN + b"end"


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN))),
        (Codec.LZ4, lz4.frame.compress(PLAIN, content_checksum=True, block_linked=True, store_size=True)),
        (Codec.LZ4, lz4.frame.compress(PLAIN, compression_level=12, block_checksum=True)),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True, write_content_size=False).compress(PLAIN)),
        (Codec.ZSTD, zstandard.ZstdCompressor().multi_compress_to_buffer([PLAIN])[0].tobytes()),
        (Codec.ZSTD, b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + compress(Codec.ZSTD, PLAIN)),
        (Codec.ZSTD, compress(Codec.ZSTD, PLAIN, level=19)),
        (Codec.GZIP, compress(Codec.GZIP, PLAIN, level=9)),
    ],
)
def test_other_ways_to_write_them(codec: Codec, data: bytes) -> None:
    assert decompress(codec, data) == PLAIN


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_refused_before_it_goes_off(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFile, match="more than 1048576 bytes when decompressed"):
            decompress(codec, bomb, limit_bytes=MIB)
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", COMPRESSED)
def test_pieces_are_small(codec: Codec) -> None:
    assert max(memoryview(piece).nbytes for piece in pieces(codec, compress(codec, bytes(4 * MIB)))) <= PIECE_BYTES


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_stream_is_no_end(codec: Codec) -> None:
    data = compress(codec, PLAIN)
    empty_stream = 16 if codec is Codec.SNAPPY else 0
    for size in {*range(1, 40), len(data) // 2, len(data) - 1} - {empty_stream}:
        with pytest.raises(CorruptFile, match=f"here: byte 9: broken {codec.name.lower()} data"):
            decompress(codec, data[:size], where="here", position=9)


def test_a_snappy_block_cannot_claim_what_it_does_not_hold() -> None:
    with pytest.raises(CorruptFile, match="claims to hold 2147483647"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x07\x00\x00\x00")


def test_unknown_codecs() -> None:
    with pytest.raises(CorruptFile, match="unknown compression codec 5"):
        decompress(5, b"x")
