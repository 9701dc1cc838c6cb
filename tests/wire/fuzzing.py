"""Hostile requests, made of recorded ones, and the parser under them: a value or BadFrame, nothing else.

`python -m wire.fuzzing SEED COUNT` (with tests/ on the path) decodes COUNT of them and prints what became of them.
"""

import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tierd.wire.api import ApiKey, is_served
from tierd.wire.control import decode_control
from tierd.wire.errors import BadFrame
from tierd.wire.fetch import decode_fetch
from tierd.wire.header import parse_request_header
from tierd.wire.produce import decode_produce
from wire.frames import recorded

LARGEST: Final = 4096
"""Recorded requests are cut to this, so that mutations hit fields rather than records."""
NASTY: Final = [
    b"\0",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff\x0f",
]


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of the requests; the slowest took *longest_s* of the processor, memory grew by *grown_bytes*."""

    decoded: int
    refused: int
    longest_s: float
    grown_bytes: int


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


def hostile(seeds: Sequence[bytes], dice: random.Random) -> bytes:
    """One request: mostly a mutated one; else whole, cut, two merged, one within another, or noise behind a header."""
    seed = dice.choice(seeds)
    match dice.randrange(10):
        case 0:
            return seed
        case 1:
            other = dice.choice(seeds)
            return seed[: dice.randint(0, len(seed))] + other[dice.randint(0, len(other)) :]
        case 2:
            return seed[: dice.randint(0, len(seed))]
        case 3:
            at = dice.randint(8, len(seed))
            return seed[:at] + len(seed).to_bytes(4, "big") + seed + seed[at:]
        case 4:
            return seed[: dice.randint(4, min(20, len(seed)))] + dice.randbytes(dice.randint(0, 60))
        case _:
            return mutate(seed, dice)


def seeds() -> list[bytes]:
    """One request of each kind and version, so that none is tried more often than others."""
    by_version = {(frame.api_key, frame.version): frame.raw[:LARGEST] for frame in recorded("request")}
    return list(by_version.values())


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


def fuzz(seed: int, count: int) -> Tally:
    dice = random.Random(seed)
    known = seeds()
    refused, longest_s = 0, 0.0
    before = _peak_bytes()
    now = time.process_time()
    for _ in range(count):
        frame = hostile(known, dice)
        begun = now
        try:
            decode(memoryview(frame))
        except BadFrame:
            refused += 1
        now = time.process_time()
        longest_s = max(longest_s, now - begun)
    return Tally(count - refused, refused, longest_s, _peak_bytes() - before)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def side_by_side(seeds: Sequence[int], count: int) -> list[Tally]:
    """As many processes as seeds, each with *count* requests. A process that fails says why on standard error."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "wire.fuzzing"]
    env = {"PYTHONPATH": f"{root / 'tests'}:{root}"}
    running = [subprocess.Popen([*command, str(s), str(count)], stdout=subprocess.PIPE, env=env) for s in seeds]
    said = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * len(running), seeds
    return [Tally(**json.loads(line)) for line in said]


if __name__ == "__main__":
    print(json.dumps(asdict(fuzz(int(sys.argv[1]), int(sys.argv[2])))))
