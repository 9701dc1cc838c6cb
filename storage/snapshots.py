"""The producer snapshots of one partition: which are there, the newest that is good, writing and sweeping them."""

from collections.abc import Iterable
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.names import snapshot_file
from tierd.storage.producers import Producers
from tierd.storage.setaside import SetAside
from tierd.storage.snapshot import encode_snapshot, parse_snapshot


class Snapshots:
    """`<offset>.snapshot` holds the producers of all batches below that offset. Loop thread only."""

    def __init__(self, directory: Path, disk: Disk, offsets: Iterable[int]) -> None:
        self._directory = directory
        self._disk = disk
        self._offsets = set(offsets)

    def rehome(self, directory: Path, disk: Disk) -> None:
        """The same files lie in *directory* now."""
        self._directory, self._disk = directory, disk

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def path(self, offset: int) -> Path:
        return self._directory / snapshot_file(offset)

    def newest(
        self, limit: int, seen_ms: int, name: TopicPartition, set_aside: SetAside
    ) -> tuple[int, Producers] | None:
        """The newest good one at or below *limit*, as (its offset, its state). Broken ones are set aside on the way."""
        for offset in sorted((o for o in self._offsets if o <= limit), reverse=True):
            path = self.path(offset)
            try:
                return offset, Producers.from_entries(parse_snapshot(path.read_bytes(), str(path)), seen_ms)
            except CorruptFile:
                set_aside.move(name, path)
                self._offsets.discard(offset)
        return None

    def at(self, offset: int, seen_ms: int) -> Producers | None:
        """What the one at exactly *offset* holds; None when it is missing or broken."""
        if offset not in self._offsets:
            return None
        path = self.path(offset)
        try:
            return Producers.from_entries(parse_snapshot(path.read_bytes(), str(path)), seen_ms)
        except CorruptFile:
            return None

    def write(self, offset: int, producers: Producers) -> None:
        """Write or overwrite one. Not fsynced: a torn one fails its CRC, and the flush of the segment fsyncs it."""
        self._disk.write_new(self.path(offset), encode_snapshot(producers.entries()))
        self._offsets.add(offset)

    def forget(self, offset: int) -> None:
        """Its file has been renamed."""
        self._offsets.discard(offset)

    def sweep(self, keep: set[int]) -> None:
        """Remove all but those in *keep*."""
        for offset in [o for o in self._offsets if o not in keep]:
            self._disk.unlink(self.path(offset))
            self._offsets.discard(offset)
