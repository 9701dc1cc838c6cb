"""Every reason that the code gives is in the one table of them, with what to do about it."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tierd.broker.status import untiered
from tierd.remote.reasons import NEXT_STEPS, next_step

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [*(ROOT / "tierd").rglob("*.py"), *(ROOT / "remote").glob("*.py"), *(ROOT / "storage").glob("*.py")]
GIVERS = {"Waiting": 0, "Why": 0, "_about": 1}
"""Which argument of each is the reason."""


def given(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in GIVERS):
            continue
        at = GIVERS[node.func.id]
        named = [word.value for word in node.keywords if word.arg == "reason"]
        for found in ast.walk([*node.args, *named][at] if len(node.args) + len(named) > at else ast.Pass()):
            if isinstance(found, ast.Constant) and isinstance(found.value, str):
                yield found.value


def test_each_reason_is_in_the_table() -> None:
    reasons = {reason for path in SOURCES for reason in given(ast.parse(path.read_text()))}
    assert reasons >= {"pinned", "retrying", "untiered", "kept", "due"}, "the search finds what is there"
    assert reasons <= NEXT_STEPS.keys()
    assert NEXT_STEPS.keys() <= reasons | {"offline"}, "the table has none that nobody gives"
    assert all(next_step(reason) for reason in reasons)


def test_kafkas_own_topics_are_not_to_be_tiered() -> None:
    for topic in ("__consumer_offsets", "__transaction_state", "__remote_log_metadata"):
        for has_tier in (False, True):
            assert untiered(topic, has_tier=has_tier).reason == "internal"
    assert "remote.storage.enable" not in next_step("internal")
    assert untiered("t", has_tier=True).reason == "untiered"
