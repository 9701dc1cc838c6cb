"""The demo's own parts: it must notice a wrong record, and say why tierd does not start."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.cli import tierd
from tierd.cli.daemon_process import DaemonProcess, DidNotStart
from tierd.cli.demo_traffic import RECORD_BYTES, Tally, TrafficFailed, check, value_of


@dataclass
class Received:
    """What confluent-kafka's Message is asked for."""

    n: int
    at: int
    payload: bytes | None = None

    def error(self) -> None:
        return None

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return str(self.n).encode()

    def value(self) -> bytes:
        return value_of(self.n) if self.payload is None else self.payload


def test_records_are_told_apart_and_have_their_size() -> None:
    values = {value_of(n) for n in range(5000)}
    assert len(values) == 5000
    assert {len(value) for value in values} == {RECORD_BYTES}


def test_right_records_are_counted_by_tier() -> None:
    tally = Tally()
    for offset in range(3):
        check(Received(offset * 4 + 2, offset), tally, {2: 2})
    assert (tally.remote_records, tally.local_records) == (2, 1)
    assert tally.remote_bytes == 2 * RECORD_BYTES


@pytest.mark.parametrize(
    "wrong",
    [
        Received(6, 0),  # another record
        Received(6, 1),  # a gap
        Received(2, 0, b"\1" + value_of(2)[1:]),
        Received(2, 0, value_of(2)[:-1]),
        Received(2, 0, b""),
    ],
)
def test_a_wrong_record_is_noticed(wrong: Received) -> None:
    with pytest.raises(TrafficFailed, match="not the record that was sent"):
        check(wrong, Tally(), {2: 0})


def test_a_record_that_comes_twice_is_noticed() -> None:
    tally = Tally()
    check(Received(2, 0), tally, {2: 0})
    with pytest.raises(TrafficFailed):
        check(Received(2, 0), tally, {2: 0})


def test_a_daemon_that_does_not_start_says_why(tmp_path: Path) -> None:
    daemon = DaemonProcess(tmp_path / "data", remote="file:bucket", log=tmp_path / "log", sets={"num.partitions": "0"})
    with pytest.raises(DidNotStart, match=r"num\.partitions"), daemon:
        raise AssertionError("it started")


def test_a_place_that_is_not_empty_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    ended = tierd(capsys, "demo", "--dir", tmp_path)
    assert ended.code == 2
    assert "is not empty" in ended.err
