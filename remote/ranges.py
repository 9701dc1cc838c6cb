"""Half-open byte ranges; turned inclusive only where HTTP is written."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, stop) of an object."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def http_range(start: int | None, stop: int | None) -> str | None:
    """The `Range` header of bytes [start, stop); None asks for the whole object. HTTP cannot say an empty range."""
    if start is None and stop is None:
        return None
    first = start or 0
    if stop is None:
        return f"bytes={first}-"
    if stop <= first:
        raise ValueError(f"an empty byte range: [{first}, {stop})")
    return f"bytes={first}-{stop - 1}"
