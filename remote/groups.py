"""Group files: what all consumer groups have committed at one moment, for a host that goes on without its disks.

A `.zst` of JSON lines (LAYOUT.md): the head, then groups with their offsets, then how many there were. Each is written
once; the newest by (epoch, sequence) counts.
"""

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import zstandard

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.documents import VERSION, NewerFormat

_LEVEL = 3
_A_LINE = 200
"""Offsets: none takes long to encode, for other threads wait meanwhile."""
_MAX_LINE = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """How far a group has come in one partition: the next offset to read."""

    topic: str
    topic_id: Uuid | None
    """None: it was committed by a client that knew only the name."""
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_ms: int
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """Some or all of a group's offsets."""

    group: str
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class GroupFile:
    """All groups at one moment."""

    taken_ms: int
    """Wall clock of the broker."""
    groups: tuple[GroupOffsets, ...]
    """Ascending; a large group comes in several parts."""


def encode_groups(taken_ms: int, groups: Iterable[GroupOffsets]) -> bytes:
    """The file's bytes; any thread. *groups* are taken one after the other."""
    out = io.BytesIO()
    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    count = 0
    with compressor.stream_writer(out, closefd=False) as lines:
        lines.write(_line({"version": VERSION, "taken_ms": taken_ms}))
        for group in groups:
            for at in range(0, len(group.offsets), _A_LINE):
                part = group.offsets[at : at + _A_LINE]
                lines.write(_line({"group": group.group, "offsets": [_row(one) for one in part]}))
                count += len(part)
        lines.write(_line({"offsets": count}))
    return out.getvalue()


def _line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _row(one: GroupOffset) -> list[object]:
    topic_id = None if one.topic_id is None else str(one.topic_id)
    times = [one.commit_ms] if one.expire_ms is None else [one.commit_ms, one.expire_ms]
    return [one.topic, topic_id, one.partition, one.offset, one.leader_epoch, one.metadata, *times]


def parse_groups(raw: bytes, where: str) -> GroupFile:
    """Raises NewerFormat, CorruptFile: also for one that is not whole."""
    try:
        lines = _lines(raw, where)
        head = next(lines)
        if head["version"] > VERSION:
            raise NewerFormat(where, 0, f"format version {head['version']}, this tierd knows {VERSION}")
        taken_ms, groups, count = int(head["taken_ms"]), list[GroupOffsets](), 0
        for line in lines:
            if "group" not in line:
                if line["offsets"] != count or next(lines, None) is not None:
                    raise CorruptFile(where, 0, f"{count} offsets, and it says {line['offsets']}")
                return GroupFile(taken_ms, tuple(groups))
            groups.append(GroupOffsets(str(line["group"]), tuple(_offset(row) for row in line["offsets"])))
            count += len(groups[-1].offsets)
    except (ValueError, KeyError, TypeError, StopIteration, zstandard.ZstdError) as error:
        raise CorruptFile(where, 0, f"not a group file: {error!r}") from error
    raise CorruptFile(where, 0, "its last line is missing")


def _lines(raw: bytes, where: str) -> Iterator[dict[str, Any]]:
    with zstandard.ZstdDecompressor().stream_reader(raw) as plain:
        text = io.BufferedReader(plain)
        while line := text.readline(_MAX_LINE):
            value = json.loads(line)
            if not isinstance(value, dict):
                raise CorruptFile(where, 0, "a line is no object")
            yield value


def _offset(row: list[Any]) -> GroupOffset:
    topic, topic_id, partition, offset, leader_epoch, metadata, commit_ms, *rest = row
    return GroupOffset(
        str(topic),
        None if topic_id is None else Uuid.parse(topic_id),
        int(partition),
        int(offset),
        None if leader_epoch is None else int(leader_epoch),
        str(metadata),
        int(commit_ms),
        int(rest[0]) if rest else None,
    )
