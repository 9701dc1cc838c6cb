"""Which segments of a log have a `.txnindex`, listed in the state directory.

A segment without aborts has none, so one that vanishes leaves no trace in the log's directory but the batches
themselves. With the list a start misses it, and it is made again on first use (`txn_rebuild.py`).
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import DiskFull
from tierd.storage.folders import make_folder

log = logging.getLogger(__name__)


class TxnListed:
    """The list of one log. Loop thread only, save what `update` gives."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._lock = threading.Lock()
        self.bases = _load(path)
        """Of the segments that are listed, or are about to be."""

    def update(self, bases: Iterable[int]) -> Callable[[], None] | None:
        """List *bases* and no others: what makes that durable, in any thread; None when they are listed already."""
        wanted = frozenset(bases)
        if wanted == self.bases:
            return None
        self.bases = wanted
        return self._save

    def forget(self) -> None:
        """The log is gone."""
        try:
            if self._path.exists():
                self._disk.unlink(self._path)
        except OSError as error:
            log.warning("a list that nobody needs stays", extra={"file": str(self._path), "why": str(error)})

    def _save(self) -> None:
        """A list that cannot be written is tried again with the next change: without it all is as in Kafka."""
        with self._lock:
            wanted = self.bases
            try:
                make_folder(self._disk, self._path.parent)
                publish(self._disk, self._path, json.dumps(sorted(wanted)).encode())
            except (DiskFull, OSError) as error:
                log.warning("transaction indexes are not listed", extra={"file": str(self._path), "why": str(error)})


def _load(path: Path) -> frozenset[int]:
    try:
        return frozenset(map(int, json.loads(path.read_bytes())))
    except FileNotFoundError:
        return frozenset()
    except (ValueError, TypeError) as error:
        log.warning("the list of transaction indexes is not readable", extra={"file": str(path), "why": str(error)})
        return frozenset()
