"""FrameBuffer: the same frames come out however the stream is cut, and memory follows what really came."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.wire.errors import FrameTooLarge
from tierd.wire.frame import FIRST_BYTES, STEADY_BYTES, FrameBuffer

LIMIT = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(buffer: FrameBuffer, stream: bytes, piece: int) -> list[bytes]:
    """Receive *stream* in pieces of at most *piece* bytes, taking every frame as soon as it is whole."""
    frames = []
    while stream:
        space = buffer.space()
        size = min(piece, len(space), len(stream))
        space[:size] = stream[:size]
        stream = stream[size:]
        buffer.received(size)
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


@given(st.lists(st.binary(max_size=3 * FIRST_BYTES), max_size=6), st.integers(1, 2 * FIRST_BYTES))
def test_any_cut_gives_the_same_frames(bodies: list[bytes], piece: int) -> None:
    assert feed(FrameBuffer(LIMIT), framed(*bodies), piece) == bodies


def test_byte_by_byte_and_with_a_tail() -> None:
    buffer = FrameBuffer(LIMIT)
    assert feed(buffer, framed(b"one", b"", b"three") + b"\0\0", 1) == [b"one", b"", b"three"]
    assert buffer.pending_bytes == 2


def test_a_big_frame_between_small_ones() -> None:
    big = bytes(range(256)) * 2000
    bodies = [b"a", big, b"b", big[:70_000], b"c"]
    assert feed(FrameBuffer(LIMIT), framed(*bodies), 1 << 20) == bodies


def test_frames_are_writable() -> None:
    buffer = FrameBuffer(LIMIT)
    space = buffer.space()
    space[:7] = framed(b"abc")
    buffer.received(7)
    frame = buffer.next_frame()
    assert frame is not None
    frame[0] = ord("x")
    assert bytes(frame) == b"xbc"


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1, int.from_bytes(b"GET ", "big")])
def test_a_length_out_of_bounds_is_refused_at_once(size: int) -> None:
    with pytest.raises(FrameTooLarge) as caught:
        feed(FrameBuffer(LIMIT), struct.pack(">i", size), 4)
    assert (caught.value.size_bytes, caught.value.limit_bytes) == (size, LIMIT)


def test_an_announced_length_reserves_nothing() -> None:
    buffer = FrameBuffer(100 << 20)
    feed(buffer, struct.pack(">i", 100 << 20) + bytes(100), 1 << 20)
    buffer.space()
    assert buffer.capacity_bytes <= 2 * FIRST_BYTES


def test_the_limit_itself_is_allowed() -> None:
    assert feed(FrameBuffer(LIMIT), framed(bytes(LIMIT)), 1 << 18) == [bytes(LIMIT)]


def test_memory_comes_back() -> None:
    buffer = FrameBuffer(LIMIT)
    feed(buffer, framed(bytes(LIMIT)), 1 << 20)
    assert buffer.capacity_bytes >= LIMIT
    feed(buffer, framed(*[b"small"] * 40), 9)
    buffer.space()
    assert buffer.capacity_bytes == STEADY_BYTES
    buffer.release_idle()
    assert buffer.capacity_bytes == 0


def test_idle_release_keeps_what_is_pending() -> None:
    buffer = FrameBuffer(LIMIT)
    feed(buffer, b"\0\0\0\2a", 5)
    buffer.release_idle()
    assert feed(buffer, b"b", 1) == [b"ab"]


def test_a_busy_connection_reads_bigger_pieces() -> None:
    buffer = FrameBuffer(LIMIT)
    feed(buffer, framed(*[bytes(100)] * 5000), 1 << 20)
    assert buffer.capacity_bytes == STEADY_BYTES
