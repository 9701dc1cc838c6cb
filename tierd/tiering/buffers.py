"""Memory for the parts of segments on their way to the bucket, used again and again.

Fresh memory for each part would cost more CPU (the kernel clears its pages) than reading the part does.
"""

import mmap
import threading


class PartBuffers:
    """Any thread. Memory of *part_bytes* each; no more of them exist than were taken at one time."""

    def __init__(self, part_bytes: int) -> None:
        self.part_bytes = part_bytes
        self._free: list[memoryview] = []
        self._lock = threading.Lock()

    def take(self) -> memoryview:
        """A buffer whose content is whatever it last held."""
        with self._lock:
            if self._free:
                return self._free.pop()
        return memoryview(mmap.mmap(-1, self.part_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give(self, *buffers: memoryview) -> None:
        """Back from `take`; nobody reads or writes them any more."""
        with self._lock:
            self._free.extend(buffers)

    def trim(self) -> None:
        """Let the free ones go: nothing is copied now."""
        with self._lock:
            self._free.clear()
