"""Every file that a real Kafka wrote parses, and what the codecs write back are the same bytes."""

from pathlib import Path

import pytest

from kit.formats import FORMATS, Format, base_of
from kit.golden import golden
from tierd.base.errors import CorruptFile

BROKEN = {
    "rd-bad-index-0/00000000000000000035.index": "byte 0: .* cannot be in a segment that begins at 35",
    "rd-bad-index-size-0/00000000000000000035.index": "byte 32: 3 stray bytes",
    "rd-bad-snapshot-0/00000000000000000195.snapshot": "byte 2: the CRC does not match",
}
"""What was done to some of the files in `damaged`; `repaired` still has the two indexes."""

SEEN = {
    "log": 461,
    "offset index": 629,
    "time index": 632,
    "producer snapshot": 594,
    "transaction index": 58,
    "leader epochs": 118,
    "checkpoint": 28,
    "partition metadata": 117,
    "meta.properties": 7,
    "clean shutdown": 3,
}
"""How many sound files the recordings have: none may go unread."""


def _files(ending: str) -> list[Path]:
    roots = [
        golden("kafka") / name for name in ("clean", "final", "killed", "recovered", "repaired", "damaged", "live")
    ]
    roots += sorted(golden("aiven").glob("local-*"))
    return sorted(path for root in roots for path in root.rglob(f"*{ending}"))


@pytest.mark.parametrize("kind", FORMATS, ids=str)
def test_what_is_written_back_is_the_same(kind: Format) -> None:
    seen = 0
    for path in _files(kind.ending):
        recording = path.parent.parent.name
        if f"{path.parent.name}/{path.name}" in BROKEN or (kind.name == "log" and recording in ("damaged", "live")):
            continue
        raw = path.read_bytes()
        assert kind.again(raw, base_of(path.name)) == raw, path
        seen += 1
    assert seen == SEEN[kind.name]


@pytest.mark.parametrize("file", BROKEN)
def test_broken_files_say_what_and_where(file: str) -> None:
    path = golden("kafka") / "damaged" / file
    kind = next(kind for kind in FORMATS if path.name.endswith(kind.ending))
    with pytest.raises(CorruptFile, match=BROKEN[file]):
        kind.again(path.read_bytes(), base_of(path.name))
