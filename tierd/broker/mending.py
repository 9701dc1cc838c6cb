"""What the bucket mends of a local log that an unclean stop or a damaged disk has harmed, before the log begins."""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tierd.base.errors import CorruptFile, RemoteUnavailable, StartRefused
from tierd.base.ids import PartitionId
from tierd.broker.gap_judge import GapJudge
from tierd.broker.partition import Partition
from tierd.broker.ports import RemoteTier
from tierd.remote.view import RemotePartition
from tierd.storage.errors import FlushPutOff, StorageFailed
from tierd.storage.view import Seed

log = logging.getLogger(__name__)

SEED_AGAIN_S = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a take-over asks again: as long as a start waits for a silent bucket."""


async def begin_one(
    partition: Partition, epoch: int, tier: RemoteTier | None, *, over: bool, start_known: bool
) -> None:
    """Enter *epoch* above what the bucket has. *over*: what the disk has is given up for that.

    *start_known*: a checkpoint lists the partition's log start. Raises RemoteUnavailable, CorruptFile, DiskFull,
    OSError.
    """
    logged, copied_to = partition.log, partition.copied_to
    first, seed = logged.log_end, None
    if copied_to is not None and (copied_to > first or over):
        assert tier is not None
        facts = {"partition": str(partition), "log_end": first, "copied_to": copied_to}
        if over:
            log.warning("the disk has other records than the bucket", extra=facts)
        elif not partition.taken:
            log.warning("the disk had fallen behind the bucket", extra=facts)
        first, seed = copied_to, await _seed(partition, tier, patient=over)
    elif logged.forgetful and copied_to is not None and tier is not None:
        await recall(partition, copied_to, tier)
    if (
        partition.remote is not None
    ):  # records were deleted that no copy ever had: their offsets are not given out again
        first = max(first, partition.remote.log_start or 0)
    gaps = GapJudge(partition, tier)
    await gaps.judge()
    logged.begin(epoch, first, seed, over=over)
    gaps.stay()
    await make_visible(partition)
    settle_log_start(partition, known=start_known)
    partition.tell(tier)


async def _seed(partition: Partition, tier: RemoteTier, *, patient: bool) -> Seed:
    """*patient*: tried again for a while; what the disk has of such a partition must not be served meanwhile."""
    pauses_s = iter(SEED_AGAIN_S if patient else ())
    while True:
        try:
            return await tier.seed(partition.id)
        except RemoteUnavailable as error:
            if (pause_s := next(pauses_s, None)) is None:
                raise RemoteUnavailable(
                    f"{partition}: the disk is behind the bucket, and what it needs to go on does not come from there:"
                    f" {error}; start again when the bucket answers"
                ) from error
            log.warning("asked again: %s", error, extra={"partition": str(partition), "pause_s": pause_s})
        await asyncio.sleep(pause_s)


def is_behind(partition: Partition) -> bool:
    """What it needs to go on lies in the bucket."""
    return partition.copied_to is not None and partition.copied_to > partition.log.log_end


def let_wait(partition: Partition) -> None:
    """Until `begin_one`, when the bucket has answered: readers pass over no offsets that it may have."""
    partition.log.on_loss = _judged_later
    log.warning(
        "partition takes no appends until the bucket has answered: it may hold more of it than the disk",
        extra={"partition": str(partition), "log_end": partition.log.log_end, "copied_to": partition.copied_to},
    )


def _judged_later() -> None:
    """What reads find lost is asked for when the log begins."""


async def recall(partition: Partition, copied_to: int, tier: RemoteTier) -> None:
    """Take the producers and epochs that the disk has forgotten from the bucket; it goes without when that is away:
    then an old producer is a new one here, as in Kafka."""
    facts: dict[str, object] = {"partition": str(partition), "copied_to": copied_to}
    try:
        seed = await tier.seed(partition.id)
        await asyncio.get_running_loop().run_in_executor(None, partition.log.recall, seed, copied_to)
    except (RemoteUnavailable, CorruptFile) as error:
        log.error("older producers and epochs are not known", extra={**facts, "why": str(error)})
    else:
        log.warning("older producers and epochs were taken from the bucket", extra=facts)


async def make_visible(partition: Partition) -> None:
    """Flush what readers may see only once it is on the disk, when an unclean stop has left such batches."""
    logged = partition.log
    if logged.high_watermark < logged.log_end and (job := logged.unflushed(active=True)) is not None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, job.run)
        except (FlushPutOff, StorageFailed) as error:
            log.error("flush failed", extra={"partition": str(partition), "why": str(error)})
        logged.flushed(job)


def settle_log_start(partition: Partition, *, known: bool) -> None:
    """Log start is the largest that checkpoint (*known*: it lists the partition) and bucket know.

    A missing entry never means the first local base while the bucket has older segments (FORMAT.md, "Checkpoints").
    Where there is an entry, older segments that the bucket does not show are lost there: they do not move it.
    """
    logged, remote = partition.log, partition.remote
    start = 0 if remote is None else remote.log_start or 0
    if not known:
        oldest = None if remote is None else remote.start
        start = max(start, logged.local_start if oldest is None else min(oldest, logged.local_start))
        if start < logged.local_start and not partition.taken:
            log.warning(
                "log start was lost, taken from the bucket", extra={"partition": str(partition), "start": start}
            )
    if start > logged.log_start:
        logged.move_log_start(start)
    logged.start_known = True


def refuse_untiered(partitions: Iterable[Partition], remotes: Mapping[PartitionId, RemotePartition]) -> None:
    """Raises StartRefused when the settings say of a partition that it is not tiered, and a part of it lies in the
    bucket alone: as an untiered log it would begin where the disk does, and the bucket would forget the rest."""
    for partition in partitions:
        remote, local_start = remotes.get(partition.id), partition.log.local_start
        if partition.tiered or partition.internal or remote is None or remote.start is None:
            continue
        if remote.start < local_start:
            raise StartRefused(
                f"remote.storage.enable=false for {partition}, but its offsets {remote.start} to {local_start - 1} lie "
                "only in the bucket: set remote.log.copy.disable=true to copy no more, or delete the topic"
            )
