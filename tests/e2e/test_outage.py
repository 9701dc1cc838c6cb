"""The bucket goes away in the middle of an upload and comes back; SeaweedFS behind a proxy that can be cut."""

from pathlib import Path

import pytest

from kit import bucket, tiers
from kit.daemon import running
from kit.proxy import Proxy
from kit.weed import Weed
from tierd.config.topic import MIB

pytestmark = [pytest.mark.e2e, pytest.mark.s3]

SETS = (
    *("--set", "segment.bytes=12MiB"),
    *("--set", "remote.part.bytes=5MiB"),
    *("--set", "local.retention.ms=1000"),
    *("--set", "log.retention.check.interval.ms=200"),
    *("--set", "remote.request.timeout.ms=3000"),
    *("--set", "remote.retry.max.ms=1000"),
)


def test_an_outage_in_the_middle_of_a_copy(tmp_path: Path, weed_server: Weed, line: Proxy) -> None:
    remotely = bucket.in_weed(weed_server, "outage")
    sets = (*SETS, "--set", f"remote.s3.endpoint={line.endpoint}", "--set", "remote.s3.region=us-east-1")
    with running(tmp_path / "data", remotely.url, *sets, env=remotely.env) as tierd:
        sent = tiers.fill(tierd, "cut", 13)
        first = tiers.until("one segment is copied", lambda: tierd.partition("cut")["copied_to"])
        tiers.until("it has left", lambda: tierd.partition("cut")["local_start"] == first)

        line.cut_after(7 * MIB)  # inside the second part of the next segment
        sent += tiers.fill(tierd, "cut", 12, start=len(sent))
        tiers.until("the line is cut", lambda: line.is_cut)
        tiers.until("the copy is tried again", lambda: tiers.reason(tierd, "cut") == "retrying")
        assert tierd.verb("copy", "--wait", "--json", expect=5).stdout.startswith("{")
        assert "bucket" in tierd.verb("evict", expect=5).stderr
        sent += tiers.fill(tierd, "cut", 1, start=len(sent))
        row = tierd.partition("cut")
        assert row["copied_to"] == row["local_start"] == first, "what is not copied stays"
        assert tierd.status()["claim"] == "held"
        tiers.read_back(tierd, "cut", sent[first:])

        line.join()
        tiers.until("the copies go on by themselves", lambda: tierd.partition("cut")["copied_to"] > first)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        row = tierd.partition("cut")
        assert row["copied_to"] == row["local_start"] == row["log_end"] == len(sent)
        tiers.read_back(tierd, "cut", sent)
        committed = bucket.ranges(tiers.state_of(tierd), "cut")
        assert [base for base, _ in committed] == [0, *(stop for _, stop in committed[:-1])]
        assert committed[-1][1] == len(sent)
        assert bucket.unowned(remotely, tiers.state_of(tierd)) == []
        assert tierd.stop() == 0
