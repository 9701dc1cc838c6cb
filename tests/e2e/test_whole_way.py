"""One record's whole way with a real client: in, closed, into the bucket, off the local disk, out again."""

from pathlib import Path

import pytest

from kit import traffic
from kit.daemon import running

pytestmark = pytest.mark.e2e

RECORDS = 12_000
SIZE_BYTES = 1000
SMALL = ("--set", "segment.bytes=1MiB")


def test_every_offset_comes_back_from_whichever_tier_has_it(tmp_path: Path) -> None:
    sent = list(traffic.stream("whole", 0, RECORDS, SIZE_BYTES))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", "--listen", "127.0.0.1:0", *SMALL) as tierd:
        assert not tierd.address.endswith(":0"), "the ready line tells the real port"
        traffic.produce_confluent(tierd.address, "whole", sent)
        before = traffic.consume_confluent(tierd.address, "whole", 0, RECORDS)
        assert traffic.digest(before) == traffic.digest(sent)

        tierd.verb("copy", "--wait")
        tierd.verb("evict")
        row = tierd.partition("whole")
        assert row["local_start"] > 0, row
        assert row["copied_to"] == row["local_start"], row
        assert row["log_start"] == 0, row
        assert row["log_end"] == RECORDS, row
        after = traffic.consume_confluent(tierd.address, "whole", 0, RECORDS)
        assert traffic.digest(after) == traffic.digest(sent)
        for n in (0, 1, row["local_start"] - 1, row["local_start"], RECORDS - 1):
            assert traffic.offset_at_confluent(tierd.address, "whole", traffic.T0_MS + n * traffic.STEP_MS) == n
        assert tierd.stop() == 0


def test_a_restart_goes_on_where_it_stopped_and_groups_keep_their_offsets(tmp_path: Path) -> None:
    first, second = (list(traffic.stream("again", a, b, 500)) for a, b in ((0, 3000), (3000, 6000)))
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        traffic.produce_confluent(tierd.address, "again", first)
        got = traffic.group_confluent(tierd.address, "again", "g", 3000)
        assert traffic.digest(got) == traffic.digest(first)
        tierd.verb("copy", "--wait", "--roll")
        tierd.verb("evict")
        assert tierd.stop() == 0
        offline = tierd.status()
        assert offline["running"] is False
        assert next(r for r in offline["partitions"] if r["topic"] == "again")["copied_to"] == 3000

        tierd.start()
        assert traffic.committed_confluent(tierd.address, "again", "g") == 3000
        traffic.produce_confluent(tierd.address, "again", second)
        assert traffic.digest(traffic.consume_confluent(tierd.address, "again", 0, 6000)) == traffic.digest(
            first + second
        )
        assert tierd.status()["running"] is True
