"""Partition directories on their way out: renamed first, emptied and removed when their time has come."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import DiskFull
from tierd.base.ids import TopicPartition
from tierd.storage import names


@dataclass(frozen=True, slots=True)
class Leaving:
    """A directory that gets a `-delete` name: of which partition, its name now, and how long its files stay."""

    partition: TopicPartition
    folder: str
    delay_ms: int


class Doomed:
    """Of one data directory. Any thread."""

    def __init__(self, path: Path, disk: Disk, clock: Clock) -> None:
        self._path = path
        self._disk = disk
        self._clock = clock
        self._waiting: deque[tuple[int, Path]] = deque()

    def found(self, directory: Path) -> None:
        """One that an earlier run has renamed."""
        self._waiting.append((0, directory))

    def doom(self, leaving: Leaving) -> None:
        """Rename the directory, durable when this returns. Raises DiskFull, OSError."""
        self._rename(leaving)
        self._disk.fsync_dir(self._path)

    def doom_all(self, leaving: Iterable[Leaving]) -> dict[TopicPartition, DiskFull | OSError]:
        """The same for many, with one fsync; those that are not renamed, or not known to be, and why."""
        failed: dict[TopicPartition, DiskFull | OSError] = {}
        renamed = []
        for one in leaving:
            try:
                self._rename(one)
            except (DiskFull, OSError) as error:
                failed[one.partition] = error
            else:
                renamed.append(one.partition)
        try:
            self._disk.fsync_dir(self._path)
        except (DiskFull, OSError) as error:
            failed |= dict.fromkeys(renamed, error)
        return failed

    def _rename(self, leaving: Leaving) -> None:
        target = self._path / names.marked_directory(leaving.partition, uuid4(), names.DirectoryMark.DELETE)
        self._disk.replace(self._path / leaving.folder, target)
        self._waiting.append((self._clock.monotonic_ms() + leaving.delay_ms, target))

    def purge(self) -> int:
        """Remove those whose time has come; the number of files. One call at a time."""
        count = 0
        now_ms = self._clock.monotonic_ms()
        for _ in range(len(self._waiting)):
            due_ms, directory = self._waiting.popleft()
            if due_ms > now_ms:
                self._waiting.append((due_ms, directory))
            else:
                count += self._remove(directory)
        return count

    def _remove(self, directory: Path) -> int:
        """With folders that are none of ours: to unlink one is an error, and would take all of the disk offline."""
        count = 0
        for path in list(directory.iterdir()):
            if path.is_dir() and not path.is_symlink():
                count += self._remove(path)
            else:
                self._disk.unlink(path)
                count += 1
        self._disk.rmdir(directory)
        return count
