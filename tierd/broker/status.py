"""The rows of `tierd status` while it runs: both tiers of every partition, joined."""

import asyncio
from collections.abc import Mapping

from tierd import __version__
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.base.ids import PartitionId
from tierd.broker.homes import Home
from tierd.broker.partition import Partition
from tierd.broker.partitions import Partitions
from tierd.broker.ports import RemoteTier
from tierd.broker.problems import problems
from tierd.config.resolve import LOCAL_ONLY_TOPICS
from tierd.remote.view import RemotePartition, RemoteStatus, Waiting

NO_BUCKET = Waiting("untiered", "tierd runs without a bucket")
NOT_TIERED = Waiting("untiered", "remote.storage.enable is false")
INTERNAL = Waiting("internal", "Kafka's own topics stay on the disk")
UNKNOWN = Waiting("unknown", "the tierer does not answer")
TIERER_WAIT_S = 5.0
"""So long the tierer's half of the rows is waited for: status and metrics are needed just when it hangs."""


async def status(partitions: Partitions, tier: RemoteTier | None) -> dict[str, object]:
    """As the JSON of `tierd status --json`: offsets exclusive at the end, None = unknown."""
    known: dict[PartitionId, RemoteStatus] = {}
    if tier is not None:
        try:
            async with asyncio.timeout(TIERER_WAIT_S):
                known = await tier.status()
        except (RemoteUnavailable, TimeoutError):
            known = {}
    claim = None if tier is None else tier.claim
    here = sorted((*partitions, *partitions.read_only), key=lambda partition: partition.name)
    rows = [_row(partitions, partition, known.get(partition.id), tier is not None) for partition in here]
    rows += _offline_rows(partitions, known, has_tier=tier is not None)
    return {
        "version": __version__,
        "running": True,
        "epoch": partitions.epoch,
        "claim": None if claim is None else str(claim.state),
        "directories": [_directory(partitions, home) for home in partitions.homes],
        "set_aside": sum(directory.set_aside.count for directory in partitions.directories),
        "unidentified": [str(path) for directory in partitions.directories for path in directory.unidentified.values()],
        "problems": [problem.row() for problem in problems(partitions)],
        "partitions": sorted(rows, key=lambda row: (row["topic"], row["partition"])),
    }


def _directory(partitions: Partitions, home: Home) -> dict[str, object]:
    here = [partition for partition in partitions if partitions.homes.of(partition.log) is home]
    away = [part for part, why in partitions.outages if why.home is home]
    space = home.space()
    return {
        "path": str(home.path),
        "id": home.id,
        "state": "online" if home.online else "offline",
        "reason": home.reason,
        "free_bytes": None if space is None else space[1],
        "partitions": len(here) + len(away),
    }


def _offline_rows(
    partitions: Partitions, known: Mapping[PartitionId, RemoteStatus], *, has_tier: bool
) -> list[dict[str, object]]:
    """As far as they are known: offsets of the moment when the directory failed, None when this start never saw it."""
    rows = []
    for topic in partitions.topics():
        for number, away in topic.offline.items():
            tierer = known.get(PartitionId(topic.id, number))
            remote = None if tierer is None else tierer.remote
            logged = away.log
            rows.append(
                {
                    "topic": topic.name,
                    "topic_id": str(topic.id),
                    "partition": number,
                    "directory": None if away.home is None else str(away.home.path),
                    "offline": away.reason,
                    "log_start": None if logged is None else logged.log_start,
                    "local_start": None if logged is None else logged.local_start,
                    "copied_to": None if remote is None else remote.copied_to,
                    "last_stable": None if logged is None else logged.last_stable,
                    "log_end": None if logged is None else logged.log_end,
                    "open_transaction": None if logged is None else logged.pinned_by,
                    "gaps": [] if logged is None else [list(gap) for gap in logged.gaps],
                    "local_bytes": None if logged is None else logged.size_bytes,
                    "remote_bytes": _remote_bytes(remote, has_tier),
                    "unpublished_log_start": None,
                    "oldest_uncopied_ms": None if tierer is None else tierer.oldest_uncopied_ms,
                    "compaction": None,
                    "waiting": {"reason": "offline", "detail": away.reason},
                }
            )
    return rows


def _row(
    partitions: Partitions, partition: Partition, tierer: RemoteStatus | None, has_tier: bool
) -> dict[str, object]:
    logged = partition.log
    remote = tierer.remote if tierer is not None else partition.remote
    waiting = _waiting(partition, tierer, has_tier)
    return {
        "topic": partition.name.topic,
        "topic_id": str(partition.id.topic_id) if partition.has_id else None,
        "partition": partition.name.partition,
        "directory": None if partition.archived else str(partitions.homes.of(logged).path),
        "offline": None,
        "log_start": logged.log_start,
        "local_start": logged.local_start,
        "copied_to": None if remote is None else remote.copied_to,
        "last_stable": logged.last_stable,
        "log_end": logged.log_end,
        "open_transaction": logged.pinned_by,
        "gaps": [list(gap) for gap in _gaps(partition)],
        "local_bytes": logged.size_bytes,
        "remote_bytes": _remote_bytes(remote, has_tier and partition.tiered),
        "unpublished_log_start": partition.unpublished_start,
        "oldest_uncopied_ms": None if tierer is None else tierer.oldest_uncopied_ms,
        "compaction": _compaction(partition),
        "waiting": None if waiting is None else {"reason": waiting.reason, "detail": waiting.detail},
    }


def _gaps(partition: Partition) -> tuple[tuple[int, int], ...]:
    """Offsets [start, stop) that are lost; of an archive those that the bucket does not have."""
    if partition.archived and partition.remote is not None:
        return partition.remote.lost
    return partition.log.gaps


def _compaction(partition: Partition) -> dict[str, object] | None:
    """Of a compacted partition: what is clean, how much of what may be cleaned is not, and why it could not be."""
    if partition.archived or not partition.log.settings.compacted:
        return None
    state = partition.log.compaction
    try:
        dirty = state.dirty(partition.copied_to)
    except (CorruptFile, OSError):
        ratio = dirty_bytes = None  # the cleaner says what is wrong when it comes to it
    else:
        ratio, dirty_bytes = (0.0, 0) if dirty is None else (round(dirty.ratio, 4), dirty.dirty_bytes)
    return {
        "cleaned_to": state.cleaned_to,
        "dirty_bytes": dirty_bytes,
        "dirty_ratio": ratio,
        "running": state.running,
        "finished_ms": state.finished_ms,
        "problem": state.problem,
    }


def _remote_bytes(remote: RemotePartition | None, tiered: bool) -> int | None:
    """Of a tiered partition that the tierer has said nothing about it is not known; any other has nothing there."""
    if remote is not None:
        return remote.size_bytes
    return None if tiered else 0


def _waiting(partition: Partition, tierer: RemoteStatus | None, has_tier: bool) -> Waiting | None:
    if partition.archived:
        return None
    return local_waiting(partition, has_tier=has_tier) or (UNKNOWN if tierer is None else tierer.waiting)


def local_waiting(partition: Partition, *, has_tier: bool) -> Waiting | None:
    """Why nothing of the partition is copied, as far as that has nothing to do with the bucket."""
    if partition.log.read_only is not None:
        return Waiting("read-only", partition.log.read_only)
    return None if has_tier and partition.tiered else untiered(partition.name.topic, has_tier=has_tier)


def untiered(topic: str, *, has_tier: bool) -> Waiting:
    """Why nothing of a topic goes to a bucket."""
    if topic in LOCAL_ONLY_TOPICS:
        return INTERNAL
    return NOT_TIERED if has_tier else NO_BUCKET
