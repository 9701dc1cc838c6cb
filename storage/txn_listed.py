"""Which segments of a log have a `.txnindex`, and what is in it, listed in the state directory.

A segment without aborts has none, so one that vanishes leaves no trace in the log's directory but the batches
themselves, nor does an entry that is cut off, or one whose producer is another. With the list a start finds it out, and
the index is made again on first use (`txn_rebuild.py`).
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from zlib import crc32

from tierd.base.disk import Disk, publish
from tierd.base.errors import DiskFull
from tierd.storage.folders import make_folder
from tierd.storage.names import Suffix
from tierd.storage.segment import Segment

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listed:
    """What the index had counts only for a log of that size: of one cleaned since it may be another."""

    log_bytes: int
    index_bytes: int
    crc: int
    """CRC-32 of the index."""


_FIELDS = len(fields(Listed))


class TxnListed:
    """The list of one log. Loop thread only, save what `update` gives."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._listed = _load(path)
        """As the file has them; None: not known."""
        self._wanted: Mapping[int, Segment] = {}
        self.bases = frozenset(self._listed)
        """Of the segments that are listed, or are about to be."""

    def misses(self, segment: Segment) -> bool:
        """Whether the index that it has had does not lie there; an empty one tells by itself. Raises OSError."""
        if not segment.has_txn_index:
            return segment.base in self.bases
        known, raw = self._listed.get(segment.base), segment.path(Suffix.TXN_INDEX).read_bytes()
        if known is None or known.log_bytes != segment.size_bytes or not raw:
            return False
        return (known.index_bytes, known.crc) != (len(raw), crc32(raw))

    def update(self, segments: Iterable[Segment], *, anew: bool = False) -> Callable[[], None] | None:
        """List those of *segments* that have an index and no others: what makes that durable, in any thread; None when
        they are listed already. *anew*: what is in them may have changed, too."""
        wanted = {one.base: one for one in segments if one.has_txn_index}
        if wanted.keys() == self.bases and not (anew and wanted):
            return None
        self.bases, self._wanted = frozenset(wanted), wanted
        return partial(self._save, anew)

    def _looked_at(self, segment: Segment, known: Listed | None) -> Listed | None:
        """*known* while the log is the same; what the list says when a file is not there now."""
        if known is not None and known.log_bytes == segment.size_bytes:
            return known
        try:
            raw = segment.path(Suffix.TXN_INDEX).read_bytes()
            return Listed(segment.path(Suffix.LOG).stat().st_size, len(raw), crc32(raw))
        except FileNotFoundError:
            return self._listed.get(segment.base)

    def forget(self) -> None:
        """The log is gone."""
        try:
            if self._path.exists():
                self._disk.unlink(self._path)
        except OSError as error:
            log.warning("a list that nobody needs stays", extra={"file": str(self._path), "why": str(error)})

    def _save(self, anew: bool) -> None:
        """A list that cannot be written is tried again with the next change: without it all is as in Kafka."""
        with self._lock:
            try:
                known = {} if anew else self._listed
                listed = {base: self._looked_at(one, known.get(base)) for base, one in self._wanted.items()}
                if listed != self._listed:
                    make_folder(self._disk, self._path.parent)
                    publish(self._disk, self._path, _encoded(listed))
                    self._listed = listed
            except (DiskFull, OSError) as error:
                log.warning("transaction indexes are not listed", extra={"file": str(self._path), "why": str(error)})


def _encoded(listed: Mapping[int, Listed | None]) -> bytes:
    """A row for each segment: its base, then what else is known."""
    return json.dumps(
        [[base, *(astuple(one) if one is not None else ())] for base, one in sorted(listed.items())]
    ).encode()


def _load(path: Path) -> dict[int, Listed | None]:
    """Lists of bases alone were written once, too."""
    try:
        rows = [row if isinstance(row, list) else [row] for row in json.loads(path.read_bytes())]
        return {int(base): Listed(*map(int, rest)) if len(rest) == _FIELDS else None for base, *rest in rows}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError) as error:
        log.warning("the list of transaction indexes is not readable", extra={"file": str(path), "why": str(error)})
        return {}
