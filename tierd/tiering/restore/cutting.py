"""Where each partition of a restore ends when it is cut: at its bound, then lower until no transaction is torn.

Blocking. Of each partition the segment with the cut is read; others only where they may have a part of a transaction
that is torn: behind the cut as far as markers may belong to what others keep, before it where a producer is known.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from tierd.base.errors import CorruptFile, TierdError
from tierd.base.ids import PartitionId
from tierd.remote.errors import NotFound
from tierd.remote.open import Bucket
from tierd.storage.snapshot import ProducerEntry
from tierd.tiering.restore.pieces import Piece, producers_before, remote_batches, snapshot_at_end
from tierd.tiering.restore.plan import PartitionPlan
from tierd.tiering.restore.run import Progress
from tierd.tiering.restore.transactions import SPREAD_MS, Transaction, settle
from tierd.tiering.restore.walk import Bound, Walk

log = logging.getLogger(__name__)

_NOWHERE = Bound()


class CutUnknown(TierdError):
    """The bucket has lost, or has broken, the segment that a cut falls into."""


@dataclass(slots=True)
class _Log:
    """One partition on the way to its cut."""

    plan: PartitionPlan
    bound: Bound
    cut: int
    asked: int
    """Where it ends by its bound alone."""
    walks: dict[int, Walk] = field(default_factory=dict)
    """By number of the piece."""
    snapshots: dict[int, list[ProducerEntry]] = field(default_factory=dict)
    """At the end of a piece."""
    hanging: dict[tuple[int, int], Transaction] = field(default_factory=dict)
    """Open at the end of all that the bucket has, when nothing of it was walked."""

    @property
    def pieces(self) -> Sequence[Piece]:
        return self.plan.pieces

    @property
    def holder(self) -> int:
        """The first piece with something at or behind the cut."""
        return next((i for i, one in enumerate(self.pieces) if one.stop > self.cut), len(self.pieces))

    @property
    def pending(self) -> list[int]:
        """Pieces that tell how transactions end that are open where a walk ended."""
        return [i + 1 for i, walk in self.walks.items() if walk.open and self._next_is_unknown(i)]

    def _next_is_unknown(self, at: int) -> bool:
        return at + 1 < len(self.pieces) and at + 1 not in self.walks

    def transactions(self) -> list[Transaction]:
        """All that are known; those whose end is `pending` as if they had none."""
        found = dict(self.hanging)
        for at, walk in sorted(self.walks.items()):
            found |= walk.transactions
            if at + 1 in self.walks:
                after = self.walks[at + 1].transactions
                for key, one in walk.transactions.items():
                    if one.stop is None and key not in after:  # its end lies in what is lost in between
                        found[key] = replace(one, stop=self.pieces[at + 1].base, ended_ms=one.open_ms)
        return list(found.values())


@dataclass(slots=True)
class Cutting:
    """One `run` over all partitions of a plan that end at a bound."""

    bucket: Bucket
    threads: int
    report: Callable[[Progress], None] = lambda _: None
    """Gets the segments that are read for it, and their bytes."""
    _logs: dict[PartitionId, _Log] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _read: int = 0
    _bytes: int = 0

    def run(
        self, plans: Iterable[PartitionPlan], bounds: Mapping[PartitionId, Bound], *, settled: bool = False
    ) -> list[PartitionPlan]:
        """*plans* with the ends that they have by *bounds*; a partition without one ends where it does. *settled*:
        the bounds are what an earlier run has found, and nothing is lowered.

        Raises CutUnknown, KeyMissing, RemoteUnavailable.
        """
        self._logs = {
            one.source: _Log(one, bounds.get(one.source, _NOWHERE), one.log_end, one.log_end) for one in plans
        }
        with ThreadPoolExecutor(self.threads, "cut") as pool:
            self._each(pool, self._begin, [(one,) for one in self._logs.values()])
            while not settled:
                while needed := self._needed(pool):
                    self._each(pool, self._walk, needed)
                settled = self._lower()
        return [_ended(one) for one in self._logs.values()]

    def _lower(self) -> bool:
        """Whether nothing has changed by that."""
        before = {part: one.cut for part, one in self._logs.items()}
        cuts = settle(before, {part: one.transactions() for part, one in self._logs.items()})
        for part, cut in cuts.items():
            self._logs[part].cut = cut
        return cuts == before

    @staticmethod
    def _each(pool: ThreadPoolExecutor, work: Callable[..., None], calls: Sequence[tuple[object, ...]]) -> None:
        for done in [pool.submit(work, *call) for call in calls]:
            done.result()

    def _begin(self, one: _Log) -> None:
        """Find where the bound lies."""
        for at, piece in enumerate(one.pieces):
            if not _may_reach(piece, one.bound):
                continue
            if one.bound.offset is not None and piece.base >= one.bound.offset:
                break
            self._walk(one, at, True)
            found = one.walks[at].cut
            if found is not None:
                one.cut = one.asked = found
                return
            if one.bound.offset is not None:
                break
        if one.bound.offset is not None:
            one.cut = one.asked = min(one.bound.offset, one.plan.log_end)
        if one.holder == len(one.pieces) and one.pieces:
            walk = Walk(_NOWHERE).run(self._snapshot(one, len(one.pieces) - 1), ())
            one.hanging = dict(walk.transactions)

    def _walk(self, one: _Log, at: int, must: bool) -> None:
        """*must*: the cut may lie there. What is lost of the others will not be restored, and has no say."""
        piece, known = one.pieces[at], list[ProducerEntry]()
        try:
            known = producers_before(self.bucket, one.pieces, at).entries()
            one.walks[at] = Walk(one.bound).run(known, remote_batches(self.bucket, piece.segment, piece.size_bytes))
        except (NotFound, CorruptFile) as error:
            if must:
                what = f"{one.plan.name} cannot be cut there, for the bucket has lost the records: {error}"
                raise CutUnknown(f"{what}: restore it whole, or with another end") from error
            one.walks[at] = Walk(_NOWHERE).run(known, ())
        with self._lock:
            self._read += 1
            self._bytes += piece.size_bytes
            self.report(
                Progress(self._read, self._read, self._bytes, self._bytes, f"read for the end of {one.plan.name}")
            )

    def _snapshot(self, one: _Log, at: int) -> list[ProducerEntry]:
        """What a piece says of the producers at its end; nothing when that is lost."""
        if at not in one.snapshots:
            try:
                one.snapshots[at] = snapshot_at_end(self.bucket, one.pieces[at].segment)
            except (NotFound, CorruptFile) as error:
                log.warning("what producers did is not known: %s", error)
                one.snapshots[at] = []
        return one.snapshots[at]

    # -- what else must be read before all that is known is all that counts --

    def _needed(self, pool: ThreadPoolExecutor) -> list[tuple[_Log, int, bool]]:
        """Arguments for `_walk`."""
        torn = self._torn()
        alone = len(self._logs) == 1

        def of(one: _Log) -> set[int]:
            found = {one.holder, *one.pending} if one.cut < one.plan.log_end else set(one.pending)
            if not alone:
                found |= {*self._behind(one), *self._before(one, torn)}
            return {at for at in found if at < len(one.pieces) and at not in one.walks}

        logs = list(self._logs.values())
        return [
            (one, at, one.pieces[at].base < one.cut < one.pieces[at].stop)
            for one, found in zip(logs, pool.map(of, logs), strict=True)
            for at in sorted(found)
        ]

    def _behind(self, one: _Log) -> list[int]:
        """The next piece behind the cut that may have the end of a transaction that is kept in another partition."""
        if one.cut >= one.plan.log_end:
            return []
        for at in range(one.holder, len(one.pieces)):
            walk = one.walks.get(at)
            if walk is None and self._has_transactions(one, at):
                return [at]
            if walk is not None and one.bound.until_ms is not None:
                last_ms = max((txn.ended_ms for txn in walk.ended), default=-1)
                if last_ms >= one.bound.until_ms + SPREAD_MS:
                    return []
        return []

    def _has_transactions(self, one: _Log, at: int) -> bool:
        if one.pieces[at].segment.layout.transaction is not None:
            return True
        known = [*self._snapshot(one, at), *(self._snapshot(one, at - 1) if at else ())]
        return any(entry.coordinator_epoch is not None or entry.txn_first_offset is not None for entry in known)

    def _torn(self) -> dict[int, int]:
        """Producer -> the earliest time at which a transaction of it ended that is cut somewhere."""
        found: dict[int, int] = {}
        for one in self._logs.values():
            for txn in one.transactions():
                if txn.is_cut_at(one.cut):
                    time_ms = txn.open_ms if txn.stop is None else txn.ended_ms
                    found[txn.producer_id] = min(time_ms, found.get(txn.producer_id, time_ms))
        return found

    def _before(self, one: _Log, torn: Mapping[int, int]) -> Iterable[int]:
        """Pieces below the cut that may have a part of what is torn elsewhere."""
        for at, piece in enumerate(one.pieces[: one.holder + 1]):
            latest_ms = piece.segment.largest_timestamp_ms
            if at in one.walks or latest_ms is None:
                continue
            producers = {who for who, since_ms in torn.items() if latest_ms >= since_ms - SPREAD_MS}
            if producers and any(entry.producer_id in producers for entry in self._snapshot(one, at)):
                yield at


def _may_reach(piece: Piece, bound: Bound) -> bool:
    if bound.offset is not None:
        return piece.stop > bound.offset
    latest_ms = piece.segment.largest_timestamp_ms
    return bound.until_ms is not None and latest_ms is not None and latest_ms >= bound.until_ms


def _ended(one: _Log) -> PartitionPlan:
    if one.cut >= one.plan.log_end:
        return one.plan
    places = {offset: position for walk in one.walks.values() for offset, position in walk.places.items()}
    return one.plan.cut_at(one.cut, places.get(one.cut), torn=one.cut < one.asked)
