"""Zigzag varints as in Kafka's records: little-endian groups of 7 bits, small magnitudes short."""

from collections.abc import Sequence

INT_BYTES = 5
LONG_BYTES = 10


class BadVarint(ValueError):
    """More groups than the type has room for."""


def decode(buf: Sequence[int], position: int, most_bytes: int = LONG_BYTES) -> tuple[int, int]:
    """The value at *position* and the position after it.

    Raises IndexError when *buf* ends before the value does, BadVarint when it is longer than *most_bytes*.
    """
    byte = buf[position]
    if byte < 0x80:  # nearly all lengths and deltas
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    shift = 7
    while True:
        position += 1
        if shift >= 7 * most_bytes:
            raise BadVarint(f"a varint of more than {most_bytes} bytes")
        byte = buf[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7


def encode(value: int, out: bytearray) -> None:
    """Append *value* (64 bits at most) to *out*."""
    rest = (value << 1) ^ (value >> 63)
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
