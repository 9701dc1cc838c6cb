"""The log starts that a data directory's checkpoint lists: durable there before anything below them goes.

Loop thread only, but for `StartMove.run`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tierd.base.ids import TopicPartition
from tierd.storage.names import LOG_START_CHECKPOINT
from tierd.storage.offset_files import OffsetFiles, PreparedFile
from tierd.storage.readable import ReadableLog


class LogStarts:
    """Of one data directory."""

    def __init__(self, files: OffsetFiles, logs: Mapping[TopicPartition, ReadableLog]) -> None:
        self._files = files
        self._logs = logs
        self._durable: dict[TopicPartition, int] = {}
        self._moving: dict[TopicPartition, int] = {}
        """On their way to the disk: what is written meanwhile must not fall behind them."""
        self.kept: Mapping[TopicPartition, int] = {}
        """Rows of partitions that are not opened."""

    def rows(self) -> dict[TopicPartition, int]:
        """Log starts that must be listed: those of tiered partitions, those inside a segment, and those that move."""
        rows = {tp: found.log_start for tp, found in self._logs.items() if found.start_must_be_kept}
        for tp, start in self._moving.items():
            rows[tp] = max(start, rows.get(tp, start))
        return rows

    def know(self, rows: Mapping[TopicPartition, int]) -> None:
        """The file lists *rows*, durably."""
        self._durable = dict(rows)

    def lists(self, tp: TopicPartition, start: int) -> bool:
        return self._durable.get(tp) == start

    def forget(self, tp: TopicPartition) -> None:
        """The partition has left the directory."""
        self._durable.pop(tp, None)
        self._moving.pop(tp, None)

    def persist(self, tp: TopicPartition, start: int) -> None:
        """Make it durable here and now; at once when it is already. Raises DiskFull, OSError."""
        if self.lists(tp, start):
            return
        rows = self.rows() | {tp: start}
        self._prepare(rows).write()
        self.know(rows)

    def move(self, targets: Mapping[TopicPartition, int]) -> "StartMove":
        """Begin to make *targets* durable, which are not below what is; one move at a time."""
        assert not self._moving
        self._moving = dict(targets)
        return StartMove(self, dict(targets), self._prepare(self.rows()))

    def _prepare(self, rows: Mapping[TopicPartition, int]) -> PreparedFile:
        return self._files.prepare(LOG_START_CHECKPOINT, {**self.kept, **rows})

    def moved(self, targets: Mapping[TopicPartition, int], *, durable: bool) -> None:
        for tp, start in targets.items():
            if self._moving.pop(tp, None) is not None:  # else it has left the directory meanwhile
                self._durable.pop(tp, None)
                if durable:
                    self._durable[tp] = start


@dataclass(frozen=True, slots=True)
class StartMove:
    """`run` in any thread, then `ended` on the loop, whatever has come of it."""

    starts: LogStarts
    targets: Mapping[TopicPartition, int]
    file: PreparedFile

    def run(self) -> None:
        """Durable when it returns. Raises DiskFull, OSError."""
        self.file.write()

    def ended(self, *, durable: bool) -> None:
        self.starts.moved(self.targets, durable=durable)
