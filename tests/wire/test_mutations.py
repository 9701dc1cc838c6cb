"""Mutated recorded requests: a value or BadFrame, nothing else, and none takes long."""

import random
import time

import pytest

from tierd.wire.api import ApiKey, is_served
from tierd.wire.control import decode_control
from tierd.wire.errors import BadFrame
from tierd.wire.fetch import decode_fetch
from tierd.wire.header import parse_request_header
from tierd.wire.produce import decode_produce
from wire.frames import recorded

IN_CI, IN_FULL = 40_000, 1_000_000
LONGEST_S = 1.0
"""Of this thread's own work, on however busy a machine: nothing that a small frame announces may be worked through."""
NASTY = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
]


def mutate(raw: bytes, dice: random.Random) -> bytes:
    frame = bytearray(raw)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(frame) + 1)
        match dice.randrange(4):
            case 0:
                frame[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                piece = dice.choice(NASTY)
                frame[at : at + len(piece)] = piece
            case 2:
                del frame[at : at + dice.randint(1, 9)]
            case _:
                frame[at:at] = frame[: dice.randint(1, 30)]
        if not frame:
            frame = bytearray(raw)
    return bytes(frame)


def decode(frame: memoryview) -> object:
    """What the broker does with a frame."""
    header, position = parse_request_header(frame)
    if not is_served(header.api_key, header.version):
        return None
    if header.api_key == ApiKey.PRODUCE:
        return decode_produce(frame, position, header.version)
    if header.api_key == ApiKey.FETCH:
        return decode_fetch(frame, position, header.version)
    return decode_control(header.api_key, header.version, frame[position:])


def fuzz(seed: int, count: int) -> None:
    dice = random.Random(seed)
    by_version = {(frame.api_key, frame.version): frame.raw[:4096] for frame in recorded("request")}
    frames = list(by_version.values())
    decoded = refused = 0
    for _ in range(count):
        frame = mutate(dice.choice(frames), dice)
        begun_s = time.thread_time()
        try:
            decode(memoryview(frame))
        except BadFrame:
            refused += 1
        else:
            decoded += 1
        assert time.thread_time() - begun_s < LONGEST_S, frame.hex()
    # Both must happen often, or the mutations are too wild or too tame to say anything.
    assert min(decoded, refused) > count // 20


def test_mutated_requests_decode_or_are_refused() -> None:
    fuzz(20261130, IN_CI)


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_many_more_of_them() -> None:
    fuzz(random.SystemRandom().randrange(2**32), IN_FULL)
