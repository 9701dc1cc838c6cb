"""One look at a whole bucket: partition by partition, several segments at a time, within a budget, resumable."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from tierd.base.clock import Clock
from tierd.base.errors import StartRefused
from tierd.remote.limits import Urgency, now_urgent
from tierd.remote.open import Bucket
from tierd.tiering.verify.facts import Judged, Seen, judge, seen_twice
from tierd.tiering.verify.look import Archives, Place, read_facts, survey
from tierd.tiering.verify.segment import check_segment, cost_of
from tierd.tiering.verify.spending import Budget, Cost, CountedStore
from tierd.tiering.verify.standing import Cursor, PartitionReport, Standing
from tierd.tiering.verify.verdicts import Finding, Verdict, in_sample, ranges, worst

_KEEP_MS = 5_000
"""So often the standing is kept while a partition is looked at."""


class NothingThere(StartRefused):
    """No archive and no segment lies under the URL: it is not the one that was meant."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run, together with those that it went on from, has found."""

    standing: Standing
    problems: tuple[str, ...]
    """Documents of the whole bucket that cannot be read."""
    archive_id: str | None

    @property
    def complete(self) -> bool:
        return self.standing.cursor is None

    @property
    def verdict(self) -> Verdict:
        found = worst(one.verdict for one in self.standing.reports)
        return Verdict.FAILURE if self.problems else found


@dataclass(frozen=True, slots=True)
class Progress:
    segments_done: int
    segments: int
    """Of the partitions that were looked at so far."""
    bytes_done: int
    detail: str


