"""This run of the daemon, as the catalog notes it and the bucket's claim says it: its epoch, and where it begins."""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tierd.base.ids import PartitionId, Uuid
from tierd.config.resolve import is_internal
from tierd.remote import owner
from tierd.remote.owner import OwnerClaim, TopicStart
from tierd.tiering.catalog import Catalog
from tierd.tiering.divergence import add_unclaimed, forget_unclaimed
from tierd.tiering.opening import HELD_EPOCH, Surveyed
from tierd.tiering.options import OpenRequest

_LAST, _RUN = "last_epoch", "run"
_FAR = 1_000
"""Starts that a lost catalog may have known of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """This run's epoch and first appends, the same however often the tierer is started again."""

    epoch: int
    incarnation: Uuid
    topics: tuple[TopicStart, ...]
    held: bool = False
    """The claim was in the bucket once; from then on copies of this run lie above its first appends."""
    waiting: tuple[PartitionId, ...] = ()
    """Nobody could say how far the bucket is with these: nothing is appended before it has answered."""


def new_run(
    catalog: Catalog,
    request: OpenRequest,
    claims: Iterable[OwnerClaim],
    *,
    waiting: Iterable[PartitionId] = (),
    outside: Collection[PartitionId] = (),
) -> Run:
    """Epoch above every known one; first appends at the larger of log end and copied end. Noted in the catalog.

    *outside*: partitions whose local log is given up for what the bucket has. *waiting*: those of which only the
    bucket knows; it may know later epochs, too, so one is taken that lies far above them.
    """
    waiting = tuple(waiting)
    last = catalog.get(_LAST)
    in_logs = [request.local_epoch, *(_copied_epochs(catalog) if request.lost_host else ())]
    epoch = owner.next_epoch([claim.epoch for claim in claims], None if last is None else int(last), in_logs)
    run = Run(
        epoch=epoch + (_FAR if waiting else 0),
        incarnation=request.identity.incarnation,
        topics=_first_appends(catalog, request, outside),
        waiting=waiting,
    )
    note_run(catalog, run)
    return run


def _copied_epochs(catalog: Catalog) -> list[int]:
    """The last leader epoch of each partition in the bucket: where no disk says it."""
    found = (catalog.remote_partition(row.part).leader_epoch for row in catalog.partitions())
    return [epoch for epoch in found if epoch is not None]


def unvouched(catalog: Catalog, request: OpenRequest) -> list[PartitionId]:
    """Tiered partitions of which the catalog knows nothing: a lost one, or data that comes from elsewhere.

    The bucket may have more of them than the disk, and an offset must not be given out twice.
    """
    return [
        view.id for view in request.views if view.settings.remote_storage_enable and catalog.partition(view.id) is None
    ]


def vouched(run: Run, catalog: Catalog, request: OpenRequest) -> Run:
    """The bucket has answered, and nothing was appended to what waited for that: it begins behind the copied end."""
    known = {start.topic_id: start for start in run.topics}
    topics = []
    for start in _first_appends(catalog, request):
        before = known.get(start.topic_id)
        if before is not None:
            waited = {
                part.partition: start.first_append.get(part.partition, 0)
                for part in run.waiting
                if part.topic_id == start.topic_id
            }
            start = replace(start, first_append={**before.first_append, **waited})
        topics.append(start)
    return replace(run, topics=tuple(topics))


def remember_unclaimed(catalog: Catalog, incarnation: Uuid) -> None:
    """What the run before this one may have written without ever having the bucket. Before `new_run`."""
    raw = catalog.get(_RUN)
    before = None if raw is None else _parse(raw)
    if before is None or before.held or before.incarnation == incarnation:
        return
    noted = {start.topic_id: start.first_append for start in before.topics}
    firsts = {PartitionId(topic_id, number): first for topic_id, by in noted.items() for number, first in by.items()}
    for row in catalog.partitions():
        if row.part.topic_id in noted:
            firsts.setdefault(row.part, 0)  # not noted: it began with the run's records
    add_unclaimed(catalog, firsts)


