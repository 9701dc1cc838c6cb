"""Records of consumer groups in `__consumer_offsets`: types 3 to 8, all values of version 0, as Kafka 4.3 writes them.

| type | key | value |
|---|---|---|
| 3 group | group | i32 epoch, tag 0: i64 hash of its topics |
| 5 member | group, member | instance?, rack?, client, host, topics, regex?, i32 rebalance ms, assignor?, tag 0 |
| 6 assignment | group | i32 epoch, tag 0: i64 when it was made |
| 7 target of a member | group, member | places |
| 8 what a member holds | group, member | i32 epoch, i32 previous epoch, i8 state, places, places to be revoked |

A key is an i16 type and strings with i16 lengths. A value is an i16 version and compact fields; places are an array of
topic id (16 bytes) and array of i32, with tags; in type 8 tag 0 is an array of i32 as long: the epochs in which the
partitions were assigned. In type 5 tag 0 is what a member says in the classic protocol: i8 1, i32 session ms, an array
of (name, bytes, tags), tags. A null value deletes. Type 4 (partitions of topics, until Kafka 4.0) and 16 (the topics
that match a pattern) can be made again; they are read past.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tierd.base.errors import CorruptFile
from tierd.base.ids import ID_BYTES, Uuid
from tierd.broker.groups.consumer.model import Classic, ConsumerMember, ConsumerState, MemberState, Place, Places
from tierd.wire.errors import BadFrame
from tierd.wire.primitives import I16, I32, compact_string, read_compact_string, string, uvarint
from tierd.wire.schema import Input

Row = tuple[bytes, bytes | None]

GROUP, MEMBER, ASSIGNMENT, TARGET, HELD = 3, 5, 6, 7, 8
_OF_A_MEMBER: Final = frozenset({MEMBER, TARGET, HELD})
_OURS: Final = frozenset({GROUP, ASSIGNMENT, *_OF_A_MEMBER})
_I64: Final = struct.Struct(">q")
_VERSION: Final = I16.pack(0)
_NO_TAGS: Final = b"\0"
_PRESENT: Final = b"\1"


def difference(group_id: str, old: ConsumerState | None, new: ConsumerState | None) -> Iterator[Row]:
    """What is to be written when the group goes from *old* to *new*; None: there is none."""
    before, after = old or ConsumerState(), new or ConsumerState()
    if new is not None and (old is None or (old.epoch, old.topics_hash) != (new.epoch, new.topics_hash)):
        yield _key(GROUP, group_id), _VERSION + I32.pack(new.epoch) + _tagged(_I64.pack(new.topics_hash))
    for member_id in {**before.members, **after.members} if before.members is not after.members else ():
        if before.members.get(member_id) is after.members.get(member_id):
            continue  # members are values: one that is the same object says the same
        yield from _member_rows(group_id, member_id, before.members.get(member_id), after.members.get(member_id))
    for member_id in {**before.target, **after.target} if before.target is not after.target else ():
        places = after.target.get(member_id)
        if places == before.target.get(member_id):
            continue
        yield (
            _key(TARGET, group_id, member_id),
            None if places is None else _VERSION + encode_places(places) + _NO_TAGS,
        )
    if new is not None and (old is None or old.assignment_epoch != new.assignment_epoch):
        yield _key(ASSIGNMENT, group_id), _VERSION + I32.pack(new.assignment_epoch) + _NO_TAGS
    if new is None and old is not None:
        yield _key(ASSIGNMENT, group_id), None
        yield _key(GROUP, group_id), None


def _member_rows(
    group_id: str, member_id: str, old: ConsumerMember | None, new: ConsumerMember | None
) -> Iterator[Row]:
    if new is None:
        yield _key(HELD, group_id, member_id), None
        yield _key(MEMBER, group_id, member_id), None
        return
    said, held = _said(new), _held(new)
    if old is None or _said(old) != said:
        yield _key(MEMBER, group_id, member_id), said
    if old is None or _held(old) != held:
        yield _key(HELD, group_id, member_id), held


def _said(member: ConsumerMember) -> bytes:
    topics = [compact_string(topic) for topic in sorted(member.topics)]
    return b"".join(
        [
            _VERSION,
            compact_string(member.instance_id),
            compact_string(member.rack_id),
            compact_string(member.client_id),
            compact_string(member.client_host),
            uvarint(len(topics) + 1),
            *topics,
            compact_string(member.pattern),
            I32.pack(member.rebalance_timeout_ms),
            compact_string(member.assignor),
            _NO_TAGS if member.classic is None else _tagged(_encode_classic(member.classic)),
        ]
    )


def _encode_classic(classic: Classic) -> bytes:
    parts = [_PRESENT, I32.pack(classic.session_timeout_ms), uvarint(len(classic.protocols) + 1)]
    for name, metadata in classic.protocols:
        parts += [compact_string(name), uvarint(len(metadata) + 1), metadata, _NO_TAGS]
    return b"".join([*parts, _NO_TAGS])


def _held(member: ConsumerMember) -> bytes:
    epochs = I32.pack(member.epoch) + I32.pack(member.previous_epoch) + bytes([member.state])
    places = encode_places(member.assigned, member.since) + encode_places(member.revoking, member.since)
    return _VERSION + epochs + places + _NO_TAGS


def encode_places(places: Places, since: Mapping[Place, int] | None = None) -> bytes:
    """With the epochs in which they were assigned, where a record has them."""
    topics: dict[Uuid, list[int]] = {}
    for topic_id, partition in sorted(places):
        topics.setdefault(topic_id, []).append(partition)
    parts = [uvarint(len(topics) + 1)]
    for topic_id, partitions in topics.items():
        parts += [topic_id.raw, uvarint(len(partitions) + 1), *map(I32.pack, partitions)]
        if since is None:
            parts.append(_NO_TAGS)
            continue
        epochs = [I32.pack(since[topic_id, partition]) for partition in partitions]
        parts.append(_tagged(b"".join([uvarint(len(epochs) + 1), *epochs])))
    return b"".join(parts)


def _key(kind: int, *words: str) -> bytes:
    return I16.pack(kind) + b"".join(map(string, words))


def _tagged(raw: bytes) -> bytes:
    """As tag 0, the only one."""
    return b"\1\0" + uvarint(len(raw)) + raw


class ConsumerReplay:
    """What the records of one partition say of its consumer groups; feed them in order. Pure."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerState] = {}

    def take(self, key: bytes, value: bytes | None, where: str) -> None:
        """A record of any kind that is not the classic protocol's. Raises CorruptFile."""
        try:
            (kind,) = I16.unpack_from(key, 0)
            if kind not in _OURS:
                return
            source = Input(memoryview(key), I16.size)
            group_id = source.string()
            member_id = source.string() if kind in _OF_A_MEMBER else ""
            state = self.groups.get(group_id, ConsumerState())
            if value is None:
                self._delete(kind, group_id, member_id, state)
                return
            self.groups[group_id] = _taken(kind, member_id, state, _open(value))
        except (struct.error, IndexError, UnicodeDecodeError, BadFrame, ValueError) as error:
            raise CorruptFile(where, 0, f"record of a consumer group: {error}") from error

    def _delete(self, kind: int, group_id: str, member_id: str, state: ConsumerState) -> None:
        if kind == GROUP:
            self.groups.pop(group_id, None)
        elif kind == TARGET and member_id in state.target:
            rest = {key: places for key, places in state.target.items() if key != member_id}
            self.groups[group_id] = replace(state, target=rest)
        elif kind == MEMBER and member_id in state.members:
            members = {key: member for key, member in state.members.items() if key != member_id}
            self.groups[group_id] = replace(state, members=members)


