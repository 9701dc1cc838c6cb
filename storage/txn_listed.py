"""Which segments of a log have a `.txnindex`, and of how many bytes, listed in the state directory.

A segment without aborts has none, so one that vanishes leaves no trace in the log's directory but the batches
themselves, nor does an entry that is cut off. With the list a start misses them, and the index is made again on first
use (`txn_rebuild.py`).
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.errors import DiskFull
from tierd.storage.folders import make_folder
from tierd.storage.names import Suffix
from tierd.storage.segment import Segment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sizes:
    """In bytes. What the index had counts only for a log of that size: of one cleaned since it may have less."""

    log: int
    index: int


class TxnListed:
    """The list of one log. Loop thread only, save what `update` gives."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._sizes = _load(path)
        """As the file has them; None: not known."""
        self._wanted: Mapping[int, Segment] = {}
        self.bases = frozenset(self._sizes)
        """Of the segments that are listed, or are about to be."""

    def misses(self, segment: Segment) -> bool:
        """Whether it has had an index, or a longer one than lies there; an empty one tells itself. Raises OSError."""
        if not segment.has_txn_index:
            return segment.base in self.bases
        known = self._sizes.get(segment.base)
        if known is None or known.log != segment.size_bytes:
            return False
        return 0 < segment.path(Suffix.TXN_INDEX).stat().st_size < known.index

    def update(self, segments: Iterable[Segment], *, anew: bool = False) -> Callable[[], None] | None:
        """List those of *segments* that have an index and no others: what makes that durable, in any thread; None when
        they are listed already. *anew*: sizes may have changed, too."""
        wanted = {one.base: one for one in segments if one.has_txn_index}
        if wanted.keys() == self.bases and not (anew and wanted):
            return None
        self.bases, self._wanted = frozenset(wanted), wanted
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
            try:
                sizes = {base: _measured(one) or self._sizes.get(base) for base, one in self._wanted.items()}
                if sizes != self._sizes:
                    make_folder(self._disk, self._path.parent)
                    publish(self._disk, self._path, _encoded(sizes))
                    self._sizes = sizes
            except (DiskFull, OSError) as error:
                log.warning("transaction indexes are not listed", extra={"file": str(self._path), "why": str(error)})


def _measured(segment: Segment) -> Sizes | None:
    """None when a file is not there: nothing new is known."""
    try:
        return Sizes(*(segment.path(suffix).stat().st_size for suffix in (Suffix.LOG, Suffix.TXN_INDEX)))
    except FileNotFoundError:
        return None


def _encoded(sizes: Mapping[int, Sizes | None]) -> bytes:
    """A row for each segment: its base, then both sizes where they are known."""
    rows = [[base] if known is None else [base, known.log, known.index] for base, known in sorted(sizes.items())]
    return json.dumps(rows).encode()


def _load(path: Path) -> dict[int, Sizes | None]:
    """Lists of bases alone were written once, too."""
    try:
        rows = [row if isinstance(row, list) else [row] for row in json.loads(path.read_bytes())]
        return {int(base): Sizes(*map(int, sizes)) if sizes else None for base, *sizes in rows}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        log.warning("the list of transaction indexes is not readable", extra={"file": str(path), "why": str(error)})
        return {}
