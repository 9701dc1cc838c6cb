"""Which old versions go: what tierd itself replaced or deleted; never what may be the only copy of offsets."""

import pytest

from tierd.base.ids import PartitionId, Uuid
from tierd.remote.keys import GroupsKey, Keys, ObjectKind, SegmentName
from tierd.remote.versions import Version
from tierd.tiering.old_versions import OldVersions, old_versions
from tierd.tiering.orphans import Guard, Holdings

KEYS = Keys("p/")
TOPIC, SEGMENT = Uuid(b"t" * 16), Uuid(b"s" * 16)
PART = PartitionId(TOPIC, 0)
STEM = SegmentName("t", TOPIC, 0, 100, SEGMENT)
NOW_MS, GUARD = 1_000_000, Guard(1_000_000, 1_000)
OLD_MS = NOW_MS - 5_000


def version(key: str, number: int, ms: int = OLD_MS, *, marker: bool = False, current: bool = False) -> Version:
    size = 0 if marker else 10
    return Version(key=key, version_id=f"v{number}", size=size, modified_ms=ms, marker=marker, current=current)


def replaced(key: str) -> list[Version]:
    return [version(key, 3, current=True), version(key, 2), version(key, 1)]


def deleted(key: str) -> list[Version]:
    return [version(key, 2, marker=True, current=True), version(key, 1)]


def judged(versions: list[Version], holding: Holdings | None = None) -> OldVersions:
    (found,) = old_versions(KEYS, [versions], {PART: holding or Holdings()}, GUARD)
    return found


def segment(kind: ObjectKind) -> str:
    return KEYS.segment(STEM, kind)


def test_what_was_replaced_goes_once_it_is_old() -> None:
    head = KEYS.head("t", TOPIC, 0)
    found = judged(replaced(head))
    assert (found.goes, found.versions, found.markers, found.bytes) == (True, ("v2", "v1"), (), 20)
    young = [version(head, 3, NOW_MS, current=True), version(head, 2, NOW_MS - 500), version(head, 1)]
    assert old_versions(KEYS, [young], {}, GUARD) == [], "v1 was current half a second ago"
    middle = [version(head, 3, NOW_MS, current=True), version(head, 2, OLD_MS), version(head, 1, OLD_MS)]
    assert judged(middle).versions == ("v1",)
    assert old_versions(KEYS, [[version(head, 1, current=True)]], {}, GUARD) == []


@pytest.mark.parametrize(
    ("key", "goes"),
    [
        (segment(ObjectKind.MANIFEST), True),
        (segment(ObjectKind.LOG), False),
        (segment(ObjectKind.INDEXES), False),
        ("p/somebody's", False),
        ("p/tierd/probe-00", True),
        (KEYS.archive, True),
    ],
)
def test_replaced_by_kind(key: str, goes: bool) -> None:
    assert judged(replaced(key)).goes is goes


@pytest.mark.parametrize(
    ("holding", "goes"),
    [
        (Holdings(rows=frozenset({SEGMENT}), ranges=[(100, 200)]), False),
        (Holdings(log_start=150), True),
        (Holdings(ranges=[(50, 150)]), True),
        (Holdings(local=(0, 500)), True),
        (Holdings(), False),
        (Holdings(live=False, deleted=True), True),
    ],
)
def test_a_deleted_segment_goes_only_when_nothing_is_lost_with_it(holding: Holdings, goes: bool) -> None:
    for kind in ObjectKind:
        found = judged(deleted(segment(kind)), holding)
        assert found.goes is goes
        assert (found.versions, found.markers) == (("v1",), ("v2",))


def test_documents_that_only_somebody_else_can_have_deleted_stay() -> None:
    for key in (KEYS.archive, KEYS.topic_file("t", TOPIC), KEYS.head("t", TOPIC, 0)):
        assert not judged(deleted(key)).goes
    gone = Holdings(live=False, deleted=True)
    assert judged(deleted(KEYS.head("t", TOPIC, 0)), gone).goes
    assert judged(deleted(KEYS.page("t", TOPIC, 0, 0, 99))).goes


def test_group_files_are_thinned_out_by_tierd() -> None:
    (key,) = [one for one in [KEYS.groups(1, 2)] if isinstance(KEYS.parse(one), GroupsKey)]
    assert judged(deleted(key)).goes
