"""Every key of the bucket, made and parsed in one place. Layout: LAYOUT.md.

Topic ids and segment ids are always 22 characters and may begin with "-", so keys are parsed by known lengths.
The prefix is put in front as it is; give it its own "/".
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from tierd.base.ids import ID_CHARS, Uuid

OFFSET_DIGITS = 20
EPOCH_DIGITS = 10
SEQUENCE_DIGITS = 10
OWN_FOLDER = "tierd/"
PROBE = "probe-"
"""Names of what a start writes into that folder to see what the bucket can do begin so; they are deleted at once."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")
_DIGITS = re.compile(r"[0-9]+")


class ObjectKind(StrEnum):
    """The three objects of a segment; the value is the key's suffix."""

    LOG = ".log"
    INDEXES = ".indexes"
    MANIFEST = ".rsm-manifest"


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """What the keys of a segment's objects share."""

    topic: str
    topic_id: Uuid
    partition: int
    base: int
    segment_id: Uuid


@dataclass(frozen=True, slots=True)
class SegmentObject:
    """One of a segment's objects."""

    name: SegmentName
    kind: ObjectKind


@dataclass(frozen=True, slots=True)
class TopicFileKey:
    topic: str
    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class HeadKey:
    topic: str
    topic_id: Uuid
    partition: int


@dataclass(frozen=True, slots=True)
class PageKey:
    """A page of folded segment entries over offsets [first, last], both inclusive as in the key."""

    topic: str
    topic_id: Uuid
    partition: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ArchiveKey:
    """The archive id."""


@dataclass(frozen=True, slots=True)
class OwnerKey:
    epoch: int


@dataclass(frozen=True, slots=True)
class GroupsKey:
    epoch: int
    sequence: int


Key = SegmentObject | TopicFileKey | HeadKey | PageKey | ArchiveKey | OwnerKey | GroupsKey


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes and parses keys under one prefix."""

    prefix: str = ""

    def topic_folder(self, topic: str, topic_id: Uuid) -> str:
        """Folder of a topic's segments, with its "/"."""
        return f"{self.prefix}{topic}-{topic_id}/"

    def partition_folder(self, topic: str, topic_id: Uuid, partition: int) -> str:
        """Folder of a partition's segments, with its "/"."""
        return f"{self.topic_folder(topic, topic_id)}{partition}/"

    def stem(self, name: SegmentName) -> str:
        """The key of a segment's objects without the suffix."""
        folder = self.partition_folder(name.topic, name.topic_id, name.partition)
        return f"{folder}{name.base:0{OFFSET_DIGITS}d}-{name.segment_id}"

    def segment(self, name: SegmentName, kind: ObjectKind) -> str:
        return self.stem(name) + kind.value

    @property
    def own_folder(self) -> str:
        return f"{self.prefix}{OWN_FOLDER}"

    @property
    def archive(self) -> str:
        return f"{self.own_folder}archive.json"

    @property
    def topics_folder(self) -> str:
        return f"{self.own_folder}topics/"

    def topic_file(self, topic: str, topic_id: Uuid) -> str:
        return f"{self.topics_folder}{topic}-{topic_id}.json"

    @property
    def partitions_folder(self) -> str:
        return f"{self.own_folder}partitions/"

    def heads_folder(self, topic: str, topic_id: Uuid) -> str:
        return f"{self.partitions_folder}{topic}-{topic_id}/"

    def head(self, topic: str, topic_id: Uuid, partition: int) -> str:
        return f"{self.heads_folder(topic, topic_id)}{partition}.json"

    def pages_folder(self, topic: str, topic_id: Uuid, partition: int) -> str:
        return f"{self.heads_folder(topic, topic_id)}{partition}/"

    def page(self, topic: str, topic_id: Uuid, partition: int, first: int, last: int) -> str:
        """*last* is the last offset that the page covers."""
        folder = self.pages_folder(topic, topic_id, partition)
        return f"{folder}{first:0{OFFSET_DIGITS}d}-{last:0{OFFSET_DIGITS}d}.zst"

    @property
    def owner_folder(self) -> str:
        return f"{self.own_folder}owner/"

    def owner(self, epoch: int) -> str:
        return f"{self.owner_folder}{epoch:0{EPOCH_DIGITS}d}.json"

    @property
    def groups_folder(self) -> str:
        return f"{self.own_folder}groups/"

    def groups(self, epoch: int, sequence: int) -> str:
        return f"{self.groups_folder}{epoch:0{EPOCH_DIGITS}d}-{sequence:0{SEQUENCE_DIGITS}d}.zst"

    def parse(self, key: str) -> Key | None:
        """What *key* names; None for anything that tierd and Aiven's plugin do not write."""
        if not key.startswith(self.prefix):
            return None
        path = key[len(self.prefix) :]
        if path.startswith(OWN_FOLDER):
            return _parse_own(path[len(OWN_FOLDER) :].split("/"))
        parts = path.split("/")
        return _parse_segment(*parts) if len(parts) == 3 else None

    def parse_topic_folder(self, folder: str) -> tuple[str, Uuid] | None:
        """Topic and id of a folder that `topic_folder` made; None for other folders."""
        if not folder.startswith(self.prefix) or not folder.endswith("/"):
            return None
        return _parse_topic(folder[len(self.prefix) : -1])


