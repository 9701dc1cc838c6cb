"""The leader epochs of a partition and where each begins, kept in memory and in `leader-epoch-checkpoint`.

A pure list with its file beside it: every change that must last is published before the call returns.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import CorruptFile
from tierd.storage.epochs import EpochEntry, encode_epochs, parse_epochs
from tierd.storage.errors import EpochRefused
from tierd.storage.names import LEADER_EPOCH_CHECKPOINT


class Lineage:
    """Epochs strictly ascending, starts ascending. Loop thread only, but for what `saving` gives."""

    def __init__(self, directory: Path, disk: Disk, entries: list[EpochEntry]) -> None:
        self._path = directory / LEADER_EPOCH_CHECKPOINT
        self._disk = disk
        self._entries = entries
        self._lock = threading.Lock()
        self._number = self._written = 0

    @classmethod
    def load(cls, directory: Path, disk: Disk) -> "Lineage | None":
        """None when the file is missing or does not parse: it is rebuilt from the batches then."""
        path = directory / LEADER_EPOCH_CHECKPOINT
        try:
            return cls(directory, disk, list(parse_epochs(path.read_bytes(), str(path))))
        except (FileNotFoundError, CorruptFile):
            return None

    def rehome(self, directory: Path, disk: Disk) -> None:
        """The same file lies in *directory* now."""
        self._path, self._disk = directory / LEADER_EPOCH_CHECKPOINT, disk

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def enter(self, epoch: int, start: int) -> None:
        """Begin *epoch* at *start*, durable when this returns; entries at or beyond *start* had no records and go.

        Entering the latest epoch again is fine. Raises EpochRefused for an older one.
        """
        latest = self.latest
        if latest is not None and epoch < latest:
            raise EpochRefused(f"{self._path}: epoch {epoch} is older than {latest}, which is in the log already")
        if epoch == latest:
            return
        self.note(epoch, start)
        self.save()

    def note(self, epoch: int, start: int) -> None:
        """Like `enter`, but only in memory: for batches found in the log. An epoch that is known changes nothing."""
        if self._entries and epoch <= self._entries[-1].epoch:
            return
        while self._entries and self._entries[-1].start_offset >= start:
            self._entries.pop()
        self._entries.append(EpochEntry(epoch, start))

    def cut_end(self, end: int) -> bool:
        """Drop epochs that begin beyond *end* (the log was cut there); say whether that changed anything."""
        kept = [entry for entry in self._entries if entry.start_offset <= end]
        return self._become(kept)

    def cut_start(self, start: int) -> bool:
        """Let the lineage begin at *start*: the epoch in force there keeps its number and gets it as its start."""
        at = bisect_right([entry.start_offset for entry in self._entries], start) - 1
        if at < 0:
            return False
        kept = [EpochEntry(self._entries[at].epoch, start), *self._entries[at + 1 :]]
        return self._become(kept)

    def precede(self, older: Sequence[EpochEntry]) -> bool:
        """Put those of *older* in front that began before the first one here; say whether that changed anything."""
        if not self._entries:
            return self._become(list(older))
        first, *others = self._entries
        front = [entry for entry in older if entry.start_offset < first.start_offset]
        if not front or front[-1].epoch > first.epoch:
            return False  # nothing new, or not of this log's history
        return self._become([*front, *(others if front[-1].epoch == first.epoch else self._entries)])

    def replace(self, entries: list[EpochEntry]) -> None:
        self._entries = entries

    def _become(self, entries: list[EpochEntry]) -> bool:
        changed = entries != self._entries
        self._entries = entries
        return changed

    def save(self) -> None:
        """Durable when this returns. Raises DiskFull, OSError."""
        self.saving()()

    def saving(self) -> Callable[[], None]:
        """What `save` does, to be called in any thread: newer entries never give way to these."""
        self._number += 1
        number, disk, path, raw = self._number, self._disk, self._path, encode_epochs(self._entries)

        def write() -> None:
            with self._lock:
                if number > self._written:
                    publish(disk, path, raw)
                    self._written = number

        return write

    def epoch_at(self, offset: int) -> int | None:
        """The epoch that holds *offset*; None below the first one."""
        at = bisect_right(self._entries, offset, key=_start)
        return self._entries[at - 1].epoch if at else None

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int] | None:
        """(largest epoch <= *epoch* that is here, offset where it ends); None when all are larger."""
        at = bisect_right(self._entries, epoch, key=_epoch)
        if not at:
            return None
        end = self._entries[at].start_offset if at < len(self._entries) else log_end
        return self._entries[at - 1].epoch, end


def _start(entry: EpochEntry) -> int:
    return entry.start_offset


def _epoch(entry: EpochEntry) -> int:
    return entry.epoch
