"""CRC-32C: of bytes, of concatenated parts, and as S3's header writes it.

The CRC of a joined object follows from those of its parts and their lengths (the CRC is linear over GF(2)):
crc(a + b) = crc(a) * x^(8*len(b)) mod P, xor crc(b). Costs about 0.1 ms, whatever the lengths.
"""

import base64
import binascii
from collections.abc import Iterable

import crc32c as _native
from typing_extensions import Buffer

POLYNOMIAL = 0x82F63B78
"""Castagnoli, bits reversed: the lowest power of x is the highest bit."""
_ONE = 1 << 31
CRC_BYTES = 4


def crc32c(data: Buffer, start: int = 0) -> int:
    """CRC-32C of *data*, going on from *start* (the CRC of the bytes before)."""
    return int(_native.crc32c(data, start))


def combine(crc_a: int, crc_b: int, length_b: int) -> int:
    """CRC-32C of a + b from that of a, that of b and b's length in bytes."""
    return _times(_x_to_the(8 * length_b), crc_a) ^ crc_b


def combine_all(parts: Iterable[tuple[int, int]]) -> int:
    """CRC-32C of the concatenation of (crc, length) parts in order; 0 when there are none."""
    whole = 0
    for crc, length in parts:
        whole = combine(whole, crc, length)
    return whole


def to_header(crc: int) -> str:
    """As `x-amz-checksum-crc32c` carries it: base64 of four bytes, big-endian."""
    return base64.b64encode(crc.to_bytes(CRC_BYTES, "big")).decode("ascii")


def from_header(text: str | None) -> int | None:
    """The CRC of the whole object; None when absent or composite (`<base64>-<parts>`), which is of no use."""
    if not text or "-" in text:
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return int.from_bytes(raw, "big") if len(raw) == CRC_BYTES else None


def _times(a: int, b: int) -> int:
    """Product of two polynomials modulo P, both in reversed bit order."""
    product = 0
    mask = _ONE
    while mask:
        if a & mask:
            product ^= b
        b = (b >> 1) ^ POLYNOMIAL if b & 1 else b >> 1
        mask >>= 1
    return product


def _squares() -> list[int]:
    powers = [_ONE >> 1]  # x^1
    for _ in range(63):
        powers.append(_times(powers[-1], powers[-1]))
    return powers


_X_TO_2_TO_THE = _squares()


def _x_to_the(exponent: int) -> int:
    result = _ONE  # x^0
    bit = 0
    while exponent:
        if exponent & 1:
            result = _times(_X_TO_2_TO_THE[bit], result)
        exponent >>= 1
        bit += 1
    return result
