"""Patterns of clients: the same answers as Python's own, for what both understand, and never more than linear time."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierd.broker.pattern import MAX_STEPS, BadPattern, Pattern

CHARS = st.sampled_from(["a", "b", "-", "1", "\n", " ", "_"])
ATOMS = st.sampled_from(
    ["a", "b", "1", ".", r"\d", r"\W", r"\s", r"\.", r"\-", "[ab]", "[^a1]", "[a-b1]", r"[\d-]", "[]a]", "^", "$", ""]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("({}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{1,}", "*?", "{0}"])),
    ),
    max_leaves=8,
)


OTHERS = ["*", "a**", "a{2}{2}", "a{2,1}", "a{9999}", "(a{50}){50}", "\\", r"\1", r"\b", "(?i)a", "(?P<x>a)"]
OTHERS += ["(" * 60 + ")" * 60, "a" * (MAX_STEPS + 1)]


@given(PATTERNS, st.lists(CHARS, max_size=8).map("".join))
def test_as_python_answers(pattern: str, text: str) -> None:
    # Python's `$` also stands before a newline at the end.
    expected = re.fullmatch(pattern.replace("$", r"\Z"), text, re.ASCII)
    assert Pattern(pattern).matches(text) is (expected is not None)


@pytest.mark.parametrize(
    ("pattern", "takes", "leaves"),
    [
        ("", "", "a"),
        ("app-.*", "app-1", "my-app-1"),
        ("a{2}b{,2}", "aab{,2}", "aab"),
        ("a{x}", "a{x}", "a"),
        ("[+--]", ",", "a"),
        ("[a-]", "-", "b"),
        ("é|ü", "ü", "u"),
    ],
)
def test_by_hand(pattern: str, takes: str, leaves: str) -> None:
    assert Pattern(pattern).matches(takes)
    assert not Pattern(pattern).matches(leaves)


@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "a)", "[", "[a", "[]", "[b-a]", r"[\d-a\W]", r"[a-\d]", "[[:alpha:]]", *OTHERS],
)
def test_what_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


def test_no_pattern_takes_for_ever() -> None:
    begun = time.process_time()
    assert not Pattern("(a+)+b").matches("a" * 2000)
    assert not Pattern("(a|a)*(a|a)*(a?){20}b").matches("a" * 2000)
    assert not Pattern("(()*)*b").matches("a" * 2000)
    assert time.process_time() - begun < 10