def _parse_id(text: str) -> Uuid | None:
    try:
        parsed = Uuid.parse(text)
    except ValueError:
        return None
    return parsed if str(parsed) == text else None


def _parse_topic(text: str) -> tuple[str, Uuid] | None:
    topic, dash, raw_id = text[: -ID_CHARS - 1], text[-ID_CHARS - 1 : -ID_CHARS], text[-ID_CHARS:]
    topic_id = _parse_id(raw_id)
    if dash != "-" or topic_id is None or not _TOPIC.fullmatch(topic):
        return None
    return topic, topic_id


def _parse_number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _parse_digits(text: str, digits: int) -> int | None:
    return int(text) if len(text) == digits and _DIGITS.fullmatch(text) and text.isascii() else None


def _parse_segment(folder: str, raw_partition: str, name: str) -> SegmentObject | None:
    topic = _parse_topic(folder)
    partition = _parse_number(raw_partition)
    stem_chars = OFFSET_DIGITS + 1 + ID_CHARS
    base = _parse_digits(name[:OFFSET_DIGITS], OFFSET_DIGITS)
    segment_id = _parse_id(name[OFFSET_DIGITS + 1 : stem_chars])
    if topic is None or partition is None or base is None or segment_id is None or name[OFFSET_DIGITS] != "-":
        return None
    try:
        kind = ObjectKind(name[stem_chars:])
    except ValueError:
        return None
    return SegmentObject(SegmentName(topic[0], topic[1], partition, base, segment_id), kind)


def _parse_own(parts: list[str]) -> Key | None:
    match parts:
        case ["archive.json"]:
            return ArchiveKey()
        case ["owner", name]:
            return _parse_owner(name)
        case ["topics", name] if name.endswith(".json"):
            topic = _parse_topic(name.removesuffix(".json"))
            return None if topic is None else TopicFileKey(*topic)
        case ["groups", name]:
            return _parse_groups(name)
        case ["partitions", folder, name] if name.endswith(".json"):
            topic, partition = _parse_topic(folder), _parse_number(name.removesuffix(".json"))
            return None if topic is None or partition is None else HeadKey(*topic, partition)
        case ["partitions", folder, raw_partition, name]:
            return _parse_page(folder, raw_partition, name)
    return None


def _parse_owner(name: str) -> OwnerKey | None:
    epoch = _parse_digits(name.removesuffix(".json"), EPOCH_DIGITS)
    return None if epoch is None or not name.endswith(".json") else OwnerKey(epoch)


def _parse_groups(name: str) -> GroupsKey | None:
    epoch = _parse_digits(name[:EPOCH_DIGITS], EPOCH_DIGITS)
    sequence = _parse_digits(name[EPOCH_DIGITS + 1 : -4], SEQUENCE_DIGITS)
    if epoch is None or sequence is None or name[EPOCH_DIGITS] != "-" or not name.endswith(".zst"):
        return None
    return GroupsKey(epoch, sequence)


def _parse_page(folder: str, raw_partition: str, name: str) -> PageKey | None:
    topic, partition = _parse_topic(folder), _parse_number(raw_partition)
    first = _parse_digits(name[:OFFSET_DIGITS], OFFSET_DIGITS)
    last = _parse_digits(name[OFFSET_DIGITS + 1 : -4], OFFSET_DIGITS)
    if topic is None or partition is None or first is None or last is None:
        return None
    if name[OFFSET_DIGITS] != "-" or not name.endswith(".zst"):
        return None
    return PageKey(*topic, partition, first, last)
