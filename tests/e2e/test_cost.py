"""`tierd cost` says what a real S3 server has counted: every request, by topic and operation, and bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from kit.cli import tierd
from kit.daemon import running
from kit.tiers import alter, copy, create, evict, fill, http, read_back, until
from kit.weed import Weed
from tierd.cli.client import ask

pytestmark = [pytest.mark.e2e, pytest.mark.s3]

SEGMENT_BYTES = 6 * 1024 * 1024


def test_what_is_metered_is_what_the_server_has_counted(
    weed_server: Weed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = weed_server.bucket("metered")
    before = weed_server.requests(bucket)
    sets = {
        "remote.s3.endpoint": weed_server.endpoint,
        "remote.part.bytes": "5MiB",
        "http.address": "127.0.0.1:0",
        "prices.write.requests": "2",
        "prices.read.requests": "1",
        "prices.egress": "1024",
        "prices.storage.standard": "1024",
    }
    (tmp_path / "tierd.toml").write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in sets.items()))
    words = ("-c", str(tmp_path / "tierd.toml"))
    with running(tmp_path / "data", f"s3://{bucket}/p/", *words, env=weed_server.env) as daemon:
        create(daemon, "big", segment_bytes=str(SEGMENT_BYTES), remote_log_copy_disable="true")
        create(daemon, "small")
        sent = fill(daemon, "big", 7)
        fill(daemon, "small", 1)
        ask(daemon.control, "copy", roll=True, wait=False)
        config = str(tmp_path / "tierd.toml")
        ended = tierd(capsys, "plan", "--data", daemon.data, "-c", config, "--json")
        assert ended.code == 0, ended.err
        (planned,) = (one for one in json.loads(ended.out)["topics"] if one["topic"] == "big")
        assert (planned["segments"], planned["partitions"]) == (2, 1)
        alter(daemon, "big", remote_log_copy_disable="false")
        copy(daemon, roll=True)
        evict(daemon)
        read_back(daemon, "big", sent)

        def cost(*where: str) -> dict[str, Any]:
            ended = tierd(capsys, "cost", "--json", *(where or daemon.place))
            assert ended.code == 0, ended.err
            document: dict[str, Any] = json.loads(ended.out)
            return document

        def settled() -> dict[str, Any] | None:
            """Between two looks at the bucket: the server's count before and after is the same."""
            first = weed_server.requests(bucket) - before
            document = cost()
            return document if document["total"]["requests"] == first == weed_server.requests(bucket) - before else None

        document = until("the same count", settled)
        topics = {topic["topic"]: topic for topic in document["topics"]}
        assert topics.keys() == {"big", "small", None}
        counted = {one["operation"]: one for one in topics["big"]["operations"]}
        wanted = planned["upload"]["requests"]
        assert {name: counted[name]["requests"] for name in wanted if name not in ("PutObject", "ListObjectsV2")} == {
            "CreateMultipartUpload": 1,
            "UploadPart": 2,
            "CompleteMultipartUpload": 1,
        }
        # the plan has the head and the topic file once; until now they were written as often as there was time for it
        assert -2 <= counted["PutObject"]["requests"] - wanted["PutObject"] <= 8
        log_bytes = sum(len(one.value or b"") for one in sent)
        assert counted["UploadPart"]["sent_bytes"] + counted["PutObject"]["sent_bytes"] > log_bytes
        assert counted["GetObject"]["received_bytes"] > log_bytes
        assert topics["big"]["segments"] == 2
        assert topics["big"]["stored_bytes"] <= topics["big"]["sent_bytes"]
        assert planned["stored_bytes"] == pytest.approx(topics["big"]["stored_bytes"], rel=0.01)

        big = topics["big"]
        writes = sum(one["requests"] for one in big["operations"] if one["class"] == "write")
        reads = sum(one["requests"] for one in big["operations"] if one["class"] == "read")
        assert big["requests_cost"] == pytest.approx((2 * writes + reads) / 1000)
        assert big["egress_cost"] == pytest.approx(big["received_bytes"] / 2**20)
        assert big["storage_cost_per_month"] == pytest.approx(big["stored_bytes"] / 2**20)
        assert document["total"]["requests_cost"] == pytest.approx(sum(one["requests_cost"] for one in topics.values()))

        metrics = http(daemon, "/metrics")
        puts = f'tierd_bucket_requests_total{{operation="UploadPart",topic="big"}} {2.0}'
        assert puts in metrics
        assert daemon.stop() == 0
        kept = cost("-c", str(tmp_path / "tierd.toml"), *daemon.place)  # prices, too
        assert kept["total"]["requests"] >= document["total"]["requests"]
        later = {topic["topic"]: topic for topic in kept["topics"]}
        assert later["big"]["requests_cost"] >= big["requests_cost"]
        assert cost("--month", "2001-01", *daemon.place)["total"]["requests"] == 0
