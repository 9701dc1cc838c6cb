"""Log lines and exit codes."""

import logging
import sys

import pytest

from tierd.base import logs
from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, StartRefused, TierdError, Usage
from tierd.base.exits import exit_of


def test_a_line_is_an_event_and_its_facts() -> None:
    record = logging.makeLogRecord(
        {
            "name": "tierd.broker",
            "levelname": "INFO",
            "msg": "segment uploaded",
            "created": 0.5,
            "base": 7,
            "why": "a b",
        }
    )
    assert logs.FactFormatter().format(record) == (
        '1970-01-01T00:00:00.500Z info    broker: segment uploaded base=7 why="a b"'
    )


def test_a_fact_cannot_forge_a_line() -> None:
    record = logging.makeLogRecord({"name": "tierd", "levelname": "INFO", "msg": "x", "client": "a\nb=c", "empty": ""})
    assert logs.FactFormatter().format(record).endswith('client="a\\nb=c" empty=""')


@pytest.mark.parametrize("nasty", ["\x1b[2J", "a\u2028b", "half\ud800", "a\x85b"])
def test_a_fact_cannot_speak_to_a_terminal(nasty: str) -> None:
    line = logs.FactFormatter().format(logging.makeLogRecord({"name": "tierd", "msg": "x", "user": nasty}))
    assert line.isascii()
    assert line.isprintable()


def test_what_a_stranger_says_is_counted_and_not_kept() -> None:
    failures, said = logs.Doubling(), "x" * (1 << 20)
    before = sys.getrefcount(said)
    assert [failures.failed(("host", said)) for _ in range(4)] == [1, 2, None, 4]
    assert sys.getrefcount(said) == before
    failures.well(("host", said))
    assert failures.failed(("host", said)) == 1


def test_errors_have_their_trace() -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        record = logging.LogRecord("tierd", logging.ERROR, "f", 1, "died", None, sys.exc_info())
    assert logs.FactFormatter().format(record).endswith("ValueError: boom")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Usage("x"), 2),
        (StartRefused("x"), 4),
        (RemoteUnavailable("x"), 5),
        (DiskFull("x"), 1),
        (CorruptFile("x", 0, "y"), 1),
        (TierdError("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: TierdError, code: int) -> None:
    assert exit_of(error) == code
