"""One partition whose requests hang or fail stops no other, and status says in words what happens to it."""

from pathlib import Path

import pytest

from kit import bucket, tiers
from kit.bad_s3 import bad_s3
from kit.daemon import running
from kit.faults import Asked, Fault, always
from kit.weed import Weed

pytestmark = [pytest.mark.e2e, pytest.mark.s3]

BAD, GOOD = "hanging", ("fine-0", "fine-1", "fine-2")
SETS = (
    *("--set", "segment.bytes=1MiB"),
    *("--set", "remote.copy.threads=2"),
    *("--set", "remote.request.timeout.ms=1s"),
    *("--set", "remote.retry.max.ms=1s"),
    *("--set", "remote.s3.region=us-east-1"),
)


def test_one_bad_partition_stops_no_other(tmp_path: Path, weed_server: Weed) -> None:
    def of_the_bad_one(request: Asked) -> bool:
        return request.method == "PUT" and f"/{BAD}-" in request.path

    plan = always([Fault.STALL, Fault.DRIP, Fault.INTERNAL], only=of_the_bad_one)
    remotely = bucket.in_weed(weed_server, "one-bad")
    with bad_s3(weed_server.endpoint, plan) as bad:
        sets = (*SETS, "--set", f"remote.s3.endpoint={bad.endpoint}")
        with running(tmp_path / "data", remotely.url, *sets, env=remotely.env) as tierd:
            tiers.fill(tierd, BAD, 2)
            tiers.until("the bad one is tried", lambda: plan.done.total() > 0)
            for topic in GOOD:
                tiers.fill(tierd, topic, 2)
            for topic in GOOD:
                tiers.until(f"{topic} is copied", lambda topic=topic: tierd.partition(topic)["copied_to"])  # type: ignore[misc]
            assert not tierd.partition(BAD)["copied_to"]
            waiting = tiers.until(
                "it is said why",
                lambda: (now := tierd.partition(BAD)["waiting"]) and now["reason"] == "retrying" and now,
            )
            assert "failed" in waiting["detail"]
            plan.rest()
            tiers.until("the bad one is copied, too", lambda: tierd.partition(BAD)["copied_to"])
            assert tierd.stop() == 0
