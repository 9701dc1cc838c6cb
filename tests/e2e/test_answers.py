"""The recorded answers of a real Kafka, asked of tierd on the same files: all local, then from the bucket."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kit.answers import check
from kit.daemon import Daemon, running
from kit.golden import golden

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(params=["file", pytest.param("s3", marks=pytest.mark.s3)])
def adopted(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Daemon]:
    """tierd on a directory that a real Kafka wrote, with a bucket."""
    shutil.copytree(golden("kafka") / "final", tmp_path / "data")
    with ExitStack() as stack:
        remote, sets, env = f"file:{tmp_path / 'bucket'}", [], {}
        if request.param == "s3":
            server = request.getfixturevalue("weed_server")
            remote, env = f"s3://{server.bucket('answers')}/tier/", server.env
            sets = ["--set", f"remote.s3.endpoint={server.endpoint}", "--set", "remote.s3.region=us-east-1"]
        yield stack.enter_context(running(tmp_path / "data", remote, *sets, env=env))


def test_tierd_answers_as_kafka_did(adopted: Daemon, figure: Callable[[str], None]) -> None:
    recording = golden("kafka") / "final.answers.jsonl"
    local = check(adopted.address, recording)
    print(f"all local\n{local}")

    adopted.verb("copy", "--wait", "--roll", expect=None)
    adopted.verb("evict")
    rows = {row["topic"]: row for row in adopted.status()["partitions"]}
    for topic in {r["topic"] for r in rows.values()} - {"hanging"}:
        assert rows[topic]["local_start"] == rows[topic]["log_end"] > rows[topic]["log_start"], rows[topic]
    assert rows["hanging"]["waiting"]["reason"] == "pinned", rows["hanging"]
    evicted = check(adopted.address, recording, evicted=True)
    print(f"closed segments in the bucket only\n{evicted}")

    kind = str(adopted.remote).partition(":")[0]
    for what, report in (("all local", local), ("closed segments in the bucket only", evicted)):
        figure(f"Kafka's recorded answers, {kind}, {what}: {report.agreed} of {report.asked} agree")
    for report in (local, evicted):
        assert report.agreed == report.asked == 3_812, str(report)
