"""The checkpoint files of a data directory: read at start, written as a whole and only when they change.

Contents are made on the loop, publishing them (two fsyncs) may happen in a thread; a newer content never gives way to
an older one that was on its way.
"""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.checkpoints import encode_checkpoint, parse_checkpoint

log = logging.getLogger(__name__)


class OffsetFiles:
    """Reads and writes `<name>-offset-checkpoint` files of one directory."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._lock = threading.Lock()
        self._number = 0
        self._written: dict[str, tuple[int, bytes]] = {}

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Empty when the file is missing or broken: everybody then takes the careful value."""
        path = self._directory / name
        try:
            raw = path.read_bytes()
            found = parse_checkpoint(raw, str(path)) if raw else {}  # Kafka makes an empty one before it has rows
        except FileNotFoundError:
            return {}
        except CorruptFile as error:
            log.warning("checkpoint is not readable, going on without", extra={"file": name, "reason": str(error)})
            return {}
        self._written[name] = (0, raw)
        return found

    def known(self, name: str) -> bool:
        """Whether a good file of this name was read or written."""
        return name in self._written

    def prepare(self, name: str, offsets: Mapping[TopicPartition, int]) -> "PreparedFile":
        """Fix the content now; `write` it in any thread."""
        self._number += 1
        return PreparedFile(self, name, self._number, encode_checkpoint(offsets))

    def write(self, name: str, number: int, raw: bytes) -> None:
        with self._lock:
            last_number, last_raw = self._written.get(name, (0, b""))
            if number < last_number:
                return
            if raw != last_raw:
                publish(self._disk, self._directory / name, raw)
            self._written[name] = (number, raw)

    def strike(self, name: str, partition: TopicPartition) -> None:
        """Let the file say nothing of *partition*, durable when this returns; at once when it does not. Any thread.

        Raises DiskFull, OSError.
        """
        with self._lock:
            last_number, last_raw = self._written.get(name, (0, b""))
            if f"\n{partition.topic} {partition.partition} ".encode() not in last_raw:
                return
            rows = parse_checkpoint(last_raw)
            del rows[partition]
            raw = encode_checkpoint(rows)
            publish(self._disk, self._directory / name, raw)
            self._written[name] = (last_number, raw)


class PreparedFile:
    """The content of one checkpoint file at one moment."""

    def __init__(self, files: OffsetFiles, name: str, number: int, raw: bytes) -> None:
        self._files = files
        self._name = name
        self._number = number
        self._raw = raw

    def write(self) -> None:
        """Durable when it returns. Raises DiskFull, OSError."""
        self._files.write(self._name, self._number, self._raw)
