"""Keys and values of `__consumer_offsets` as Kafka 4 writes them (commit value 4, group value 3), older ones readable.

| record | key | value |
|---|---|---|
| commit | i16 1 (or 0), group, topic, i32 partition | i16 4: i64 offset, i32 leader epoch, metadata, i64 time, tags |
| group | i16 2, group | i16 3: type, i32 generation, protocol?, leader?, i64 state time, members |
| member | | id, instance?, client, host, i32 rebalance ms, i32 session ms, bytes subscription, bytes assignment |

Strings: i16 length and bytes, `?` may be null; in a commit's value a compact one. Tag 0 of a commit is the topic's id.
A value of null deletes. Other keys are those of `consumer.records`. Commit value 1 has an expiry time at the end; it is
written when an old client asks for one.
"""

import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tierd.base.errors import CorruptFile
from tierd.base.ids import ID_BYTES, Uuid
from tierd.broker.groups.model import StoredGroup, StoredMember
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I16, I32, compact_string, read_compact_string, read_string, string, uvarint
from tierd.wire.schema import Input

_I64: Final = struct.Struct(">q")
_COMMIT_KEYS: Final = (0, 1)
_GROUP_KEY: Final = 2
_NEWEST_COMMIT: Final = 4
_NEWEST_GROUP: Final = 4
_COMPACT_FROM: Final = 4


class CommitKey(NamedTuple):
    """Whose offset it is."""

    group: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """How far a group has come in one partition: the next offset to read."""

    offset: int
    leader_epoch: int | None
    metadata: str
    commit_ms: int
    topic_id: Uuid | None = None
    expire_ms: int | None = None
    """Only when the client asked for a retention time of its own (OffsetCommit 2-4)."""
    written_at: int = field(default=0, compare=False)
    """Offset of its record in the log."""


def encode_commit_key(key: CommitKey) -> bytes:
    return I16.pack(1) + string(key.group) + string(key.topic) + I32.pack(key.partition)


def group_of(raw: bytes) -> str | None:
    """The group that a key names, whatever its kind; None when it names none."""
    try:
        return read_string(memoryview(raw), 2)[0] or None
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame):
        return None


def encode_group_key(group: str) -> bytes:
    return I16.pack(_GROUP_KEY) + string(group)


def encode_commit(commit: Commit) -> bytes:
    if commit.expire_ms is not None:
        times = _I64.pack(commit.commit_ms) + _I64.pack(commit.expire_ms)
        return I16.pack(1) + _I64.pack(commit.offset) + string(commit.metadata) + times
    epoch = -1 if commit.leader_epoch is None else commit.leader_epoch
    tags = b"\0" if commit.topic_id is None else b"\1\0" + uvarint(ID_BYTES) + commit.topic_id.raw
    return b"".join(
        [
            I16.pack(_NEWEST_COMMIT),
            _I64.pack(commit.offset),
            I32.pack(epoch),
            compact_string(commit.metadata),
            _I64.pack(commit.commit_ms),
            tags,
        ]
    )


def encode_group(group: StoredGroup, changed_ms: int) -> bytes:
    """*changed_ms* is the wall clock of the change."""
    head = [
        I16.pack(3),
        string(group.protocol_type),
        I32.pack(group.generation),
        string(group.protocol),
        string(group.leader),
        _I64.pack(changed_ms),
        I32.pack(len(group.members)),
    ]
    return b"".join(head + [_encode_member(member) for member in group.members])


def _encode_member(member: StoredMember) -> bytes:
    return b"".join(
        [
            string(member.id),
            string(member.instance_id),
            string(member.client_id),
            string(member.client_host),
            I32.pack(member.rebalance_timeout_ms),
            I32.pack(member.session_timeout_ms),
            I32.pack(len(member.subscription)),
            member.subscription,
            I32.pack(len(member.assignment)),
            member.assignment,
        ]
    )


def decode_key(raw: bytes, where: str) -> CommitKey | str | None:
    """A commit's key, a group's name, or None for a kind of record that is not ours. Raises CorruptFile."""
    try:
        source = _Source(raw)
        if source.version in _COMMIT_KEYS:
            return CommitKey(source.text(), source.text(), source.i32())
        return source.text() if source.version == _GROUP_KEY else None
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise CorruptFile(where, 0, f"key of a group record: {error}") from error


def decode_commit(raw: bytes, where: str, written_at: int = 0) -> Commit:
    """Raises CorruptFile, also for a version that is not known: an offset must not be lost in silence."""
    try:
        source = _Source(raw)
        if source.version > _NEWEST_COMMIT:
            raise BadFrame(f"version {source.version}")
        offset = source.i64()
        epoch = source.i32() if source.version >= 3 else -1
        metadata, committed = source.text(), source.i64()
        return Commit(
            offset=offset,
            leader_epoch=None if epoch < 0 else epoch,
            metadata=metadata,
            commit_ms=committed,
            topic_id=source.topic_id() if source.compact else None,
            expire_ms=_positive(source.i64()) if source.version == 1 else None,
            written_at=written_at,
        )
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise CorruptFile(where, 0, f"committed offset: {error}") from error


def _positive(value: int) -> int | None:
    return None if value < 0 else value


def decode_group(raw: bytes, where: str) -> StoredGroup:
    """Raises CorruptFile."""
    try:
        source = _Source(raw)
        if source.version > _NEWEST_GROUP:
            raise BadFrame(f"version {source.version}")
        protocol_type, generation = source.text(), source.i32()
        protocol, leader = source.nullable_text(), source.nullable_text()
        changed = source.i64() if source.version >= 2 else -1
        members = tuple([_decode_member(source) for _ in range(source.length())])
        return StoredGroup(protocol_type, generation, protocol, leader, members, _positive(changed))
    except (struct.error, IndexError, UnicodeDecodeError, BadFrame) as error:
        raise CorruptFile(where, 0, f"group: {error}") from error


def _decode_member(source: "_Source") -> StoredMember:
    member_id = source.text()
    instance_id = source.nullable_text() if source.version >= 3 else None
    client_id, client_host = source.text(), source.text()
    rebalance = source.i32() if source.version >= 1 else None
    session = source.i32()
    member = StoredMember(
        member_id,
        instance_id,
        client_id,
        client_host,
        session if rebalance is None else rebalance,
        session,
        source.blob(),
        source.blob(),
    )
    if source.compact:
        source.topic_id()
    return member


class _Source(Input):
    """A value that begins with its version; compact from version 4 on (keys never are)."""

    __slots__ = ("compact", "version")

    def __init__(self, raw: bytes) -> None:
        super().__init__(memoryview(raw), 2)
        (self.version,) = I16.unpack_from(raw, 0)
        self.compact = self.version >= _COMPACT_FROM

    def i32(self) -> int:
        value: int = I32.unpack(self.take(4))[0]
        return value

    def i64(self) -> int:
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def nullable_text(self) -> str | None:
        read = read_compact_string if self.compact else read_string
        value, self.position = read(self.frame, self.position)
        return value

    def text(self) -> str:
        return self.nullable_text() or ""

    def length(self) -> int:
        return max(self.count(self.uvarint() - 1 if self.compact else self.i32()), 0)

    def blob(self) -> bytes:
        return bytes(self.take(self.length()))

    def topic_id(self) -> Uuid | None:
        """Read the tags; give tag 0, where it is an id."""
        found = None
        for _ in range(self.uvarint()):
            tag, value = self.uvarint(), self.take(self.uvarint())
            if tag == 0 and len(value) == ID_BYTES:
                found = Uuid(bytes(value))
        return found
