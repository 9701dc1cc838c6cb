"""Damage in the bucket, from finding it to living with it, by the verbs alone: verify, heal, gaps, sweep."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit import cli, tiers, traffic
from kit.daemon import Daemon, running

pytestmark = pytest.mark.e2e

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1", "--set", "remote.head.interval.ms=200ms")


@pytest.mark.full
def test_what_is_damaged_is_healed_and_what_is_lost_is_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = tmp_path / "bucket"

    def verb(daemon: Daemon, *words: str, code: int = 0) -> Any:
        ended = cli.tierd(capsys, *words, "--data", daemon.data, "--json")
        assert ended.code == code, ended
        return json.loads(ended.out)

    with running(tmp_path / "data", f"file:{bucket}", *SMALL) as tierd:
        sent = tiers.fill(tierd, "t", 4)
        verb(tierd, "copy", "--wait", "--roll")
        broken, lost = sorted(bucket.glob("t-*/0/*.log"))[:2]
        raw = broken.read_bytes()
        broken.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        assert verb(tierd, "verify", "--deep", "--heal", code=1)["verdict"] == "FAILURE"
        tiers.until("verify is green", lambda: cli.tierd(capsys, "verify", "--deep", "--data", tierd.data).code == 0)
        verb(tierd, "evict")
        lost.unlink()
        assert verb(tierd, "evict", code=3)["outcome"] == "pinned"
        first = int(lost.name[:20])
        (gap,) = verb(tierd, "gaps", "list")
        assert (gap["topic"], gap["start"], gap["accepted"]) == ("t", first, False)
        assert verb(tierd, "verify", code=1)["verdict"] == "FAILURE"
        (gap,) = verb(tierd, "gaps", "accept", "t-0", "--why", "the test took it", "--who", "ada")
        (kept,) = verb(tierd, "gaps", "list")
        assert kept == gap == {**gap, "accepted": True, "who": "ada", "why": "the test took it"}
        assert verb(tierd, "verify", "--deep")["verdict"] == "OK"
        verb(tierd, "evict")
        end = sent[-1].offset + 1
        got = traffic.consume_confluent(tierd.address, "t", gap["start"], end)
        assert [one.offset for one in got] == list(range(gap["stop"], end)), "a reader goes on behind it"
        swept = verb(tierd, "sweep", "--dry-run")
        assert (swept["outcome"], swept["deleted"]) == ("done", 0)
        assert {one["kind"] for one in swept["leftovers"]} <= {"young", "unexplained"}
