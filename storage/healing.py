"""What the bucket gives back to a log whose own files have lost it (ENGINE.md, "Recovery"). Before the log begins."""

from tierd.base.ids import TopicPartition
from tierd.storage.appending import SeedFiles
from tierd.storage.context import LogContext
from tierd.storage.epochs import parse_epochs
from tierd.storage.lineage import Lineage
from tierd.storage.producers import Producers
from tierd.storage.recovery import Recovery
from tierd.storage.segments import Segments
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.snapshots import Snapshots


def memory_of(seed: SeedFiles, lineage: Lineage, now_ms: int) -> Producers:
    """The producers at the end of the bucket's copy; *lineage* becomes what it was there. Raises CorruptFile, OSError.

    Comes before the log restarts there: a start after a crash in between drops what lies beyond the old end, and comes
    here again.
    """
    producers = Producers.from_entries(parse_snapshot(seed.snapshot, "snapshot in the bucket"), now_ms)
    lineage.replace(parse_epochs(seed.leader_epochs, "leader epochs in the bucket"))
    lineage.save()
    return producers


def recall(
    context: LogContext,
    name: TopicPartition,
    segments: Segments,
    snapshots: Snapshots,
    lineage: Lineage,
    seed: SeedFiles,
    at: int,
) -> Producers:
    """The producers as they are at the log end, from *seed*, which tells of all batches below *at*, and a replay of
    the local ones from there on; snapshots and epochs are put right. Any thread. Raises CorruptFile, DiskFull, OSError.
    """
    now_ms = context.clock.now_ms()
    producers = Producers.from_entries(parse_snapshot(seed.snapshot, "snapshot in the bucket"), now_ms)
    older = parse_epochs(seed.leader_epochs, "leader epochs in the bucket")
    if lineage.precede(older):
        lineage.save()
    recovery = Recovery(name, context.disk, context.set_aside, producers, lineage, now_ms)
    kept = set()
    for i, segment in enumerate(segments):
        next_base = segments.next_base(i)
        if next_base is not None and next_base <= at:
            continue  # it is in the bucket, with a snapshot of its own
        if segment.base >= at:
            snapshots.write(segment.base, producers)
            kept.add(segment.base)
        recovery.replay(segment, at)
    snapshots.sweep(kept)
    return producers
