"""`tierd retention --dry-run`: what it asks of the daemon, what it shows; without --dry-run it does nothing."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.archived import aiven_bucket, tree
from kit.cli import answering, tierd
from kit.golden import golden

GOES = {"tier": "local", "start": 0, "stop": 10, "bytes": 2048, "rule": "local.retention.ms", "at_ms": 1_000_000}
LATER = {"tier": "remote", "start": 0, "stop": 10, "bytes": 4096, "rule": "retention.ms", "at_ms": 87_400_000}
STAYS = {"start": 10, "stop": 20, "bytes": 7, "due_ms": 1_000_000, "rule": "local.retention.ms", "copied": False}
PARTITION = {
    "topic": "t",
    "topic_id": "x",
    "partition": 3,
    "log_start": 0,
    "log_start_then": 10,
    "log_bytes": 2048,
    "local_bytes": 2048,
    "remote_bytes": 4096,
    "rows": [GOES, LATER],
    "more": 7,
    "future_segments": 2,
    "future_ms": 4_102_444_800_000,
    "stays": STAYS,
}


def answer(**facts: Any) -> dict[str, Any]:
    whole = {"running": True, "now_ms": 1_000_000, "within_ms": 3_600_000, "trouble": None, "unread": []}
    return {"result": {**whole, "partitions": [PARTITION], **facts}, "exit": 0}


def test_it_asks_and_shows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", answer(trouble="the claim is lost", unread=["u-0: broken"])) as asked:
        ended = tierd(capsys, "retention", "--dry-run", "--state", tmp_path / "s", "--within", "1h", "--topic", "t")
    assert asked == [{"do": "retention", "within_ms": 3_600_000, "topic": "t"}]
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "nothing goes now: the claim is lost",
        "t-3: offsets 0 to 9 leave the disk, 2.0 KiB: local.retention.ms, now",
        "t-3: offsets 0 to 9 leave the bucket, 4.0 KiB: retention.ms, 1970-01-02 00:16 UTC",
        "t-3: ... and 7 segments more",
        "t-3: log start 0 moves to 10",
        "t-3: 2 segments have records from the future, up to 2100-01-01 00:00 UTC: their last append counts",
        "t-3: offsets 10 to 19 stay on the disk: they are not in the bucket, else local.retention.ms would let them go,"
        " now (tierd why t-3)",
        "would go now and within 1h: from the disk 2.0 KiB, from the bucket 4.0 KiB; from the logs 2.0 KiB,"
        " each byte counted once",
    ]
    assert ended.err == "not looked at: u-0: broken\n"


def test_it_is_json_on_request_and_nothing_without_dry_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with answering(tmp_path / "s", answer()):
        ended = tierd(capsys, "retention", "--dry-run", "--state", tmp_path / "s", "--json")
    assert json.loads(ended.out)["partitions"] == [PARTITION]
    ended = tierd(capsys, "retention", "--state", tmp_path / "s")
    assert (ended.code, ended.out) == (2, "")
    assert "say --dry-run" in ended.err
    ended = tierd(capsys, "retention", "--dry-run", "--state", tmp_path / "s", "--within", "-1d")
    assert (ended.code, ended.out) == (2, "")
    assert "is in the past" in ended.err


def test_a_bucket_that_no_tierd_wrote_has_no_limits(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    before = tree(bucket)
    ended = tierd(capsys, "retention", "--dry-run", "--remote", f"file:{bucket}", "--json")
    document = json.loads(ended.out)
    assert document["partitions"] == []
    assert "no settings" in document["trouble"]
    state, config = tmp_path / "archive", tmp_path / "tierd.toml"
    (state / "local").mkdir(parents=True)  # an archive's state directory
    config.write_text(f'remote.url = "file:{bucket}"\n')
    ended = tierd(capsys, "retention", "--dry-run", "--state", state, "-c", config, "--json")
    assert json.loads(ended.out)["trouble"] == document["trouble"]
    assert tree(bucket) == before


def test_a_topic_that_is_not_there_is_not_one_that_nothing_goes_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    data = tmp_path / "data"
    shutil.copytree(golden("kafka") / "clean" / "codec-none-0", data / "codec-none-0")
    for place, there in ((("--remote", f"file:{bucket}"), "plain"), (("--data", data), "codec-none")):
        assert tierd(capsys, "retention", "--dry-run", *place, "--topic", there).code == 0
        ended = tierd(capsys, "retention", "--dry-run", *place, "--topic", "nope")
        assert (ended.code, ended.out) == (2, "")
        assert "no topic 'nope'" in ended.err
