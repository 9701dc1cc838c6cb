"""The verbs that scripts depend on, asked of a real daemon: the document of `status`, and every exit code."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kit import cli, tiers, traffic
from kit.daemon import Daemon, running
from kit.golden import golden
from tierd.base.ids import Uuid

pytestmark = pytest.mark.e2e

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1", "--set", "remote.retry.max.ms=1000")
TOP = {"version": str, "running": bool, "epoch": int, "claim": str, "partitions": list}
NUMBERS = ("partition", "log_start", "local_start", "copied_to", "log_end", "local_bytes", "remote_bytes")


Verb = Callable[..., cli.Ended]


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str]) -> Verb:
    """A verb asked of a daemon, in this process: a new one would take longer than what it does."""

    def ask(daemon: Daemon, *words: str, code: int = 0) -> cli.Ended:
        ended = cli.tierd(capsys, *words, "--data", daemon.data)
        assert ended.code == code, ended
        return ended

    return ask


def printed(verb: Verb, daemon: Daemon) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(verb(daemon, "status", "--json").out)
    return document


def the_row(document: dict[str, Any], topic: str) -> dict[str, Any]:
    (row,) = [one for one in document["partitions"] if one["topic"] == topic]
    assert Uuid.parse(row["topic_id"]) != Uuid(bytes(16))
    assert all(row[name] is None or type(row[name]) is int for name in (*NUMBERS, "oldest_uncopied_ms")), row
    assert row["waiting"] is None or row["waiting"].keys() == {"reason", "detail"}
    return {name: row[name] for name in NUMBERS} | {"waiting": row["waiting"]}


def test_status_is_one_document_whether_tierd_runs_or_not(tmp_path: Path, verb: Verb) -> None:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        tiers.create(tierd, "here", remote_storage_enable="false")
        tiers.fill(tierd, "here", 2)
        tiers.fill(tierd, "t", 3)
        verb(tierd, "copy", "--wait")
        verb(tierd, "evict")
        document = printed(verb, tierd)
        assert {name: type(document[name]) for name in TOP} == TOP
        assert (document["running"], document["claim"]) == (True, "held")
        row, end = the_row(document, "t"), 3 * tiers.PER_MIB
        assert (row["partition"], row["log_start"], row["log_end"]) == (0, 0, end)
        assert 0 < row["local_start"] == row["copied_to"] < end
        assert row["waiting"]["reason"] == "active"
        (active,) = (tierd.data / "t-0").glob("*.log")
        assert row["local_bytes"] == active.stat().st_size
        assert row["remote_bytes"] == sum(path.stat().st_size for path in (tmp_path / "bucket").glob("t-*/0/*.log"))
        verb(tierd, "copy", "--wait", "--roll")
        verb(tierd, "evict")
        row = the_row(printed(verb, tierd), "t")
        assert row == row | {"local_start": end, "copied_to": end, "local_bytes": 0, "waiting": None}
        whole = json.loads(verb(tierd, "verify", "--deep", "--json").out)
        assert (whole["verdict"], whole["complete"]) == ("OK", True), "beside the daemon, out of its own place"
        assert [one["copied_to"] for one in whole["partitions"]] == [end]
        here = the_row(printed(verb, tierd), "here")
        assert here == here | {"local_start": 0, "copied_to": None, "remote_bytes": 0}
        assert here["waiting"]["reason"] == "untiered"
        assert tierd.stop() == 0
        offline = printed(verb, tierd)
        assert offline.keys() >= TOP.keys()
        assert offline["running"] is False
        alone = json.loads(tierd.verb("status", "--json").stdout)
        assert alone["partitions"] == offline["partitions"], "a process of its own says the same"
        assert the_row(offline, "t") == row
        assert the_row(offline, "here") == here


def test_copy_without_wait_only_queues(tmp_path: Path, verb: Verb) -> None:
    bucket, away = tmp_path / "bucket", tmp_path / "away"
    with running(tmp_path / "data", f"file:{bucket}", *SMALL) as tierd:
        bucket.rename(away)
        sent = tiers.fill(tierd, "t", 3)
        assert "queued" in verb(tierd, "copy", "--roll").out
        assert tierd.partition("t")["copied_to"] is None
        assert "not done after" in verb(tierd, "copy", "--wait", "--timeout", "0.1", code=5).err
        away.rename(bucket)
        tiers.until("what was queued is copied", lambda: tierd.partition("t")["copied_to"] == len(sent))
        assert verb(tierd, "evict").out.startswith("evicted: ")
        tiers.read_back(tierd, "t", sent)


def test_a_dry_run_with_roll_says_what_the_copy_then_does(tmp_path: Path, verb: Verb) -> None:
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}", *SMALL) as tierd:
        sent = tiers.fill(tierd, "t", 1)
        tiers.copy(tierd, roll=True)
        for _ in range(2):  # the second time the active segment has grown unseen
            before = tierd.partition("t")
            sent += traffic.stream("t", len(sent), len(sent) + 5, 100)
            traffic.produce_confluent(tierd.address, "t", sent[-5:])
            planned = verb(tierd, "copy", "--dry-run", "--roll", "--wait")
            assert f"t-0: offsets {before['copied_to']} to {len(sent) - 1}: 1 segments" in planned.out
            assert tierd.partition("t")["copied_to"] == before["copied_to"], "nothing was rolled or copied"
        done = verb(tierd, "copy", "--roll", "--wait")
        assert done.out.replace("copied", "would be copied") in planned.out
        assert tierd.stop() == 0


def test_a_hanging_transaction_is_named_and_gives_3(tmp_path: Path, verb: Verb) -> None:
    """Of two adopted partitions: one that an open transaction pins, one that nothing does."""
    for name in ("hanging-0", "txn-0"):
        shutil.copytree(golden("kafka") / "final" / name, tmp_path / "data" / name)
    shutil.copy(golden("kafka") / "final" / "meta.properties", tmp_path / "data")
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}") as tierd:
        done = tierd.verb("copy", "--wait", "--roll", expect=3)
        assert "left: hanging-0: pinned: " in done.stderr
        assert "transaction" in done.stderr
        assert "txn-0" not in done.stderr
        left = json.loads(verb(tierd, "copy", "--wait", "--json", code=3).out)["left"]
        assert [(one["topic"], one["partition"], one["reason"]) for one in left] == [("hanging", 0, "pinned")]
        verb(tierd, "evict")
        rows = {topic: tierd.partition(topic) for topic in ("hanging", "txn")}
        assert rows["txn"]["local_start"] == rows["txn"]["log_end"] == rows["txn"]["copied_to"]
        assert rows["hanging"]["local_start"] == (rows["hanging"]["copied_to"] or 0) < rows["hanging"]["log_end"]


def test_what_cannot_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: Verb) -> None:
    """Nobody there is 1, a wrong argument is 2 and one line, wherever tierd would be."""
    daemon = Daemon(tmp_path / "data")
    assert "no tierd runs there" in verb(daemon, "copy", code=1).err
    for words in (["copy", "--timeout", "1"], ["evict", "--wait"], ["copy", "--wait", "--timeout", "soon"], ["copi"]):
        said = verb(daemon, *words, code=2)
        assert said.out == ""
        assert len(said.err.splitlines()) == 1, said.err
    with running(tmp_path / "data") as tierd:
        assert "--remote" in verb(tierd, "copy", code=2).err
