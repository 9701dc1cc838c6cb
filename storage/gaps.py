"""Which offsets a log has lost between segments that it kept, remembered in the state directory beside the bytes cut.

Nothing on the disk tells a lost offset from one that was never given out: the finding is written down once. It is
judged once, too: by what the bucket has when the log begins, before a segment that was cut can be copied.
"""

import json
import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.ids import TopicPartition, Uuid
from tierd.storage.folders import make_folder
from tierd.storage.names import partition_directory

log = logging.getLogger(__name__)

Gap = tuple[int, int]
"""Offsets [start, stop)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the file says."""

    found: tuple[Gap, ...] = ()
    """Not judged yet."""
    lost: tuple[Gap, ...] = ()
    """The bucket did not have them either."""

    def within(self, log_start: int, log_end: int) -> "Recorded":
        """Those that are not wholly outside of the log."""
        return Recorded(_within(self.found, log_start, log_end), _within(self.lost, log_start, log_end))

    def holds(self, gap: Gap) -> bool:
        return any(start <= gap[0] and gap[1] <= stop for start, stop in (*self.found, *self.lost))


@dataclass(frozen=True, slots=True)
class GapFile:
    """The gaps of one partition. A topic made anew under the same name has another id, and so another file."""

    root: Path
    disk: Disk = field(repr=False)
    name: TopicPartition
    topic_id: Uuid

    @property
    def _path(self) -> Path:
        return self.root / partition_directory(self.name) / f"gaps-{self.topic_id}.json"

    def load(self) -> Recorded:
        """None of either kind when the file is missing or broken."""
        try:
            document = json.loads(self._path.read_text())
            return Recorded(_pairs(document["found"]), _pairs(document["lost"]))
        except FileNotFoundError:
            return Recorded()
        except (ValueError, KeyError, TypeError) as error:
            log.warning("recorded gaps are not readable", extra={"file": str(self._path), "why": str(error)})
            return Recorded()

    def add(self, gap: Gap) -> None:
        """Note one as found; durable when it returns. Raises DiskFull, OSError."""
        now = self.load()
        if not now.holds(gap):
            self.save(Recorded(_apart((*now.found, gap)), now.lost))

    def take_over(self, other: "GapFile") -> None:
        """What *other* says is said here from now on, and there no more. Raises DiskFull, OSError."""
        if other._path.exists():
            mine, theirs = self.load(), other.load()
            self.save(Recorded(_apart((*mine.found, *theirs.found)), merged((*mine.lost, *theirs.lost))))
            other.forget()

    def forget(self) -> None:
        """Remove it, if it is there. Raises OSError."""
        if self._path.exists():
            self.disk.unlink(self._path)

    def save(self, gaps: Recorded) -> None:
        """Durable when it returns. Raises DiskFull, OSError."""
        make_folder(self.disk, self._path.parent)
        publish(self.disk, self._path, json.dumps({"found": gaps.found, "lost": gaps.lost}).encode())


class Gaps:
    """The gaps of one log. Loop thread only, but for `keep`."""

    def __init__(self, file: GapFile, log_start: int, log_end: int) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._saved = self._now = file.load()
        self._become(self._now.within(log_start, log_end))

    def within(self, log_start: int, log_end: int) -> tuple[Gap, ...]:
        """All that are not wholly outside of the log."""
        return _within(merged((*self._now.found, *self._now.lost)), log_start, log_end)

    def pass_by(self, offset: int, stop: int) -> tuple[int, int]:
        """[offset, stop) without what is lost of it at its beginning, up to where more is lost.

        Ends of transactions may be among what is lost: no answer goes from one side to the other, or a reader would
        take for aborted what its producer has written behind it.
        """
        for begin, end in sorted((*self._now.found, *self._now.lost)):
            if begin <= offset < end:
                offset = end
            elif offset < begin < stop:
                return offset, begin
        return offset, stop

    def found_within(self, start: int, stop: int) -> tuple[Gap, ...]:
        """Those not judged yet that lie in [start, stop)."""
        return tuple(gap for gap in self._now.found if start <= gap[0] and gap[1] <= stop)

    def __bool__(self) -> bool:
        return bool(self._now.found or self._now.lost)

    def holds(self, gap: Gap) -> bool:
        """Whether it is noted durably."""
        return self._saved.holds(gap)

    @property
    def found(self) -> tuple[Gap, ...]:
        """Those not judged yet, ascending."""
        return tuple(sorted(self._now.found))

    def note(self, gap: Gap) -> None:
        """One more is found; `keep` it before anything is done that hides it."""
        self._now = Recorded(_apart((*self._now.found, gap)), self._now.lost)

    def keep(self) -> None:
        """Make durable what is noted. Any thread. Raises DiskFull, OSError."""
        with self._lock:
            self._save(self._now)

    def judge(self, asked: Collection[Gap], healed: Collection[Gap]) -> None:
        """Of *asked* what is found is judged: *healed* are gaps no more, others are lost. Durable when it returns."""
        lost = (gap for gap in self._now.found if gap in asked and gap not in healed)
        left = tuple(gap for gap in self._now.found if gap not in asked)
        self._become(Recorded(left, merged((*self._now.lost, *lost))))

    def _become(self, gaps: Recorded) -> None:
        with self._lock:
            self._save(gaps)
            self._now = gaps

    def _save(self, gaps: Recorded) -> None:
        if gaps != self._saved:
            self._file.save(gaps)
            self._saved = gaps


def _within(gaps: tuple[Gap, ...], log_start: int, log_end: int) -> tuple[Gap, ...]:
    return tuple((start, stop) for start, stop in gaps if stop > log_start and start < log_end)


def _pairs(rows: list[list[int]]) -> tuple[Gap, ...]:
    return tuple((int(start), int(stop)) for start, stop in rows)


def _apart(gaps: tuple[Gap, ...]) -> tuple[Gap, ...]:
    """Sorted, each once. Those that touch are of two segments: the bucket may have one of them and not the other."""
    return merged(gaps, touching=False)


def merged(gaps: tuple[Gap, ...], *, touching: bool = True) -> tuple[Gap, ...]:
    """Sorted, each once, those that overlap joined, and those that are *touching*."""
    joined: list[Gap] = []
    for start, stop in sorted(gaps):
        if joined and (start < joined[-1][1] or (touching and start == joined[-1][1])):
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return tuple(joined)
