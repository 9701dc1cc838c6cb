"""What a sweep may delete, decided from listing and catalog alone."""

from collections.abc import Sequence

import pytest

from kit.remote_log import PART
from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import DAY_MS
from tierd.remote.keys import PROBE, Keys, ObjectKind, SegmentName
from tierd.remote.store import ObjectInfo, UploadInfo
from tierd.tiering.orphans import Guard, Holdings, Kind, Leftover, leftovers, old_uploads

KEYS = Keys("p/")
NOW_MS = 10 * DAY_MS
GUARD = Guard(NOW_MS, DAY_MS)
OLD, NEW = NOW_MS - DAY_MS, NOW_MS - DAY_MS + 1
ID, OTHER = Uuid(bytes(15) + b"\x07"), Uuid(bytes(15) + b"\x08")
LOG, INDEXES, MANIFEST = ObjectKind


def name(base: int = 50, segment_id: Uuid = ID) -> SegmentName:
    return SegmentName("t", PART.topic_id, PART.partition, base, segment_id)


def objects(*kinds: ObjectKind, of: SegmentName | None = None, modified_ms: int = OLD) -> list[ObjectInfo]:
    return [
        ObjectInfo(key=KEYS.segment(of or name(), kind), size=10, etag="e", modified_ms=modified_ms) for kind in kinds
    ]


def found(listed: Sequence[ObjectInfo], holdings: Holdings | None) -> list[Leftover]:
    known: dict[PartitionId, Holdings] = {} if holdings is None else {PART: holdings}
    return leftovers(KEYS, listed, known, GUARD)


def kinds(listed: Sequence[ObjectInfo], holdings: Holdings | None) -> list[Kind]:
    return [one.kind for one in found(listed, holdings)]


COVERED = Holdings(ranges=[(0, 100)])


def test_a_copy_that_was_never_committed_goes() -> None:
    (one,) = found(objects(LOG, INDEXES), COVERED)
    assert one.kind is Kind.ORPHAN
    assert one.keys == (KEYS.segment(name(), INDEXES), KEYS.segment(name(), LOG))
    assert one.bytes == 20


@pytest.mark.parametrize("kind", [(LOG,), (INDEXES,), (LOG, INDEXES), (LOG, INDEXES, MANIFEST)])
def test_what_the_catalog_has_a_row_of_is_not_swept(kind: tuple[ObjectKind, ...]) -> None:
    assert found(objects(*kind), Holdings(rows=frozenset({ID}), ranges=[(0, 100)])) == []
    assert found(objects(*kind), Holdings(rows=frozenset({ID}), live=False, deleted=True)) == []


def test_one_young_object_keeps_all_of_them() -> None:
    listed = [*objects(INDEXES), *objects(LOG, modified_ms=NEW)]
    assert kinds(listed, COVERED) == [Kind.YOUNG]
    assert kinds(objects(LOG, modified_ms=NOW_MS + DAY_MS), COVERED) == [Kind.YOUNG], "a clock that ran ahead"


@pytest.mark.parametrize(
    ("holdings", "kind"),
    [
        (Holdings(ranges=[(0, 50), (51, 100)]), Kind.UNEXPLAINED),
        (Holdings(ranges=[(50, 51)]), Kind.ORPHAN),
        (Holdings(log_start=50), Kind.UNEXPLAINED),
        (Holdings(log_start=51), Kind.ORPHAN),
        (Holdings(local=(50, 60)), Kind.ORPHAN),
        (Holdings(local=(51, 60)), Kind.UNEXPLAINED),
        (Holdings(local=(40, 50)), Kind.UNEXPLAINED),
        (Holdings(ranges=[(0, 100)], named=frozenset({ID})), Kind.UNEXPLAINED),
        (Holdings(ranges=[(0, 100)], named=frozenset({OTHER})), Kind.ORPHAN),
        (Holdings(ranges=[(0, 100)], named=None), Kind.UNEXPLAINED),
        (None, Kind.UNEXPLAINED),
    ],
)
def test_it_goes_only_when_its_offsets_are_known_to_be_elsewhere(holdings: Holdings | None, kind: Kind) -> None:
    assert kinds(objects(LOG, INDEXES), holdings) == [kind]


