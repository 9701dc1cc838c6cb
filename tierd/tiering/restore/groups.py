"""How far consumer groups had come, for the topics of a restore: out of a group file, and not behind a log's end."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.documents import NewerFormat
from tierd.remote.errors import NotFound
from tierd.remote.groups import GroupFile, GroupOffset, GroupOffsets, parse_groups
from tierd.remote.open import Bucket
from tierd.tiering.group_files import list_groups
from tierd.tiering.restore.plan import PartitionPlan, Plan

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clamped:
    """What a group file comes to."""

    taken_ms: int
    groups: tuple[GroupOffsets, ...]
    """Topics by the names and ids that they get."""
    set_back: int
    """Offsets that lay behind the end of what is restored: they are that end."""
    dropped: int
    """Offsets in topics and partitions that are not restored."""

    @property
    def offsets(self) -> int:
        return sum(len(one.offsets) for one in self.groups)


def find_groups(bucket: Bucket, until_ms: int | None) -> GroupFile | None:
    """The newest file, of those that were taken until then; without one the oldest, for later commits are set back.

    None when the bucket has none that is whole. Raises NewerFormat, RemoteUnavailable.
    """
    last = None
    for file in _files(bucket):
        last = file
        if until_ms is None or file.taken_ms <= until_ms:
            break
    return last


def _files(bucket: Bucket) -> Iterator[GroupFile]:
    """The newest first."""
    for written in reversed(list_groups(bucket)):
        key = bucket.keys.groups(written.epoch, written.sequence)
        try:
            yield parse_groups(bucket.store.get(key), key)
        except NotFound:
            continue
        except NewerFormat:
            raise
        except CorruptFile as error:
            log.warning("a group file does not parse, another one is taken: %s", error)


def clamp(file: GroupFile, plan: Plan, ids: Mapping[Uuid, Uuid], now_ms: int) -> Clamped:
    """*ids*: those that the topics get, by those that they have in the bucket.

    Offsets count as committed at *now_ms*, or a group would lose them for having been away before it can come back.
    """
    by_id = {(one.source.topic_id, one.name.partition): one for one in plan.partitions}
    by_name = {(one.name.topic, one.name.partition): one for one in plan.partitions}
    groups, set_back, dropped = list[GroupOffsets](), 0, 0
    for group in file.groups:
        kept = []
        for one in group.offsets:
            part = by_name.get((one.topic, one.partition))
            if one.topic_id is not None:
                part = by_id.get((one.topic_id, one.partition))
            if part is None:
                dropped += 1
                continue
            kept.append(_moved(one, part, ids[part.source.topic_id], now_ms))
            set_back += one.offset > part.log_end
        if kept:
            groups.append(GroupOffsets(group.group, tuple(kept)))
    return Clamped(taken_ms=file.taken_ms, groups=tuple(groups), set_back=set_back, dropped=dropped)


def _moved(one: GroupOffset, part: PartitionPlan, topic_id: Uuid, now_ms: int) -> GroupOffset:
    late = one.offset > part.log_end
    return replace(
        one,
        topic=part.name.topic,
        topic_id=topic_id,
        offset=min(one.offset, part.log_end),
        leader_epoch=None if late else one.leader_epoch,
        commit_ms=now_ms,
        expire_ms=None if one.expire_ms is None else now_ms + max(0, one.expire_ms - one.commit_ms),
    )
