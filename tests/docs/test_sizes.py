"""What linters do not look for: no file and no function is longer than CONTRIBUTING.md allows, no wait is a trap."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tierd", "storage", "remote", "config", "tests", "bench", "docs", ".ci")
FILE_LINES, FUNCTION_LINES = 400, 60


def sources() -> Iterator[tuple[str, str]]:
    """Name and text of each file; what `tierd/` only links to comes once."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text()


def functions() -> Iterator[tuple[str, int]]:
    """Each function with its length in lines, from `def` to its end."""
    for name, text in sources():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                assert node.end_lineno is not None
                yield f"{name}: {node.name}", node.end_lineno - node.lineno + 1


def test_no_file_is_too_long() -> None:
    lengths = {name: text.count("\n") for name, text in sources()}
    assert "storage/log.py" in lengths
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_too_long() -> None:
    lengths = list(functions())
    assert "storage/log.py: append" in dict(lengths)
    assert [found for found in lengths if found[1] > FUNCTION_LINES] == []


def test_the_limits_are_those_that_contributors_are_told() -> None:
    told = re.search(
        r"none above (\d+); functions mostly under \d+, none above (\d+)", (ROOT / "CONTRIBUTING.md").read_text()
    )
    assert told is not None
    assert (int(told[1]), int(told[2])) == (FILE_LINES, FUNCTION_LINES)


def test_no_wait_loses_a_cancellation() -> None:
    """As `asyncio.wait_for` of Python 3.11 does when both come at the same time; `asyncio.timeout` does not."""
    code = [(name, text) for name, text in sources() if not name.startswith("tests/")]
    assert any("asyncio.timeout(" in text for _, text in code)
    assert [name for name, text in code if "wait_for(" in text] == []
