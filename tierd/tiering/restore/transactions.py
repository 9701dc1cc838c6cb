"""Which offsets a cut may have so that every transaction is whole or not there at all, in all partitions. Pure.

A transaction has no name that its partitions share. Its producer's id and epoch are in all of them, and its markers are
written everywhere before the producer can begin the next one. Where each end raises the epoch, as brokers and clients
of today have it, that is a name. Else times tell: markers that are nearest to each other are of one transaction, unless
it began after the other had ended. Of two mistakes the one is made that cuts more.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tierd.storage.names import MAX_OFFSET

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


def settle(cuts: Mapping[Part, int], logs: Mapping[Part, Sequence[Transaction]]) -> dict[Part, int]:
    """The highest offsets at or below *cuts* at which no transaction is open, and none is cut in one log and whole in
    another. *logs* have each transaction of a partition once."""
    settled = dict(cuts)
    pinned = {part: _Pinned(own) for part, own in logs.items()}
    kin = _kin(logs)
    while True:
        before = dict(settled)
        for part in logs:
            settled[part] = pinned[part].below(settled[part])
        for logs_of_one in kin:
            _cut_everywhere(settled, logs_of_one)
        if settled == before:
            return settled


def _stop(one: Transaction) -> int:
    return MAX_OFFSET if one.stop is None else one.stop


class _Pinned:
    """The stretches of a log in which some transaction is open all the time."""

    def __init__(self, own: Iterable[Transaction]) -> None:
        self._starts: list[int] = []
        self._stops: list[int] = []
        for one in sorted(own, key=lambda one: one.first):
            stop = _stop(one)
            if self._stops and one.first < self._stops[-1]:
                self._stops[-1] = max(self._stops[-1], stop)
            else:
                self._starts.append(one.first)
                self._stops.append(stop)

    def below(self, cut: int) -> int:
        """*cut*, or where the stretch begins that it falls into."""
        at = bisect_left(self._starts, cut) - 1
        return self._starts[at] if at >= 0 and cut < self._stops[at] else cut


class _Own:
    """What one log has of one producer epoch."""

    def __init__(self, rows: Sequence[Transaction]) -> None:
        ended = sorted((one for one in rows if one.stop is not None), key=lambda one: (one.ended_ms, one.first))
        self.by_end: dict[int, list[Transaction]] = defaultdict(list)
        """Those with a marker, by its epoch and in the order of its time."""
        for one in ended:
            self.by_end[one.ended_epoch].append(one)
        self.times = {epoch: [one.ended_ms for one in ended] for epoch, ended in self.by_end.items()}
        self.last = ended[-1] if ended else None
        self._from_end = sorted(rows, key=_stop, reverse=True)
        self._told = 0

    def newly_cut(self, cut: int) -> Iterator[Transaction]:
        """Those that are cut at *cut*, each once: cuts only fall."""
        while self._told < len(self._from_end) and self._from_end[self._told].is_cut_at(cut):
            self._told += 1
            yield self._from_end[self._told - 1]

    def nearest(self, one: Transaction) -> Transaction | None:
        """By the times of the markers: the one that may be the same."""
        alike = self.by_end.get(one.ended_epoch, [])
        if one.ended_epoch != one.epoch:  # the last one of its epoch
            return alike[0] if alike else None
        at = bisect_left(self.times.get(one.ended_epoch, []), one.ended_ms)
        close = [other for other in alike[max(0, at - 1) : at + 1] if _may_be_one(one, other)]
        return min(close, key=lambda other: abs(other.ended_ms - one.ended_ms), default=None)


def _kin(logs: Mapping[Part, Sequence[Transaction]]) -> list[dict[Part, _Own]]:
    """Of each producer epoch that more than one log knows."""
    found: dict[tuple[int, int], dict[Part, list[Transaction]]] = defaultdict(lambda: defaultdict(list))
    for part, own in logs.items():
        for one in own:
            found[one.producer_id, one.epoch][part].append(one)
    return [
        {part: _Own(rows) for part, rows in _trusted(by_part).items()} for by_part in found.values() if len(by_part) > 1
    ]


def _trusted(logs: dict[Part, list[Transaction]]) -> dict[Part, list[Transaction]]:
    """Without the times at which transactions began, when some of them can only come from a clock that is ahead."""
    rows = [one for own in logs.values() for one in own if one.stop is not None and one.began_ms is not None]
    if all(one.began_ms is None or one.began_ms <= one.ended_ms for one in rows):
        return logs
    return {part: [replace(one, began_ms=None) for one in own] for part, own in logs.items()}


def _cut_everywhere(cuts: dict[Part, int], logs: Mapping[Part, _Own]) -> None:
    """*logs*: of one producer epoch."""
    for part, own in logs.items():
        for one in own.newly_cut(cuts[part]):
            for other, theirs in logs.items():
                twin = None if other == part else theirs.last if one.stop is None else theirs.nearest(one)
                if twin is not None and not twin.is_cut_at(cuts[other]) and _are_one(one, own, twin):
                    cuts[other] = min(cuts[other], twin.first)


def _are_one(one: Transaction, own: _Own, twin: Transaction) -> bool:
    """Whether *twin*, what another log has that is most like *one* of the log *own*, is the same."""
    if one.stop is None:  # behind all that have a marker
        return twin.ended_ms + SPREAD_MS >= one.open_ms and own.nearest(twin) is None
    return own.nearest(twin) is one


def _may_be_one(one: Transaction, other: Transaction) -> bool:
    earlier, later = (one, other) if one.ended_ms <= other.ended_ms else (other, one)
    apart_ms = later.ended_ms - earlier.ended_ms
    if _AT_ONCE_MS < apart_ms <= SPREAD_MS:
        return later.began_ms is None or later.began_ms <= earlier.ended_ms
    return apart_ms <= _AT_ONCE_MS
