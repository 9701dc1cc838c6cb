"""Which partition of one of the broker's own topics holds a group or a transactional id."""


def partition_of(key: str, partitions: int) -> int:
    """The partition that holds *key*: Java's String.hashCode, sign dropped, modulo *partitions*."""
    value = 0
    raw = key.encode("utf-16-be", "surrogatepass")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    # The smallest number has no positive counterpart in 32 bits; Kafka takes 0 for it.
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions
