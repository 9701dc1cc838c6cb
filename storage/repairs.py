"""Damage of a segment is repaired in a thread where there is one for that, and else where it was met.

The thread touches nothing of the log in memory, and of its files only those that nobody else changes: what may be
replaced meanwhile it writes beside. The loop takes in what comes of it, unless the segment is gone by then; whoever met
the damage begins again. The log is appended to, rolled, cleaned, dropped or deleted in the meantime as always.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import TierdError
from tierd.storage.errors import Repairing
from tierd.storage.segment import Segment

Work = Callable[[], Callable[[], None]]
"""In any thread; gives what the loop has to do then. Both raise CorruptFile, DiskFull, OSError."""


@dataclass(frozen=True, slots=True, eq=False)
class Repair:
    """Somebody runs `work` in a thread, on the loop what that gives, and then tells `Repairs.end`."""

    segment: Segment
    work: Work


class Repairs:
    """Of one data directory, a segment one at a time. Loop thread only."""

    def __init__(self) -> None:
        self.hand_over: Callable[[Repair], None] | None = None
        """Takes work to a thread; None: it is done at once."""
        self.ended = 0
        """How many were handed over and have ended."""
        self._underway: set[Segment] = set()
        self._failed: dict[Segment, TierdError | OSError] = {}

    def do(self, segment: Segment, work: Work) -> None:
        """Done when it returns. Raises Repairing until the thread is through, then once what went wrong there, if
        something did; and what *work* raises when it is done at once."""
        if self.hand_over is None:
            work()()
            return
        if (error := self._failed.pop(segment, None)) is not None:
            raise error
        if segment not in self._underway:
            self._underway.add(segment)
            self.hand_over(Repair(segment, work))
        self.check(segment)

    def check(self, segment: Segment) -> None:
        """Raises Repairing while a thread is at *segment*."""
        if segment in self._underway:
            raise Repairing(f"{segment.where} is being repaired")

    def end(self, repair: Repair, error: TierdError | OSError | None = None) -> None:
        """It has come to its end, or to *error*: who asks next hears that, and the one after tries it again."""
        self.ended += 1
        self._underway.discard(repair.segment)
        if error is not None and not repair.segment.gone:
            self._failed[repair.segment] = error

    def busy(self, directory: Path) -> bool:
        """Whether a segment in the partition directory *directory* is being repaired."""
        return any(segment.directory == directory for segment in self._underway)
