"""Which partition is cleaned, with what, and what happens around it; the worker is one that works in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from kit.clock import FakeClock
from kit.compaction import COMPACTED, flush, records
from kit.keyed import History
from kit.logs import Place
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.base.ids import PartitionId, TopicPartition, Uuid
from tierd.broker.cleaning import Cleaning, CleaningLimits
from tierd.broker.counters import Counters
from tierd.broker.partition import Partition
from tierd.config.topic import TopicSettings
from tierd.remote.view import Claim, ClaimState, RemotePartition
from tierd.storage.compaction.cleaner import Cleaner
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.names import Suffix
from tierd.storage.view import PartitionView

TOPIC = Uuid(bytes(range(16)))


class ThreadWorker:
    """Cleans in a thread of this process. *before* sees each job first."""

    def __init__(self) -> None:
        self.jobs: list[CleanJob] = []
        self.before: Callable[[CleanJob], None] = lambda _: None
        self.closed = False

    async def clean(self, job: CleanJob, take: Callable[[CleanedGroup], bool]) -> CleanReport:
        self.jobs.append(job)
        self.before(job)
        groups: list[CleanedGroup] = []
        report = await asyncio.to_thread(Cleaner(job, PosixDisk(), groups.append, lambda: False).run)
        for group in groups:
            if not take(group):
                break
        return report

    async def close(self) -> None:
        self.closed = True


class Tier:
    """As much of a RemoteTier as cleaning needs."""

    def __init__(self) -> None:
        self.claim = Claim(state=ClaimState.HELD, epoch=1)
        self.told: list[tuple[bool, int | None]] = []
        self.remote: RemotePartition | None = None
        self.away = False

    async def hold_copies(self, part: PartitionId) -> RemotePartition | None:
        assert self.told[-1][0], "it must have been told before"
        if self.away:
            raise RemoteUnavailable("S3 503")
        return self.remote

    def partition_changed(self, view: PartitionView) -> None:
        self.told.append((view.cleaning, view.cleaned_to))


class Bench:
    """Some partitions with histories, and a Cleaning over them."""

    def __init__(self, root: Path, *settings: TopicSettings, tier: Tier | None = None) -> None:
        place = Place(root)
        self.clock = FakeClock()
        self.directory: LogDirectory = place.open()
        self.partitions: list[Partition] = []
        self.waiting: set[PartitionId] = set()
        self.histories: list[History] = []
        for number, one in enumerate(settings):
            log = self.directory.create(TopicPartition("t", number), TOPIC, one)
            log.begin(0, 0)
            history = History(Random(number), clock_ms=self.clock.now_ms())
            history.write(log, 30 + 10 * number)
            history.settle(log)
            flush(log)
            self.partitions.append(Partition(log, PartitionId(TOPIC, number), internal=False))
            self.histories.append(history)
        self.worker, self.counters, self.tier = ThreadWorker(), Counters(), tier
        self.changed: list[Partition] = []
        self._until: Callable[[], bool] = lambda: False
        self.cleaning = Cleaning(
            self,  # type: ignore[arg-type]
            self.worker,
            tier,  # type: ignore[arg-type]
            self.clock,
            self.counters,
            CleaningLimits(memory_bytes=1 << 20, reserve_bytes=0, backoff_ms=10),
            changed=self.changed.append,
        )

    def __iter__(self) -> Any:
        """What the cleaning looks at whenever it has nothing in hand."""
        if not self._until():
            return iter(self.partitions)
        self.cleaning.stop()
        return iter(())

    def note(self, partition: Partition, error: BaseException) -> None:
        raise AssertionError(error)

    def drive(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until a look finds *until*, or something stops the cleaning."""
        self._until = until

        async def run() -> None:
            async with asyncio.timeout(30):
                await self.cleaning.run()

        asyncio.run(run())
        assert self.worker.closed
        assert not any(partition.log.compaction.running for partition in self.partitions)
        self.directory.close(clean=True)


def cleaned(partition: Partition) -> bool:
    return partition.log.compaction.cleaned_to == partition.log.view().active_base


def test_a_lost_transaction_index_holds_nothing_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, COMPACTED)
    [partition] = bench.partitions
    log, indexes = partition.log, sorted(partition.log.directory.glob("*.txnindex"))
    assert indexes
    for segment, path in ((one, one.path(Suffix.TXN_INDEX)) for one in log._segments.closed):
        path.unlink(missing_ok=True)
        segment.has_txn_index = False  # as a start finds it that has no list either
        log._context.indexes.forget(segment)
    bench.drive(lambda: cleaned(partition))
    assert bench.counters.cleanings_failed == 0
    assert len(bench.worker.jobs) > 1
    left = {record.key: record.value for record in records(log.directory)}
    assert {key: value for key, value in left.items() if value is not None} == bench.histories[0].known()


