"""Where a zstd frame ends (RFC 8878, section 3): only its block headers are read, nothing is decoded."""

_MAGIC = 0xFD2FB528
_SKIPPABLE = 0x184D2A50
_SKIPPABLE_MASK = 0xFFFFFFF0
_DICTIONARY_ID_BYTES = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES = (0, 2, 4, 8)
_BLOCK_HEADER_BYTES = 3
_RLE_BLOCK = 1


def frame_end(data: memoryview, start: int) -> int | None:
    """Position after the frame that begins at *start*; None when it is cut short or is no frame."""
    magic = int.from_bytes(data[start : start + 4], "little")
    if magic & _SKIPPABLE_MASK == _SKIPPABLE:
        return _within(data, start + 8 + int.from_bytes(data[start + 4 : start + 8], "little"))
    if magic != _MAGIC or start + 5 > data.nbytes:
        return None
    descriptor = data[start + 4]
    at: int | None = start + 5 + _header_rest(descriptor)
    last = False
    while not last:
        if at is None or at + _BLOCK_HEADER_BYTES > data.nbytes:
            return None
        block = int.from_bytes(data[at : at + _BLOCK_HEADER_BYTES], "little")
        last = bool(block & 1)
        size = 1 if (block >> 1) & 3 == _RLE_BLOCK else block >> 3
        at = _within(data, at + _BLOCK_HEADER_BYTES + size)
    checksum = 4 if descriptor & 0x04 else 0
    return None if at is None else _within(data, at + checksum)


def _header_rest(descriptor: int) -> int:
    """Bytes of the frame header behind its descriptor: window, dictionary id, content size."""
    single_segment = bool(descriptor & 0x20)
    content_size = _CONTENT_SIZE_BYTES[descriptor >> 6]
    if descriptor >> 6 == 0 and single_segment:
        content_size = 1
    return (not single_segment) + _DICTIONARY_ID_BYTES[descriptor & 3] + content_size


def _within(data: memoryview, position: int) -> int | None:
    return position if position <= data.nbytes else None
