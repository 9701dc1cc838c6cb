"""Keys are made and parsed in one place; whatever is made is understood again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.base.ids import Uuid
from tierd.remote.keys import (
    ArchiveKey,
    GroupsKey,
    HeadKey,
    Keys,
    ObjectKind,
    OwnerKey,
    PageKey,
    SegmentName,
    SegmentObject,
    TopicFileKey,
)

uuids = st.binary(min_size=16, max_size=16).map(Uuid)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True)
partitions = st.integers(0, 2**31 - 1)
offsets = st.integers(0, 2**63 - 1)
prefixes = st.sampled_from(["", "tier/", "a/b/", "no-slash"])
DASHED = Uuid(b"\xf8" + bytes(15))


@given(prefixes, topics, uuids, partitions, offsets, uuids, st.sampled_from(ObjectKind))
def test_segment_keys(
    prefix: str, topic: str, topic_id: Uuid, partition: int, base: int, segment_id: Uuid, kind: ObjectKind
) -> None:
    keys, name = Keys(prefix), SegmentName(topic, topic_id, partition, base, segment_id)
    assert keys.parse(keys.segment(name, kind)) == SegmentObject(name, kind)
    assert keys.segment(name, kind).startswith(keys.partition_folder(topic, topic_id, partition))
    assert keys.parse_topic_folder(keys.topic_folder(topic, topic_id)) == (topic, topic_id)


@given(prefixes, topics, uuids, partitions, offsets, offsets, st.integers(0, 2**31 - 1))
def test_own_keys(prefix: str, topic: str, topic_id: Uuid, partition: int, first: int, last: int, epoch: int) -> None:
    keys = Keys(prefix)
    assert keys.parse(keys.archive) == ArchiveKey()
    assert keys.parse(keys.owner(epoch)) == OwnerKey(epoch)
    assert keys.parse(keys.groups(epoch, epoch)) == GroupsKey(epoch, epoch)
    assert keys.parse(keys.topic_file(topic, topic_id)) == TopicFileKey(topic, topic_id)
    assert keys.parse(keys.head(topic, topic_id, partition)) == HeadKey(topic, topic_id, partition)
    page = keys.page(topic, topic_id, partition, first, last)
    assert keys.parse(page) == PageKey(topic, topic_id, partition, first, last)


def test_ids_may_begin_with_a_dash() -> None:
    assert str(DASHED).startswith("-")
    name = SegmentName("a-b", DASHED, 0, 5, DASHED)
    assert Keys().parse(Keys().segment(name, ObjectKind.LOG)) == SegmentObject(name, ObjectKind.LOG)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "tierd/",
        "tierd/archive.json.tmp",
        "tierd/owner/1.json",
        "tierd/owner/0000000001",
        "tierd/topics/t.json",
        "tierd/groups/0000000001-0000000001",
        "tierd/groups/short",
        f"tierd/partitions/t-{DASHED}/x.json",
        f"tierd/partitions/t-{DASHED}/0/5-6.zst",
        f"t-{DASHED}/0/5-{DASHED}.log",
        f"t-{DASHED}/0/{5:020d}-{DASHED}.tmp",
        f"t-{DASHED}/0/{5:020d}_{DASHED}.log",
        f"t-{DASHED}/00/{5:020d}-{DASHED}.log",
        f"t{DASHED}/0/{5:020d}-{DASHED}.log",
        f"t-{DASHED}/0/deeper/{5:020d}-{DASHED}.log",
        "elsewhere",
    ],
)
def test_strange_keys_are_nothing(key: str) -> None:
    assert Keys().parse(key) is None
    assert Keys("other/").parse(key) is None


@given(st.text(max_size=120))
def test_any_text_is_parsed_without_error(key: str) -> None:
    Keys().parse(key)
    Keys().parse("tierd/" + key)
    Keys().parse_topic_folder(key)


@given(topics, uuids, partitions, offsets, uuids, st.data())
def test_cut_keys_never_pass(
    topic: str, topic_id: Uuid, partition: int, base: int, segment_id: Uuid, data: st.DataObject
) -> None:
    key = Keys().segment(SegmentName(topic, topic_id, partition, base, segment_id), ObjectKind.MANIFEST)
    assert Keys().parse(key[: data.draw(st.integers(0, len(key) - 1))]) is None
