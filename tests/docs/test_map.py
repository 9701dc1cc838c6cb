"""ARCHITECTURE.md leads to every module of the rooms that have many."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def mapped(room: str) -> list[str]:
    """The modules and folders that the room's table names; what is said of them in parentheses is left out."""
    table = re.search(rf"^\*\*{room}\*\*\n\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert table is not None
    return re.findall(r"`(\w+)`", re.sub(r"\([^()]*\)", "", table[1]))


@pytest.mark.parametrize("room", ["tierd/broker", "storage"])
def test_each_module_is_on_the_map_once(room: str) -> None:
    there = [path.stem for path in (ROOT / room).glob("*.py") if path.stem != "__init__"]
    there += [path.parent.name for path in (ROOT / room).glob("*/__init__.py")]
    assert sorted(mapped(room)) == sorted(there)