NEVER = 2**63 - 1
"""The first append of a run to a partition whose directory is offline: records of earlier runs there still count,
also those that nobody has seen, when it is back."""


def _first_appends(
    catalog: Catalog, request: OpenRequest, outside: Collection[PartitionId] = ()
) -> tuple[TopicStart, ...]:
    if request.only_copies:
        return ()
    topics: dict[Uuid, str] = {state.topic_id: state.topic for state in request.topics if state.deleted_ms is None}
    firsts: dict[PartitionId, int] = {}
    for row in catalog.partitions():
        topics[row.part.topic_id] = row.topic
        firsts[row.part] = row.copied_to or 0
    for view in request.views:
        if is_internal(view.name.topic):
            continue
        topics[view.id.topic_id] = view.name.topic
        if view.id not in outside:
            firsts[view.id] = max(view.log_end, firsts.get(view.id, 0))
    firsts.update(dict.fromkeys(request.offline, NEVER))
    by_topic: dict[Uuid, dict[int, int]] = {topic_id: {} for topic_id in topics}
    for part, first in sorted(firsts.items()):
        if first and part.topic_id in by_topic:
            by_topic[part.topic_id][part.partition] = first
    return tuple(
        TopicStart(topic=topic, topic_id=topic_id, first_append=by_topic[topic_id])
        for topic_id, topic in topics.items()
    )


def note_run(catalog: Catalog, run: Run) -> None:
    starts = [
        [start.topic, str(start.topic_id), sorted(start.first_append.items())]
        for start in run.topics
    ]  # fmt: skip
    waiting = [[str(part.topic_id), part.partition] for part in run.waiting]
    body = {"epoch": run.epoch, "incarnation": str(run.incarnation), "held": run.held, "topics": starts}
    catalog.put(_RUN, json.dumps({**body, "waiting": waiting}))
    catalog.put(_LAST, str(run.epoch))
    if run.held:
        catalog.put(HELD_EPOCH, str(run.epoch))
        forget_unclaimed(catalog)


def noted_run(catalog: Catalog, incarnation: Uuid) -> Run | None:
    """The run of this incarnation, when the catalog was there when it began."""
    raw = catalog.get(_RUN)
    run = None if raw is None else _parse(raw)
    return None if run is None or run.incarnation != incarnation else run


def _parse(raw: str) -> Run:
    body = json.loads(raw)
    topics = tuple(
        TopicStart(topic=topic, topic_id=Uuid.parse(topic_id), first_append=dict(firsts))
        for topic, topic_id, firsts in body["topics"]
    )
    return Run(
        epoch=body["epoch"],
        incarnation=Uuid.parse(body["incarnation"]),
        topics=topics,
        held=body["held"],
        waiting=tuple(PartitionId(Uuid.parse(topic_id), number) for topic_id, number in body.get("waiting", ())),
    )


def claim_of(run: Run, request: OpenRequest, now_ms: int) -> OwnerClaim:
    identity = request.identity
    return OwnerClaim(
        epoch=run.epoch,
        incarnation=run.incarnation,
        holder=identity.holder,
        host=identity.host,
        claimed_ms=now_ms,
        topics=run.topics,
    )


def why_lost(run: Run, surveyed: Surveyed, catalog: Catalog, request: OpenRequest) -> str | None:
    """Why a run that began while the bucket was silent cannot have it; None when it can."""
    newest = surveyed.newest
    if newest is not None and newest.incarnation != run.incarnation:
        foreign = owner.is_foreign(newest, request.identity.holder)
        if newest.epoch >= run.epoch or (foreign and not request.recover):
            return f"the bucket is claimed by {newest.describe()}"
    if run.held:
        return None
    claim = claim_of(run, request, 0)
    for row in catalog.partitions():
        first = claim.first_append(row.part)
        if first is not None and row.copied_to is not None and row.copied_to > first:
            return f"{row.topic}-{row.part.partition}: the bucket ends at {row.copied_to}, this run began at {first}"
    return None