def test_all_compacted_partitions_get_clean_and_no_other(tmp_path: Path) -> None:
    bench = Bench(tmp_path, COMPACTED, replace(COMPACTED, cleanup_policy=frozenset({"delete"})), COMPACTED)
    first, plain, last = bench.partitions
    bench.drive(lambda: cleaned(first) and cleaned(last))
    assert plain.log.compaction.cleaned_to is None
    assert bench.counters.cleanings == 2
    assert bench.counters.kept_bytes < bench.counters.cleaned_bytes
    assert sorted(map(str, bench.changed)) == ["t-0", "t-2"]


def test_what_cannot_be_cleaned_rests_and_holds_nobody_up(tmp_path: Path) -> None:
    bench = Bench(tmp_path, COMPACTED, COMPACTED)
    bad, good = bench.partitions

    def before(job: CleanJob) -> None:
        if job.directory == bad.log.directory:
            raise CorruptFile("a segment", 7, "the CRC does not match")

    bench.worker.before = before
    bench.drive(lambda: cleaned(good) and bench.counters.cleanings_failed > 0)
    assert bench.counters.cleanings_failed == 1
    assert bad.log.compaction.cleaned_to is None


def test_a_partition_deleted_meanwhile_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, COMPACTED)
    [partition] = bench.partitions

    def before(job: CleanJob) -> None:
        partition.deleted = True

    bench.worker.before = before
    bench.drive(lambda: bool(bench.worker.jobs) and not partition.log.compaction.running)
    assert partition.log.compaction.cleaned_to is None
    assert bench.counters.cleanings == 0


TIERED = replace(COMPACTED, remote_storage_enable=True)


def remote(start: int | None, copied_to: int | None) -> RemotePartition:
    return RemotePartition(
        id=PartitionId(TOPIC, 0), start=start, copied_to=copied_to, log_start=None, size_bytes=1, leader_epoch=0
    )


def with_tier(root: Path, known: RemotePartition | None) -> Bench:
    bench = Bench(root, TIERED, tier=Tier())
    assert bench.tier is not None
    bench.partitions[0].remote = bench.tier.remote = known
    return bench


def test_the_tierer_is_told_before_and_after(tmp_path: Path) -> None:
    bench = with_tier(tmp_path, remote(None, None))
    bench.drive(lambda: cleaned(bench.partitions[0]))
    assert bench.tier is not None
    end = bench.partitions[0].log.compaction.cleaned_to
    assert bench.tier.told == [(True, None), (False, end)]
    assert not bench.worker.jobs[0].keep_deletes


def test_a_new_partition_that_the_bucket_never_spoke_of_is_asked_for(tmp_path: Path) -> None:
    bench = with_tier(tmp_path, remote(None, None))
    bench.partitions[0].remote = None
    bench.drive(lambda: cleaned(bench.partitions[0]))
    assert len(bench.worker.jobs) == 1


def test_nothing_below_the_copied_end_is_cleaned_and_deletes_stay(tmp_path: Path) -> None:
    bench = with_tier(tmp_path, remote(0, 0))
    copied_to = bench.partitions[0].log.closed()[1].base
    assert bench.tier is not None
    bench.tier.remote = remote(0, copied_to)  # a copy ended while it was waited for
    bench.drive(lambda: cleaned(bench.partitions[0]))
    [job] = bench.worker.jobs
    assert job.sources[0].base == copied_to
    assert job.keep_deletes


def test_without_word_from_the_bucket_nothing_is_cleaned(tmp_path: Path) -> None:
    for number, prepare in enumerate((_pending, _away)):
        bench = with_tier(tmp_path / str(number), remote(0, 0))
        prepare(bench)
        looks = iter(range(20))
        bench.drive(lambda looks=looks: next(looks, None) is None)  # type: ignore[misc]
        assert not bench.worker.jobs
        assert bench.counters.cleanings_failed == 0


def _pending(bench: Bench) -> None:
    assert bench.tier is not None
    bench.tier.claim = Claim(state=ClaimState.PENDING, epoch=1)


def _away(bench: Bench) -> None:
    assert bench.tier is not None
    bench.tier.away = True


def test_stopping_gives_up_what_is_under_way(tmp_path: Path) -> None:
    bench = Bench(tmp_path, COMPACTED)

    async def forever(job: CleanJob, take: Callable[[CleanedGroup], bool]) -> CleanReport:
        bench.cleaning.stop()
        waiting: Awaitable[Any] = asyncio.Event().wait()
        await waiting
        raise AssertionError

    bench.worker.clean = forever  # type: ignore[method-assign]
    bench.drive()
    assert bench.partitions[0].log.compaction.cleaned_to is None
