"""Which offsets a cut may have so that every transaction is whole or not there at all, in all partitions. Pure.

A transaction has no name that its partitions share. Its producer's id and epoch are in all of them, and its markers are
written everywhere before the producer can begin the next one. Where each end raises the epoch, as brokers and clients
of today have it, that is a name. Else times tell: markers that are nearest to each other are of one transaction, unless
it began after the other had ended. Of two mistakes the one is made that cuts more.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

Part = TypeVar("Part")

SPREAD_MS = 60_000
"""Markers of one transaction that are further apart than this are taken for those of two."""
_AT_ONCE_MS = 5
"""Markers that are not further apart are of one transaction, whatever the times of records say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What one partition has of a transaction: records from offset *first* on."""

    producer_id: int
    epoch: int
    """In which its records were written."""
    open_ms: int
    """A record's time when it was open."""
    began_ms: int | None = None
    """That of its first record, where it was read: the client's clock, or what an application has made of it."""
    first: int
    stop: int | None
    """The offset after its marker; None: there is none, it hangs or goes on behind the log's end."""
    ended_epoch: int = -1
    ended_ms: int = -1
    """Of the marker."""

    def is_cut_at(self, offset: int) -> bool:
        """Whether a log that ends at *offset* lacks some or all of it."""
        return self.stop is None or self.stop > offset

    def is_open_at(self, offset: int) -> bool:
        return self.first < offset and self.is_cut_at(offset)


def settle(cuts: Mapping[Part, int], logs: Mapping[Part, Sequence[Transaction]]) -> dict[Part, int]:
    """The highest offsets at or below *cuts* at which no transaction is open, and none is cut in one log and whole in
    another. *logs* have each transaction of a partition once."""
    settled = dict(cuts)
    kin = _kin(logs)
    while True:
        before = dict(settled)
        for part, own in logs.items():
            settled[part] = _below_open(settled[part], own)
        for logs_of_one in kin:
            _cut_everywhere(settled, logs_of_one)
        if settled == before:
            return settled


def _below_open(cut: int, own: Sequence[Transaction]) -> int:
    while (first := min((one.first for one in own if one.is_open_at(cut)), default=None)) is not None:
        cut = first
    return cut


def _kin(logs: Mapping[Part, Sequence[Transaction]]) -> list[dict[Part, list[Transaction]]]:
    """Of each producer epoch that more than one log knows its transactions there, by the time of their markers."""
    found: dict[tuple[int, int], dict[Part, list[Transaction]]] = defaultdict(lambda: defaultdict(list))
    for part, own in logs.items():
        for one in sorted(own, key=lambda one: (one.stop is None, one.ended_ms, one.first)):
            found[one.producer_id, one.epoch][part].append(one)
    return [_trusted(by_part) for by_part in found.values() if len(by_part) > 1]


def _trusted(logs: dict[Part, list[Transaction]]) -> dict[Part, list[Transaction]]:
    """Without the times at which transactions began, when some of them can only come from a clock that is ahead."""
    rows = [one for own in logs.values() for one in own if one.stop is not None and one.began_ms is not None]
    if all(one.began_ms is None or one.began_ms <= one.ended_ms for one in rows):
        return logs
    return {part: [replace(one, began_ms=None) for one in own] for part, own in logs.items()}


def _cut_everywhere(cuts: dict[Part, int], logs: Mapping[Part, Sequence[Transaction]]) -> None:
    """*logs*: of one producer epoch."""
    for part, own in logs.items():
        for one in own:
            if not one.is_cut_at(cuts[part]):
                continue
            for other, theirs in logs.items():
                twin = None if other == part else _twin(one, own, theirs)
                if twin is not None and not twin.is_cut_at(cuts[other]):
                    cuts[other] = min(cuts[other], twin.first)


def _twin(one: Transaction, own: Sequence[Transaction], theirs: Sequence[Transaction]) -> Transaction | None:
    """The same transaction in another log; None also when it has no marker there, for then it is cut anyway."""
    if one.stop is None:
        last = next((other for other in reversed(theirs) if other.stop is not None), None)
        if last is None or last.ended_ms + SPREAD_MS < one.open_ms or _nearest(last, own) is not None:
            return None
        return last
    found = _nearest(one, theirs)
    return found if found is not None and _nearest(found, own) is one else None


def _nearest(one: Transaction, others: Sequence[Transaction]) -> Transaction | None:
    """Of *others*, by the time of their markers, those without one last: the one that may be the same."""
    if one.ended_epoch != one.epoch:  # the last one of its epoch
        return next(
            (other for other in others if other.ended_epoch == one.ended_epoch and other.stop is not None), None
        )
    alike = [other for other in others if other.ended_epoch == one.ended_epoch and other.stop is not None]
    at = bisect_left(alike, one.ended_ms, key=lambda other: other.ended_ms)
    close = [other for other in alike[max(0, at - 1) : at + 1] if _may_be_one(one, other)]
    return min(close, key=lambda other: abs(other.ended_ms - one.ended_ms), default=None)


def _may_be_one(one: Transaction, other: Transaction) -> bool:
    earlier, later = sorted((one, other), key=lambda each: each.ended_ms)
    apart_ms = later.ended_ms - earlier.ended_ms
    if _AT_ONCE_MS < apart_ms <= SPREAD_MS:
        return later.began_ms is None or later.began_ms <= earlier.ended_ms
    return apart_ms <= _AT_ONCE_MS