def _taken(kind: int, member_id: str, state: ConsumerState, source: Input) -> ConsumerState:
    if kind == GROUP:
        return replace(state, epoch=source.i32(), topics_hash=_tag_i64(source))
    if kind == ASSIGNMENT:
        state = replace(state, assignment_epoch=source.i32())
    elif kind == TARGET:
        state = replace(state, target={**state.target, member_id: read_places(source)})
    else:
        member = state.members.get(member_id, ConsumerMember(id=member_id))
        member = _read_said(source, member) if kind == MEMBER else _read_held(source, member)
        state = replace(state, members={**state.members, member_id: member})
    if kind not in (GROUP, MEMBER):
        _tag_0(source)
    return state


def _open(value: bytes) -> Input:
    (version,) = I16.unpack_from(value, 0)
    if version != 0:
        raise BadFrame(f"version {version}")
    return Input(memoryview(value), I16.size)


def _read_said(source: Input, member: ConsumerMember) -> ConsumerMember:
    instance_id, rack_id, client_id, client_host = (_compact(source) for _ in range(4))
    topics = frozenset(_compact(source) or "" for _ in range(_count(source)))
    pattern = _compact(source)
    return replace(
        member,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id or "",
        client_host=client_host or "",
        topics=topics,
        pattern=pattern or None,
        rebalance_timeout_ms=source.i32(),
        assignor=_compact(source),
        classic=_read_classic(_tag_0(source)),
    )