def test_a_committed_segment_that_is_not_in_the_catalog_stays() -> None:
    (one,) = found(objects(LOG, INDEXES, MANIFEST), COVERED)
    assert one.kind is Kind.UNEXPLAINED
    assert kinds(objects(MANIFEST), COVERED) == [Kind.UNEXPLAINED]


@pytest.mark.parametrize("listed", [(LOG, INDEXES), (INDEXES, MANIFEST)])
def test_what_is_left_of_an_accepted_loss_stays_and_says_so(listed: tuple[ObjectKind, ...]) -> None:
    (one,) = found(objects(*listed), Holdings(accepted=[(40, 60)]))
    assert (one.kind, one.why) == (Kind.UNEXPLAINED, "left of a segment whose loss was accepted")
    (one,) = found(objects(*listed), Holdings(accepted=[(51, 60)]))
    assert (one.kind, "accepted" in one.why) == (Kind.UNEXPLAINED, False)


def test_what_is_left_of_a_deleted_topic_goes_manifest_first() -> None:
    gone = Holdings(live=False, deleted=True)
    (one,) = found(objects(LOG, INDEXES, MANIFEST), gone)
    assert one.kind is Kind.DELETED
    assert [key.rpartition(".")[2] for key in one.keys] == ["rsm-manifest", "indexes", "log"]
    assert kinds(objects(LOG, modified_ms=NEW), gone) == [Kind.YOUNG]
    assert kinds(objects(LOG, INDEXES, MANIFEST), Holdings(live=True, deleted=True)) == [Kind.UNEXPLAINED]


def test_heads_and_pages_go_with_their_topic_once_retention_has_let_go_of_it() -> None:
    listed = [
        ObjectInfo(key=key, size=5, etag="e", modified_ms=OLD)
        for key in (KEYS.head("t", PART.topic_id, 0), KEYS.page("t", PART.topic_id, 0, 0, 9))
    ]
    assert kinds(listed, Holdings(live=False, deleted=True)) == [Kind.DELETED, Kind.DELETED]
    for known in (Holdings(), Holdings(deleted=True), Holdings(live=False, deleted=True, kept=True), None):
        assert kinds(listed, known) == []


def test_what_has_no_key_of_ours_is_named_and_stays() -> None:
    listed = [
        ObjectInfo(key=key, size=5, etag="e", modified_ms=OLD)
        for key in ("p/readme.txt", "p/t/0/x.log", KEYS.stem(name()) + ".tmp", "p/tierd/new/thing.json")
    ]
    assert kinds(listed, COVERED) == [Kind.UNEXPLAINED] * 4


def test_documents_are_in_use() -> None:
    keys = [KEYS.archive, KEYS.owner(1), KEYS.topic_file("t", PART.topic_id), KEYS.groups(1, 2)]
    listed = [ObjectInfo(key=key, size=5, etag="e", modified_ms=OLD) for key in keys]
    assert found(listed, Holdings(live=False, deleted=True)) == []


def test_uploads_go_unless_a_copy_has_them_in_hand() -> None:
    def kinds_of(key: str, holdings: Holdings, started_ms: int = OLD) -> list[Kind]:
        uploads = [UploadInfo(key, "u1", started_ms)]
        return [one.kind for one in old_uploads(KEYS, uploads, {PART: holdings}, GUARD)]

    key = KEYS.segment(name(), LOG)
    assert kinds_of(key, Holdings()) == [Kind.UPLOAD]
    assert kinds_of(key, Holdings(), NEW) == [Kind.YOUNG]
    assert kinds_of(key, Holdings(rows=frozenset({ID}))) == []
    assert kinds_of("p/other", Holdings()) == [Kind.UNEXPLAINED]
    looked = f"{KEYS.own_folder}{PROBE}1-parts"
    assert (kinds_of(looked, Holdings()), kinds_of(looked, Holdings(), NEW)) == ([Kind.UPLOAD], [Kind.YOUNG])
    assert [one.kind for one in old_uploads(KEYS, [UploadInfo(key, "u", OLD)], {}, GUARD)] == [Kind.UPLOAD]
