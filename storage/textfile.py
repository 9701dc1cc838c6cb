"""What Kafka's two kinds of checkpoint share: a version line, a line that counts, then as many rows."""

from collections.abc import Iterable, Iterator

from tierd.base.errors import CorruptFile

_VERSION = "0"


def parse_rows(raw: bytes, fields: int, where: str) -> Iterator[tuple[int, list[str]]]:
    """(position of the row, its *fields* words) for each row. Raises CorruptFile for anything else in the file."""
    lines, position = raw.split(b"\n"), 0
    if len(lines) < 3 or lines[-1] or lines[0] != _VERSION.encode():
        raise CorruptFile(where, 0, "it does not begin with version 0 and a count, or its last line has no end")
    if not lines[1].isdigit() or int(lines[1]) != len(lines) - 3:
        raise CorruptFile(where, 2, f"the count {lines[1]!r} does not match {len(lines) - 3} rows")
    position = len(lines[0]) + len(lines[1]) + 2
    for line in lines[2:-1]:
        words = line.decode("utf-8", "replace").split(" ")
        if len(words) != fields:
            raise CorruptFile(where, position, f"a row needs {fields} words, got {line!r}")
        yield position, words
        position += len(line) + 1


def encode_rows(rows: Iterable[str]) -> bytes:
    found = list(rows)
    return "".join(f"{line}\n" for line in (_VERSION, str(len(found)), *found)).encode()


def number(word: str, position: int, where: str) -> int:
    """A decimal number of at most 64 bits. Raises CorruptFile."""
    if not word.isascii() or not word.isdigit() or int(word) >= 2**63:
        raise CorruptFile(where, position, f"{word!r} is not a number")
    return int(word)