def _read_classic(raw: memoryview | None) -> Classic | None:
    if raw is None or bytes(raw[:1]) != _PRESENT:
        return None
    source = Input(raw, len(_PRESENT))
    session_timeout_ms, protocols = source.i32(), []
    for _ in range(_count(source)):
        name, metadata = _compact(source) or "", bytes(source.take(max(source.uvarint() - 1, 0)))
        protocols.append((name, metadata))
        _tag_0(source)
    return Classic(session_timeout_ms, tuple(protocols))


def _read_held(source: Input, member: ConsumerMember) -> ConsumerMember:
    epoch, previous = source.i32(), source.i32()
    state = MemberState(source.take(1)[0])
    assigned, revoking = _read_since(source, epoch), _read_since(source, epoch)
    return replace(
        member,
        epoch=epoch,
        previous_epoch=previous,
        state=state,
        assigned=frozenset(assigned),
        revoking=frozenset(revoking),
        since={**assigned, **revoking},
    )


def read_places(source: Input) -> Places:
    return frozenset(_read_since(source, 0))


def _read_since(source: Input, epoch: int) -> dict[Place, int]:
    """Places and the epochs in which they were assigned; *epoch* where that is not told."""
    places: dict[Place, int] = {}
    for _ in range(_count(source)):
        topic_id = Uuid(bytes(source.take(ID_BYTES)))
        partitions = [source.i32() for _ in range(_count(source))]
        epochs = _tag_i32s(source) or [epoch] * len(partitions)
        places |= {(topic_id, partition): since for partition, since in zip(partitions, epochs, strict=True)}
    return places


def _tag_i32s(source: Input) -> list[int]:
    """The array in tag 0; empty when it is not there."""
    raw = _tag_0(source)
    if raw is None:
        return []
    inner = Input(raw, 0)
    return [inner.i32() for _ in range(_count(inner))]


def _tag_i64(source: Input) -> int:
    """The value of tag 0."""
    raw = _tag_0(source)
    return 0 if raw is None else int(_I64.unpack(raw)[0])


def _tag_0(source: Input) -> memoryview | None:
    """What tag 0 holds; all other tags are read past."""
    found = None
    for _ in range(source.uvarint()):
        tag, raw = source.uvarint(), source.take(source.uvarint())
        if tag == 0:
            found = raw
    return found


def _count(source: Input) -> int:
    return max(source.count(source.uvarint() - 1), 0)


def _compact(source: Input) -> str | None:
    value, source.position = read_compact_string(source.frame, source.position)
    return value