class Verify:
    """Blocking; one `run`."""

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        standing: Standing,
        *,
        budget: Budget,
        threads: int,
        keep: Callable[[Standing], None],
        report: Callable[[Progress], None],
    ) -> None:
        """*keep* is given each standing that is worth to be kept."""
        self._store = CountedStore(bucket.store)
        self._bucket = replace(bucket, store=self._store)
        self._clock = clock
        self._standing = standing
        self._spent = Cost(standing.requests, standing.bytes)
        self._budget = budget
        self._threads = threads
        self._keep = keep
        self._kept_ms = clock.monotonic_ms()
        self._report = report
        self._planned = Cost()
        self._admitted = 0
        self._done = self._total = 0

    def run(self) -> Report:
        """Raises NothingThere, RemoteUnavailable; what was found until then is kept."""
        self._keep(self._standing)  # a file that cannot be written is better known now than in an hour
        found = survey(self._bucket)
        if found.archive is None and not found.places and not found.problems:
            raise NothingThere(f"{self._bucket.url}: no archive and no segment lies there")
        try:
            with ThreadPoolExecutor(self._threads, "verify", now_urgent, (Urgency.LATER,)) as pool:
                self._places(found, pool)
        finally:
            self._keep_now()
        archive_id = None if found.archive is None else str(found.archive.archive_id)
        return Report(self._standing, found.problems, archive_id)

    def _places(self, found: Archives, pool: ThreadPoolExecutor) -> None:
        cursor = self._standing.cursor
        at = None if cursor is None else Place(cursor.topic, cursor.topic_id, cursor.partition)
        for place in found.places:
            if at is not None and place < at:
                continue
            if self._admitted and not self._budget.allows(self._store.cost.plus(Cost(1))):
                self._stop_at(place, 0)
                return
            if not self._place(found, place, pool, cursor if place == at else None):
                return
        self._standing = replace(self._standing, cursor=None)

    def _stop_at(self, place: Place, offset: int, findings: Sequence[Finding] = (), looked_into: int = 0) -> None:
        self._standing = replace(
            self._standing,
            cursor=Cursor(
                topic=place.topic,
                topic_id=place.topic_id,
                partition=place.partition,
                offset=offset,
                looked_into=looked_into,
                findings=tuple(findings),
            ),
        )

    # --- one partition -----------------------------------------------------------------------------------------------
    def _place(self, found: Archives, place: Place, pool: ThreadPoolExecutor, cursor: Cursor | None) -> bool:
        """False when the budget ended in it."""
        judged = judge(read_facts(self._bucket, place, found.claims))
        self._planned = self._store.cost
        offset = cursor.offset if cursor else 0
        findings = list(cursor.findings) if cursor else []
        looked_into = cursor.looked_into if cursor else 0
        todo = [one for one in judged.counting if one.base >= offset]
        self._total += len(todo)
        self._stop_at(place, offset, findings, looked_into)
        whole = True
        for seen, result in self._each(pool, todo, crc_expected=found.archive is not None):
            if result is None:
                whole = False
                break
            findings += result.found
            looked_into += result.looked
            offset = seen.next_base
            self._stop_at(place, offset, findings, looked_into)
            self._told(place)
        report = self._judged(found, place, judged, findings, looked_into, offset if not whole else None)
        others = tuple(one for one in self._standing.reports if _place_of(one) != place)
        self._standing = replace(self._standing, reports=(*others, report))
        return whole

    def _judged(
        self,
        found: Archives,
        place: Place,
        judged: Judged,
        findings: Sequence[Finding],
        looked_into: int,
        below: int | None,
    ) -> PartitionReport:
        """What is wrong is looked at once more, for an owner may have been at work."""
        structure = judged.findings
        if any(one.verdict is Verdict.FAILURE for one in (*structure, *findings)):
            again = judge(read_facts(self._bucket, place, found.claims))
            structure = seen_twice(judged, again)
            still = {one.name.segment_id for one in again.counting}
            findings = [one for one in findings if one.segment_id in still]
            judged = again
        looked = [(one.base, one.next_base) for one in judged.counting if below is None or one.next_base <= below]
        start = judged.log_start or 0
        looked = [(max(first, start), stop) for first, stop in looked]
        return PartitionReport(
            topic=place.topic,
            topic_id=place.topic_id,
            partition=place.partition,
            log_start=judged.log_start,
            copied_to=judged.copied_to,
            segments=len(judged.counting),
            looked_into=looked_into,
            ranges=tuple(ranges(looked, [*structure, *findings], judged.gaps)),
        )

    def _each(
        self, pool: ThreadPoolExecutor, todo: Sequence[Seen], *, crc_expected: bool
    ) -> Iterator[tuple[Seen, "_Looked | None"]]:
        """Results in order, a few segments ahead; None for the first that the budget does not allow."""
        deep = self._standing.deep
        ahead: deque[tuple[Seen, Future[list[Finding]] | None]] = deque()

        def take() -> tuple[Seen, _Looked]:
            seen, work = ahead.popleft()
            return seen, _Looked([], 0) if work is None else _Looked(work.result(), 1)

        try:
            for seen in todo:
                if not self._wanted(seen):
                    ahead.append((seen, None))
                elif self._admit(cost_of(seen, deep=deep)):
                    work = pool.submit(check_segment, self._bucket, seen, deep=deep, crc_expected=crc_expected)
                    ahead.append((seen, work))
                else:
                    while ahead:
                        yield take()
                    yield seen, None
                    return
                if len(ahead) > 2 * self._threads:
                    yield take()
            while ahead:
                yield take()
        finally:
            for _, begun in ahead:
                if begun is not None:
                    begun.cancel()

    def _wanted(self, seen: Seen) -> bool:
        if seen.empty or seen.missing() is not None:
            return False
        return in_sample(seen.name.segment_id, self._standing.percent, self._standing.turn)

    def _admit(self, cost: Cost) -> bool:
        """The first one always is: so every run gets further."""
        planned = self._planned.plus(cost)
        if self._admitted and not self._budget.allows(planned):
            return False
        self._planned = planned
        self._admitted += 1
        return True

    # --- on the way --------------------------------------------------------------------------------------------------
    def _told(self, place: Place) -> None:
        self._done += 1
        self._report(Progress(self._done, self._total, self._store.cost.bytes, str(place)))
        if self._clock.monotonic_ms() - self._kept_ms >= _KEEP_MS:
            self._keep_now()

    def _keep_now(self) -> None:
        cost = self._spent.plus(self._store.cost)
        self._standing = replace(self._standing, requests=cost.requests, bytes=cost.bytes)
        self._keep(self._standing)
        self._kept_ms = self._clock.monotonic_ms()


@dataclass(frozen=True, slots=True)
class _Looked:
    found: list[Finding]
    looked: int


def _place_of(report: PartitionReport) -> Place:
    return Place(report.topic, report.topic_id, report.partition)
