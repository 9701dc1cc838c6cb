"""What verify says of a partition: a verdict for each range of offsets, with reasons. Pure."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tierd.base.ids import Uuid
from tierd.remote.documents import Id
from tierd.remote.heads import Gap
from tierd.storage.gaps import merged


class Verdict(StrEnum):
    """In ascending order of gravity."""

    OK = "OK"
    WARNING = "WARNING"
    """All records can be read; something that should be there, or agree, does not."""
    FAILURE = "FAILURE"
    """Records are lost, or reads of them fail or give wrong answers."""


_ORDER = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found about offsets [start, stop)."""

    verdict: Verdict
    start: int
    stop: int
    reason: str
    segment_id: Id | None = None
    """Of the segment that was looked into; None: found in listing, head and manifests together."""


@dataclass(frozen=True, slots=True)
class Range:
    """One verdict over offsets [start, stop)."""

    verdict: Verdict
    start: int
    stop: int
    reasons: tuple[str, ...] = ()


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """OK when there is none."""
    return max(verdicts, key=_ORDER.index, default=Verdict.OK)


def ranges(looked: Iterable[tuple[int, int]], findings: Sequence[Finding], gaps: Sequence[Gap]) -> list[Range]:
    """Offsets that were *looked* at, and those that *findings* are about, cut where the verdict or its reasons change.

    A failure inside an accepted gap is none; what is not looked at and has no finding is in no range.
    """
    known = list(merged((*looked, *((one.start, one.stop) for one in findings))))
    spans = [*known, *((one.start, one.stop) for one in findings), *((gap.start, gap.stop) for gap in gaps)]
    cuts = sorted({at for span in spans for at in span})
    ahead, here = deque(sorted(findings, key=lambda one: one.start)), list[Finding]()
    found: list[Range] = []
    for start, stop in pairwise(cuts):
        while ahead and ahead[0].start <= start:
            here.append(ahead.popleft())
        here = [one for one in here if one.stop > start]
        while known and known[0][1] <= start:
            del known[0]
        if known and known[0][0] <= start:
            _add(found, _judge(start, stop, here, gaps))
    return found


def _judge(start: int, stop: int, here: Sequence[Finding], gaps: Sequence[Gap]) -> Range:
    verdict = worst(one.verdict for one in here)
    accepted = next((gap for gap in gaps if gap.start <= start < gap.stop), None)
    if accepted is not None and verdict is Verdict.FAILURE:
        return Range(Verdict.OK, start, stop, (f"accepted as lost: {accepted.reason}",))
    return Range(verdict, start, stop, tuple(dict.fromkeys(one.reason for one in here)))


def _add(found: list[Range], one: Range) -> None:
    last = found[-1] if found else None
    if last is not None and (last.stop, last.verdict, last.reasons) == (one.start, one.verdict, one.reasons):
        found[-1] = Range(one.verdict, last.start, one.stop, one.reasons)
    else:
        found.append(one)


def in_sample(segment_id: Uuid, percent: float, turn: int) -> bool:
    """Whether a segment is among the *percent* of this turn; 100 / percent turns have them all."""
    share = round(percent * 100)
    place = int.from_bytes(segment_id.raw[:8], "big") % 10_000
    return (place - turn * share) % 10_000 < share
