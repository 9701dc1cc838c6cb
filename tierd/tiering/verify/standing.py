"""How far a look at the bucket has come, kept in a file, so that the next one goes on from there."""

from dataclasses import dataclass
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.remote.documents import Document, Id
from tierd.tiering.verify.verdicts import Finding, Range, Verdict, worst


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """What was found in a partition, as far as it was looked at."""

    topic: str
    topic_id: Id
    partition: int
    log_start: int | None
    copied_to: int | None
    segments: int
    """That count."""
    looked_into: int
    """Of these, one by one; the others were not in the sample."""
    ranges: tuple[Range, ...]

    @property
    def verdict(self) -> Verdict:
        return worst(one.verdict for one in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """Segments of this partition below *offset* have been looked at, and all partitions before it."""

    topic: str
    topic_id: Id
    partition: int
    offset: int
    looked_into: int = 0
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Of one look at a whole bucket, *turn* counted from 0: each takes another sample."""

    url: str
    deep: bool
    percent: float
    turn: int = 0
    requests: int = 0
    bytes: int = 0
    reports: tuple[PartitionReport, ...] = ()
    cursor: Cursor | None = None
    """Where the next run begins; None: the look is complete, or has not begun."""


STANDING = Document(Standing)


def load(path: Path) -> Standing | None:
    """None when nothing was kept. Raises CorruptFile."""
    try:
        return STANDING.parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def keep(disk: Disk, path: Path, standing: Standing) -> None:
    publish(disk, path, STANDING.encode(standing))


def begin(kept: Standing | None, fresh: Standing, *, anew: bool) -> Standing:
    """Where to begin: the *kept* one when it is of the same look and unfinished, else the turn after it."""
    same = kept is not None and (kept.url, kept.deep, kept.percent) == (fresh.url, fresh.deep, fresh.percent)
    if kept is None or not same:
        return fresh
    if kept.cursor is not None and not anew:
        return kept
    return Standing(
        url=fresh.url,
        deep=fresh.deep,
        percent=fresh.percent,
        turn=kept.turn if kept.cursor is not None else kept.turn + 1,
    )
