"""Bodies of PUTs: every byte in order, large pieces, no copies, and from the start again for another try."""

import io

import pytest
from botocore.utils import determine_content_length

from tierd.remote.s3_body import PIECE_BYTES, SMALL_BYTES, S3Body, body_of

DATA = bytes(range(256)) * (PIECE_BYTES // 128 + 3)


def pieces(body: S3Body) -> list[memoryview | bytes]:
    return list(iter(lambda: body.read(16_384), b""))


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
def test_large_pieces_of_the_same_memory(make: type) -> None:
    data = make(DATA)
    got = pieces(S3Body(data))
    assert b"".join(got) == DATA
    assert [len(piece) for piece in got[:-1]] == [PIECE_BYTES] * (len(got) - 1)
    assert all(isinstance(piece, memoryview) for piece in got)


def test_botocore_finds_its_length_and_rewinds_it() -> None:
    body = S3Body(memoryview(DATA))
    assert determine_content_length(body) == len(DATA)
    assert body.tell() == 0
    body.read()
    assert determine_content_length(body) == len(DATA) - PIECE_BYTES
    body.seek(0)
    assert b"".join(pieces(body)) == DATA
    assert body.read() == b""
    assert body.seek(-4, io.SEEK_END) == len(DATA) - 4
    assert body.seek(1, io.SEEK_CUR) == len(DATA) - 3
    assert body.read() == DATA[-3:]


def test_buffers_of_other_items_are_bytes() -> None:
    words = memoryview(DATA).cast("I")
    assert b"".join(pieces(S3Body(words))) == DATA


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES])
def test_small_ones_need_no_round_trip_before_them(size: int) -> None:
    body = body_of(memoryview(DATA)[:size])
    assert isinstance(body, bytearray)  # whatever botocore can `read` waits for "100 Continue"
    assert body == DATA[:size]
    assert isinstance(body_of(memoryview(DATA)[: SMALL_BYTES + 1]), S3Body)
