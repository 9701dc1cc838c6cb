"""Group files: what they say comes back, and no cut one passes for a whole one."""

import pytest
import zstandard

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.documents import NewerFormat
from tierd.remote.groups import GroupOffset, GroupOffsets, encode_groups, parse_groups

ONE = GroupOffset("t", Uuid(bytes(range(16))), 1, 2**40, 7, "what\nthe client said", 3, 4)
OTHER = GroupOffset("t", None, 2, 0, None, "", 5)


def packed(*lines: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(b"".join(line + b"\n" for line in lines))


def test_what_is_written_comes_back_a_large_group_in_parts() -> None:
    many = GroupOffsets("large", tuple(GroupOffset("t", None, number, 1, 0, "", 5) for number in range(450)))
    found = parse_groups(encode_groups(9, [GroupOffsets("g", (ONE, OTHER)), many]), "x")
    assert found.taken_ms == 9
    assert found.groups[0] == GroupOffsets("g", (ONE, OTHER))
    assert [part.group for part in found.groups[1:]] == ["large"] * 3
    assert sum((part.offsets for part in found.groups[1:]), ()) == many.offsets
    assert parse_groups(encode_groups(9, []), "x").groups == ()


def test_every_cut_of_the_lines_is_found() -> None:
    plain = zstandard.ZstdDecompressor().decompressobj().decompress(encode_groups(9, [GroupOffsets("g", (ONE, OTHER))]))
    for stop in range(len(plain) - 1):  # without the last line's end it is whole
        with pytest.raises(CorruptFile, match="x: byte 0"):
            parse_groups(zstandard.ZstdCompressor().compress(plain[:stop]), "x")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no zstd",
        packed(b"[]"),
        packed(b'{"version":1}'),
        packed(b'{"version":1,"taken_ms":1}', b'{"group":"g","offsets":[["t"]]}', b'{"offsets":1}'),
        packed(b'{"version":1,"taken_ms":1}', b'{"offsets":1}'),
        packed(b'{"version":1,"taken_ms":1}', b'{"offsets":0}', b'{"offsets":0}'),
    ],
)
def test_what_is_no_group_file_is_refused(raw: bytes) -> None:
    with pytest.raises(CorruptFile):
        parse_groups(raw, "x")


def test_a_later_format_is_not_guessed_at() -> None:
    with pytest.raises(NewerFormat, match="version 2"):
        parse_groups(packed(b'{"version":2}'), "x")
