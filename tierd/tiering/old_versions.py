"""Which versions of a versioned bucket nobody needs any more. Pure but for `purge`.

A delete there leaves the version and a marker, an overwrite the version. What tierd itself deleted or replaced goes,
on request; what somebody else has deleted stays: the version may be the only copy of these offsets.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tierd.base.ids import PartitionId
from tierd.remote.keys import GroupsKey, HeadKey, Key, Keys, ObjectKind, PageKey, SegmentObject
from tierd.remote.store import DeleteOutcome
from tierd.remote.versions import Version, VersionedStore
from tierd.tiering.orphans import NOTHING, Guard, Holdings, is_probe


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersions:
    """What of one key is not current."""

    key: str
    versions: tuple[str, ...]
    """Their ids; not the marker's."""
    markers: tuple[str, ...]
    """Left by deletes; they go after the versions, or what was deleted would be there again."""
    bytes: int
    why: str
    goes: bool


@dataclass(frozen=True, slots=True)
class _Verdict:
    goes: bool
    why: str


def old_versions(
    keys: Keys, groups: Iterable[Sequence[Version]], holdings: Mapping[PartitionId, Holdings], guard: Guard
) -> list[OldVersions]:
    """What is not current of each key's versions (newest first); *holdings* knows every partition that they are of."""
    found = []
    for versions in groups:
        key, current = keys.parse(versions[0].key), versions[0]
        gone = current.marker
        old = [one for at, one in enumerate(versions) if (at or gone) and _is_old(versions, at, guard)]
        if not old:
            continue
        verdict = _deleted(keys, current.key, key, holdings) if gone else _replaced(keys, current.key, key)
        data = [one for one in old if not one.marker]
        found.append(
            OldVersions(
                key=current.key,
                versions=tuple(one.version_id for one in data),
                markers=tuple(one.version_id for one in old if one.marker),
                bytes=sum(one.size for one in data),
                why=verdict.why,
                goes=verdict.goes,
            )
        )
    return found


def _is_old(versions: Sequence[Version], at: int, guard: Guard) -> bool:
    """Whether it has not been current for long enough: since the next newer one is there."""
    return guard.old(versions[max(at - 1, 0)].modified_ms)


def _replaced(keys: Keys, name: str, key: Key | None) -> _Verdict:
    if key is None and not is_probe(keys, name):
        return _Verdict(False, "no key that tierd or Aiven's plugin makes")
    if isinstance(key, SegmentObject) and key.kind is not ObjectKind.MANIFEST:
        return _Verdict(False, "a segment's object that was written twice: one of them may be damaged")
    return _Verdict(True, "replaced by a newer one")


def _deleted(keys: Keys, name: str, key: Key | None, holdings: Mapping[PartitionId, Holdings]) -> _Verdict:
    ours = _Verdict(True, "deleted by tierd")
    if isinstance(key, PageKey | GroupsKey) or is_probe(keys, name):
        return ours
    if isinstance(key, HeadKey):
        known = holdings.get(PartitionId(key.topic_id, key.partition), NOTHING)
        if known.deleted and not known.live:
            return _Verdict(True, "its topic is deleted")
        return _Verdict(False, "somebody else has deleted a head")
    if not isinstance(key, SegmentObject):
        return _Verdict(False, "somebody else has deleted it")
    return _deleted_segment(key, holdings.get(PartitionId(key.name.topic_id, key.name.partition), NOTHING))


def _deleted_segment(key: SegmentObject, known: Holdings) -> _Verdict:
    if key.name.segment_id in known.rows:
        return _Verdict(False, "somebody else has deleted an object of a segment that counts: put it back")
    if known.deleted and not known.live:
        return _Verdict(True, "its topic is deleted")
    if known.needless(key.name.base):
        return _Verdict(True, "deleted by tierd")
    return _Verdict(False, "nothing else is known to have its offsets")


def purge(store: VersionedStore, batch: Sequence[OldVersions]) -> dict[str, DeleteOutcome]:
    """Delete for good; give the refusals by key. Raises RemoteUnavailable; repeating it is fine."""
    going = [one for one in batch if one.goes]
    outcomes = store.delete_versions([(one.key, version) for one in going for version in one.versions])
    refused = {one.key: one for one in outcomes if one.refused is not None}
    markers = [(one.key, marker) for one in going if one.key not in refused for marker in one.markers]
    refused |= {one.key: one for one in store.delete_versions(markers) if one.refused is not None}
    return refused
