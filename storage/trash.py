"""Two-step removal: a file gets `.deleted` behind its name at once and leaves the disk after a while.

Readers keep their descriptors; whoever looked a name up just before still finds its bytes. `empty` may run in a thread.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.storage.names import Mark
from tierd.storage.segment import Segment


class Trash:
    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._waiting: deque[tuple[int, Path]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def throw(self, segments: Iterable[Segment], delay_ms: int) -> None:
        """Rename the files of *segments*, oldest first: after a crash those that are left have no hole among them
        (the journals of ext4, XFS and btrfs keep the order of renames within a folder). Raises OSError."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        for segment in segments:
            for path in segment.files():
                self._mark(path, due_ms)
            segment.handle.drop()

    def throw_files(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Rename *paths* in this order; those that are not there are passed over. Raises OSError."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            self._mark(path, due_ms)

    def _mark(self, path: Path, due_ms: int) -> None:
        marked = path.with_name(path.name + Mark.DELETED)
        try:
            self._disk.replace(path, marked)
        except FileNotFoundError:
            return  # not every segment has every file
        self._waiting.append((due_ms, marked))

    def empty(self, *, all_of_it: bool = False) -> int:
        """Unlink what has waited long enough; give the number of files."""
        now_ms, count = self._clock.monotonic_ms(), 0
        for _ in range(len(self._waiting)):
            due_ms, path = self._waiting.popleft()
            if due_ms > now_ms and not all_of_it:
                self._waiting.append((due_ms, path))
                continue
            try:
                self._disk.unlink(path)
            except FileNotFoundError:
                continue  # its partition was deleted meanwhile
            count += 1
        return count
