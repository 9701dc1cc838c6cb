"""Copies what lies in directories that nobody here writes to: a tierer without a broker, for as long as that takes.

Planner, copier, claim, catalog and documents are those of a daemon. Its claim names no topic: it appends nothing, and
what the logs' writer adds later counts, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.open import Bucket
from tierd.remote.view import Claim, RemotePartition
from tierd.storage.view import PartitionView
from tierd.tiering.catalog import Catalog
from tierd.tiering.divergence import local_epochs
from tierd.tiering.options import Identity, OpenRequest, TiererOptions, TopicState
from tierd.tiering.tierer import Tierer
from tierd.tiering.verbs import Outcome, Report, VerbResult


class Untouched:
    """A LocalTier over somebody else's logs: nothing ever leaves them."""

    def __init__(self, views: Iterable[PartitionView]) -> None:
        self._views = {view.id: view for view in views}

    async def evict(self, part: PartitionId, local_start: int) -> int:
        return self._views[part].local_start

    async def move_log_start(self, part: PartitionId, log_start: int) -> int:
        return self._views[part].log_start

    def remote_changed(self, remote: RemotePartition) -> None:
        """The catalog has it."""

    def claim_changed(self, claim: Claim) -> None:
        """The verb ends with it."""

    def topic_is_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        """Settings are those of the bucket; here are none."""

    def tombstone_written(self, topic_id: Uuid) -> None:
        """It stays: there is no registry that could forget it."""


async def backfill(
    options: TiererOptions,
    clock: Clock,
    disk: Disk,
    bucket: Bucket,
    catalog: Catalog,
    views: Sequence[PartitionView],
    identity: Identity,
    report: Report,
) -> VerbResult:
    """Claim the bucket, copy every closed segment of *views* that may be, and have heads and topic files follow.

    The bucket and the catalog are closed then. Raises StartRefused when somebody else has the bucket.
    """
    tierer = Tierer(options, clock, bucket, catalog, Untouched(views), disk=disk)
    try:
        await tierer.open(
            OpenRequest(
                views=tuple(views),
                topics=_topics(catalog, views, clock.now_ms()),
                local_epoch=max((one.epoch for view in views for one in local_epochs(view)), default=-1),
                identity=identity,
                recover=False,
                claimed=None,
                only_copies=True,
            )
        )
        result = await tierer.verbs.copy(wait=True, timeout_ms=None, report=report)
        await tierer.publisher.tick()
        if result.outcome is Outcome.DONE and (catalog.dirty_heads() or catalog.topics(dirty=True)):
            return replace(result, outcome=Outcome.UNAVAILABLE, detail="heads or topic files could not be written")
        return result
    finally:
        await tierer.close()


def _topics(catalog: Catalog, views: Iterable[PartitionView], now_ms: int) -> tuple[TopicState, ...]:
    """As far as the directories tell. What is set for a topic stays as the catalog has it from the bucket."""
    found: dict[Uuid, TopicState] = {}
    for view in views:
        topic_id = view.id.topic_id
        known = found.get(topic_id) or _known(catalog, topic_id)
        if known is None:
            known = TopicState(
                topic=view.name.topic, topic_id=topic_id, partitions=0, config={}, created_ms=now_ms, adopted=True
            )
        found[topic_id] = replace(known, partitions=max(known.partitions, view.id.partition + 1))
    return tuple(found.values())


def _known(catalog: Catalog, topic_id: Uuid) -> TopicState | None:
    row = catalog.topic(topic_id)
    return None if row is None else row[0]
