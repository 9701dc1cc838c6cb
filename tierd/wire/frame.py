"""Cut a byte stream into frames (i32 length, then that many bytes) with one buffer and no copy of a whole frame.

Sans I/O: the connection receives into `space()`, says how much came, and takes frames until there are none.
Memory is bounded by what the peer really sent: a length word alone reserves nothing, the buffer at most doubles. Who
must share memory with others looks at `wanted_bytes` before `space()`, and does not call it when there is no room.
"""

import mmap
from typing import Final

from tierd.wire.errors import FrameTooLarge

LENGTH_BYTES: Final = 4
FIRST_BYTES: Final = 4 * 1024
"""Capacity of a new or idle connection: thousands of idle ones must cost little."""
STEADY_BYTES: Final = 256 * 1024
"""A connection that fills its buffer grows to this, whatever the size of its frames: fewer receive calls, and one
send for the answers of several batches of 64 KiB. Measured there: a fifth less CPU than with 64 KiB of buffer."""
_CALM_FRAMES: Final = 32
"""After so many frames that fit in STEADY_BYTES a larger buffer is given back."""


class FrameBuffer:
    """The receive side of one connection. Not thread-safe."""

    def __init__(self, max_frame_bytes: int) -> None:
        self._max = max_frame_bytes
        self._view = memoryview(b"")
        self._pages: mmap.mmap | None = None  # what a view above STEADY_BYTES looks at
        self._start = 0  # first byte that no frame has taken
        self._stop = 0  # after the last byte received
        self.wanted_bytes = FIRST_BYTES
        """Capacity that the next `space()` will have, if that is more than it has now."""
        self.needed_bytes = 0
        """Size, with its length word, of the frame that does not fit into the capacity; 0 when there is none."""
        self._calm = 0

    @property
    def capacity_bytes(self) -> int:
        """Memory held now; what a limit on buffered bytes counts."""
        return len(self._view)

    @property
    def pending_bytes(self) -> int:
        """Bytes received that no frame has taken."""
        return self._stop - self._start

    @property
    def begun(self) -> bool:
        """Whether a frame is being received and none was taken since the last `space()`."""
        return self._start == 0 < self._stop

    def space(self) -> memoryview:
        """Room to receive into, never empty. Frames given out before are no longer valid."""
        if self._start == self._stop:
            self._start = self._stop = 0
            if self._calm >= _CALM_FRAMES and len(self._view) > STEADY_BYTES:
                self._calm = 0
                self.wanted_bytes = STEADY_BYTES
                self._drop()
        if len(self._view) < self.wanted_bytes or self._stop == len(self._view):
            self._make_room()
        return self._view[self._stop :]

    def received(self, size_bytes: int) -> None:
        """*size_bytes* came into the last `space()`."""
        self._stop += size_bytes
        if self._stop == len(self._view) and self.wanted_bytes < STEADY_BYTES:
            self.wanted_bytes = min(2 * len(self._view), STEADY_BYTES)

    def allow(self, max_frame_bytes: int) -> None:
        """From here on frames may be as large as this."""
        self._max = max_frame_bytes

    def stay(self) -> None:
        """Do not grow for speed alone."""
        self.wanted_bytes = len(self._view)

    def take_whole(self) -> None:
        """Let the next `space()` hold the whole frame that is being received."""
        self.wanted_bytes = max(self.needed_bytes, len(self._view))

    def next_frame(self) -> memoryview | None:
        """A writable view of the next whole frame, without its length word, or None when more must be received.

        Valid until the next `space()`. Raises FrameTooLarge as soon as the length word is there.
        """
        body = self._start + LENGTH_BYTES
        if body > self._stop:
            return None
        size = int.from_bytes(self._view[self._start : body], "big", signed=True)
        if not 0 <= size <= self._max:
            raise FrameTooLarge(size, self._max)
        stop = body + size
        if stop > self._stop:
            self._ask(LENGTH_BYTES + size)
            return None
        self._start = stop
        self._calm = self._calm + 1 if size < STEADY_BYTES else 0
        return self._view[body:stop]

    def release_idle(self) -> None:
        """Give all memory back when nothing is pending; frames given out before live on by themselves."""
        if self._start == self._stop:
            self._start = self._stop = self._calm = 0
            self.wanted_bytes = FIRST_BYTES
            self.needed_bytes = 0
            self._drop()

    def discard(self) -> None:
        """Forget what is pending and give all memory back; frames given out before live on by themselves."""
        self._start = self._stop
        self.release_idle()

    def shrink(self) -> None:
        """Keep only what is pending; frames given out before live on by themselves."""
        self.release_idle()
        if self._start < self._stop:
            self._move(max(self.pending_bytes, FIRST_BYTES))
            self.wanted_bytes = len(self._view)
            self._ask(self._announced())

    def _announced(self) -> int:
        """Size, with its length word, of the frame that is pending; 0 while the word is not whole."""
        body = self._start + LENGTH_BYTES
        return 0 if body > self._stop else LENGTH_BYTES + int.from_bytes(self._view[self._start : body], "big")

    def _ask(self, needed: int) -> None:
        """Double at most: the buffer follows what has come, not what was announced."""
        if needed > len(self._view):
            self.needed_bytes = needed
            self.wanted_bytes = min(needed, 2 * len(self._view))

    def _make_room(self) -> None:
        length = self._stop - self._start
        if length < len(self._view) and len(self._view) >= self.wanted_bytes:
            # Regions may overlap; a memoryview assignment of overlapping bytes moves them correctly.
            self._view[:length] = self._view[self._start : self._stop]
            self._start, self._stop = 0, length
            return
        size = max(self.wanted_bytes, length + FIRST_BYTES)
        if self._pages is None or self._start or not self._stretch(size):
            self._move(size)

    def _move(self, size: int) -> None:
        pending = self._view[self._start : self._stop]
        # Above STEADY_BYTES pages come from the kernel: empty ones take no memory, and they grow without a copy.
        pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) if size > STEADY_BYTES else None
        grown = memoryview(bytearray(size) if pages is None else pages)
        grown[: len(pending)] = pending
        self._view, self._pages = grown, pages
        self._start, self._stop = 0, len(pending)
        self.needed_bytes = 0

    def _stretch(self, size: int) -> bool:
        """Grow in place; False when a frame given out before is still looked at."""
        assert self._pages is not None
        self._view.release()
        try:
            self._pages.resize(size)
        except BufferError:
            return False
        finally:
            self._view = memoryview(self._pages)
        self.needed_bytes = 0
        return True

    def _drop(self) -> None:
        self._view = memoryview(b"")
        self._pages = None
