"""Which objects of the bucket nobody needs any more, and which nobody can explain. Pure.

Every key says what it is (remote/LAYOUT.md). What goes is known to be worthless: its offsets are in a segment that
counts, below log start, or on the disk still; or its topic is deleted. What is not known stays and is named.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.keys import PROBE, HeadKey, Keys, ObjectKind, PageKey, SegmentName, SegmentObject
from tierd.remote.store import ObjectInfo, UploadInfo


class Kind(StrEnum):
    """What is found; the first three go."""

    ORPHAN = "orphan"
    """Objects of a copy that was never committed and that nobody has in hand."""
    UPLOAD = "upload"
    """Parts of a multipart upload that nobody goes on with."""
    DELETED = "deleted topic"
    """Left of a topic whose tombstone lies in the bucket."""
    YOUNG = "young"
    """Goes when it is old enough: a request for it may still be on its way."""
    UNEXPLAINED = "unexplained"
    """Stays."""
    VERSION = "old version"
    """In a versioned bucket, of what was deleted or replaced; goes on request only."""


GOES = frozenset({Kind.ORPHAN, Kind.UPLOAD, Kind.DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing that is not in use."""

    kind: Kind
    keys: tuple[str, ...]
    """Its objects; the manifest first, which is the order in which they are deleted."""
    bytes: int
    why: str
    upload_id: str | None = None
    """Of a multipart upload; its one key is not an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What is known of one partition."""

    rows: frozenset[Uuid] = frozenset()
    """Segments with a row in the catalog, whatever its state: they are the copier's and retention's."""
    ranges: Sequence[tuple[int, int]] = ()
    """Offsets of committed segments that are whole."""
    accepted: Sequence[tuple[int, int]] = ()
    """Offsets whose loss somebody has accepted."""
    log_start: int = 0
    local: tuple[int, int] | None = None
    """Offsets [start, stop) that the disk has; None: the partition is not on this disk."""
    named: frozenset[Uuid] | None = frozenset()
    """What the head in the bucket names; None: it cannot be read."""
    kept: bool = False
    """The catalog has the partition: what becomes of its head is retention's."""
    live: bool = True
    """Its topic is in the registry."""
    deleted: bool = False
    """A tombstone says that its topic is."""

    def needless(self, base: int) -> bool:
        """Whether what begins at *base* is in the bucket, released, or can be copied from the disk."""
        if base < self.log_start or any(start <= base < stop for start, stop in self.ranges):
            return True
        return self.local is not None and self.local[0] <= base < self.local[1]

    def given_up(self, base: int) -> bool:
        """Whether the loss of what begins at *base* was accepted."""
        return any(start <= base < stop for start, stop in self.accepted)


@dataclass(slots=True)
class _Stem:
    name: SegmentName
    objects: dict[ObjectKind, ObjectInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Guard:
    """Objects that are younger stay, by the bucket's clock."""

    now_ms: int
    age_ms: int

    def old(self, since_ms: int) -> bool:
        return self.now_ms - since_ms >= self.age_ms


def leftovers(
    keys: Keys, listed: Iterable[ObjectInfo], holdings: Mapping[PartitionId, Holdings], guard: Guard
) -> list[Leftover]:
    """What of the *listed* objects is not in use; *holdings* knows every partition that they belong to."""
    stems: dict[SegmentName, _Stem] = {}
    found: list[Leftover] = []
    for info in listed:
        key = keys.parse(info.key)
        if isinstance(key, SegmentObject):
            stems.setdefault(key.name, _Stem(key.name)).objects[key.kind] = info
        elif is_probe(keys, info.key):
            old = guard.old(info.modified_ms)
            found.append(_left(Kind.ORPHAN if old else Kind.YOUNG, [info], "left of a start's look at the bucket"))
        elif key is None:
            found.append(_left(Kind.UNEXPLAINED, [info], "no key that tierd or Aiven's plugin makes"))
        elif isinstance(key, HeadKey | PageKey):
            known = holdings.get(PartitionId(key.topic_id, key.partition), NOTHING)
            found += _of_head(info, known, guard)
    for name in sorted(stems):
        known = holdings.get(PartitionId(name.topic_id, name.partition), NOTHING)
        found += _of_stem(stems[name], known, guard)
    return found


NOTHING = Holdings(live=False)


def is_probe(keys: Keys, key: str) -> bool:
    """Whether a start has put it there to see what the bucket can do (`remote.probe`): a denied delete leaves it."""
    return key.startswith(f"{keys.own_folder}{PROBE}")


_GIVEN_UP = "left of a segment whose loss was accepted"
_ONLY = "it has no manifest, and nothing else is known to have its offsets"


def _of_head(info: ObjectInfo, known: Holdings, guard: Guard) -> list[Leftover]:
    if not known.deleted or known.live or known.kept:
        return []
    if not guard.old(info.modified_ms):
        return [_left(Kind.YOUNG, [info], "its topic is deleted")]
    return [_left(Kind.DELETED, [info], "its topic is deleted")]


def _of_stem(stem: _Stem, known: Holdings, guard: Guard) -> list[Leftover]:
    if stem.name.segment_id in known.rows:
        return []
    objects = [stem.objects[kind] for kind in reversed(ObjectKind) if kind in stem.objects]  # the manifest first
    kind, why = _judge(stem, known)
    if kind in GOES and not guard.old(max(info.modified_ms for info in objects)):
        kind = Kind.YOUNG
    return [_left(kind, objects, why)]


def _judge(stem: _Stem, known: Holdings) -> tuple[Kind, str]:
    if known.deleted and not known.live:
        return Kind.DELETED, "its topic is deleted"
    given_up = known.given_up(stem.name.base)
    if ObjectKind.MANIFEST in stem.objects:
        if given_up:
            return Kind.UNEXPLAINED, _GIVEN_UP
        return Kind.UNEXPLAINED, "a committed segment that this owner has not taken in: the next start judges it"
    if known.named is None:
        return Kind.UNEXPLAINED, "it has no manifest, and the head that might name it cannot be read"
    if stem.name.segment_id in known.named:
        return Kind.UNEXPLAINED, "the head names it, and its manifest is lost"
    if not known.needless(stem.name.base):
        return Kind.UNEXPLAINED, _GIVEN_UP if given_up else _ONLY
    return Kind.ORPHAN, "a copy that was never committed"


def old_uploads(
    keys: Keys, uploads: Iterable[UploadInfo], holdings: Mapping[PartitionId, Holdings], guard: Guard
) -> list[Leftover]:
    """Multipart uploads that nobody goes on with. *holdings* knows every partition that they belong to."""
    found = []
    for upload in uploads:
        key = keys.parse(upload.key)
        kind, why = Kind.UPLOAD, "begun, and neither completed nor aborted"
        if isinstance(key, SegmentObject):
            known = holdings.get(PartitionId(key.name.topic_id, key.name.partition), NOTHING)
            if key.name.segment_id in known.rows:
                continue
        elif not is_probe(keys, upload.key):
            kind, why = Kind.UNEXPLAINED, "an upload of a key that is no segment's"
        if kind is Kind.UPLOAD and not guard.old(upload.started_ms):
            kind = Kind.YOUNG
        found.append(Leftover(kind=kind, keys=(upload.key,), bytes=0, why=why, upload_id=upload.upload_id))
    return found


def _left(kind: Kind, objects: Sequence[ObjectInfo], why: str) -> Leftover:
    keys = tuple(info.key for info in objects)
    return Leftover(kind=kind, keys=keys, bytes=sum(info.size for info in objects), why=why)
