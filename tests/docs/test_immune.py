"""docs/immune.md: each row once, and every test that it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "immune.md"
ROWS = [*map(str, range(1, 55)), *"ABCDEFGHIJ"]
_TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str]]:
    cells = (line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| "))
    return [(row[1].strip(), row[-2]) for row in cells if row[1].strip() != "#"]


def test_each_row_is_there_once() -> None:
    assert [number for number, _ in rows()] == ROWS


def test_each_row_names_tests_that_are_there() -> None:
    for number, named in rows():
        found = _TEST.findall(named)
        assert found, f"row {number} names no test"
        for file, name in found:
            assert re.search(rf"def {name}\b", (ROOT / file).read_text()), f"row {number}: {file}::{name}"
