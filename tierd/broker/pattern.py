"""Regular expressions of clients, matched in time that grows with the text only: Python's own may take for ever.

The common part of RE2's syntax, which Kafka uses here: literals, `.`, classes, `\\d \\w \\s` and their opposites,
groups, `|`, `* + ? {m,n}` (lazy ones too), `^ $`. Anything else is refused. A pattern becomes a small program
(K. Thompson's), which is run on all its threads at once; jumps are relative, so that pieces can be put together.
Where threads get to is remembered: many texts cost little more than a look-up for each of their characters.
"""

import string
from typing import Final, NamedTuple

from tierd.base.errors import TierdError

MAX_STEPS: Final = 500
"""Of a program; `{m,n}` repeats a piece."""
_MAX_DEPTH: Final = 50
_MOST_REMEMBERED: Final = 2_000
"""Steps of one pattern."""

_DIGIT: Final = (("0", "9"),)
_WORD: Final = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_SPACE: Final = (("\t", "\n"), ("\f", "\r"), (" ", " "))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_REPEATS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}


class BadPattern(TierdError):
    """Not a regular expression, or one that is not understood here."""


class Char(NamedTuple):
    """Takes one character that is (or is not) in one of the ranges, both ends included."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def takes(self, char: str) -> bool:
        return any(first <= char <= last for first, last in self.ranges) is not self.negated


class Split(NamedTuple):
    """Goes on at both."""

    first: int
    second: int


class Edge(NamedTuple):
    """Goes on only at the start, or at the end, of the text."""

    end: bool


Program = tuple[Char | Split | Edge, ...]


class Pattern:
    """Matches whole texts only."""

    def __init__(self, pattern: str) -> None:
        """Raises BadPattern."""
        self._program = _Parser(pattern).parse()
        self._known: dict[tuple[frozenset[int], str, bool], frozenset[int]] = {}

    def matches(self, text: str) -> bool:
        threads, last = self._reached({0}, 0, len(text)), len(text)
        for position, char in enumerate(text, 1):
            threads = self._after(threads, char, ends=position == last)
            if not threads:
                return False
        return len(self._program) in threads

    def _after(self, threads: frozenset[int], char: str, *, ends: bool) -> frozenset[int]:
        """Where they get to with one more character, the text's last when it *ends* there."""
        step = threads, char, ends
        found = self._known.get(step)
        if found is None:
            after = {at + 1 for at in threads if isinstance(one := self._at(at), Char) and one.takes(char)}
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = self._known[step] = self._reached(after, 1, 1 if ends else 2)
        return found

    def _at(self, at: int) -> Char | Split | Edge | None:
        return self._program[at] if at < len(self._program) else None

    def _reached(self, threads: set[int], position: int, end: int) -> frozenset[int]:
        """Where they get to without another character."""
        found: set[int] = set()
        waiting = list(threads)
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            step = self._at(at)
            if isinstance(step, Split):
                waiting += (at + step.first, at + step.second)
            elif isinstance(step, Edge) and position == (end if step.end else 0):
                waiting.append(at + 1)
        return frozenset(found)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._depth = 0

    def parse(self) -> Program:
        program = self._alternatives()
        if self._at < len(self._pattern):
            raise self._bad("an unopened )")
        return program

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise self._bad("it ends too early")
        self._at += 1
        return char

    def _eat(self, text: str) -> bool:
        found = self._pattern.startswith(text, self._at)
        self._at += len(text) * found
        return found

    def _bad(self, why: str) -> BadPattern:
        return BadPattern(f"character {self._at} of {self._pattern!r}: {why}")

    def _sized(self, program: Program) -> Program:
        if len(program) > MAX_STEPS:
            raise self._bad("it is too large")
        return program

    def _alternatives(self) -> Program:
        program = self._sequence()
        while self._eat("|"):
            other = self._sequence()
            skip = Split(len(other) + 1, len(other) + 1)
            program = self._sized((Split(1, len(program) + 2), *program, skip, *other))
        return program

    def _sequence(self) -> Program:
        program: Program = ()
        while self._peek() not in ("", "|", ")"):
            program = self._sized(program + self._repeated(self._atom()))
        return program

    def _repeated(self, piece: Program) -> Program:
        bounds = self._bounds()
        if bounds is None:
            return piece
        least, most = bounds
        self._eat("?")  # lazy or not is the same when only whole texts match
        if self._peek() in ("*", "+", "?") or self._bounds() is not None:
            raise self._bad("a repeat of a repeat")
        if len(piece) * (most or least) > MAX_STEPS:
            raise self._bad("it is too large")
        program = piece * least
        if most is None:
            return (*program, Split(1, len(piece) + 2), *piece, Split(-len(piece) - 1, -len(piece) - 1))
        return program + (Split(1, len(piece) + 1), *piece) * (most - least)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._peek() in _REPEATS:
            return _REPEATS[self._take()]
        stop = self._pattern.find("}", self._at)
        least, comma, most = self._pattern[self._at + 1 : stop].partition(",")
        if self._peek() != "{" or stop < 0 or not _is_number(least) or not (most == "" or _is_number(most)):
            return None  # an ordinary brace
        self._at = stop + 1
        highest = int(least) if not comma else int(most) if most else None
        if highest is not None and highest < int(least):
            raise self._bad("the wrong way round")
        return int(least), highest

    def _atom(self) -> Program:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return (self._class(),)
        if char == "\\":
            return (self._escape(),)
        if char in "^$":
            return (Edge(end=char == "$"),)
        if char in "*+?":
            raise self._bad("nothing to repeat")
        return (Char((("\n", "\n"),), negated=True) if char == "." else _only(char),)

    def _group(self) -> Program:
        if self._eat("?") and not self._eat(":"):
            raise self._bad("only (?: is understood after a (")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._bad("too many groups in each other")
        program = self._alternatives()
        self._depth -= 1
        if self._take() != ")":
            raise self._bad("an unclosed (")
        return program

    def _escape(self) -> Char:
        char = self._take()
        if char in _CONTROLS:
            return _only(_CONTROLS[char])
        if char.lower() in _CLASSES:
            return Char(_CLASSES[char.lower()], negated=char.isupper())
        if char not in string.punctuation:
            raise self._bad(f"\\{char} is not understood")
        return _only(char)

    def _class(self) -> Char:
        negated = self._eat("^")
        ranges: list[tuple[str, str]] = []
        while not (self._peek() == "]" and ranges):
            ranges += self._class_part()
        self._at += 1
        return Char(tuple(ranges), negated)

    def _class_part(self) -> tuple[tuple[str, str], ...]:
        first = self._class_char()
        if first.negated:
            raise self._bad("an opposite within a class")
        alone = len(first.ranges) > 1 or first.ranges[0][0] != first.ranges[0][1]
        if alone or self._peek() != "-" or self._pattern[self._at + 1 : self._at + 2] in ("]", ""):
            return first.ranges
        self._at += 1
        last = self._class_char()
        if last.negated or len(last.ranges) > 1 or last.ranges[0][0] != last.ranges[0][1]:
            raise self._bad("a range ends in a single character")
        if last.ranges[0][0] < first.ranges[0][0]:
            raise self._bad("the wrong way round")
        return ((first.ranges[0][0], last.ranges[0][0]),)

    def _class_char(self) -> Char:
        if self._pattern.startswith("[:", self._at):
            raise self._bad("named classes are not understood")
        char = self._take()
        return self._escape() if char == "\\" else _only(char)


def _only(char: str) -> Char:
    return Char(((char, char),))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4
