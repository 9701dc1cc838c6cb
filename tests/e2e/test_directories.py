"""A whole tierd over several real disks: one fails, one is not mounted, one is lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker.client import batch
from e2e.disks import connect, directories, health, read_all, sets, tierd
from kit import mounts, tiers, tools, traffic
from kit.daemon import DidNotStart
from tierd.wire.errors import ErrorCode

pytestmark = pytest.mark.e2e


# Failing.


def test_a_failing_disk_takes_only_its_own_partitions_away(tmp_path: Path) -> None:
    options = [*sets(http_address="127.0.0.1:0", segment_bytes="1MiB")]
    good, state = tmp_path / "good", tmp_path / "state"
    with (
        mounts.ext4(tmp_path / "bad") as disk,
        tierd(good, disk.path / "data", state=state, remote=tmp_path / "bucket", extra=options) as daemon,
    ):
        with connect(daemon) as client:
            client.create("t", 4)
            for number in range(4):
                assert client.produce("t", batch(20, size=5000), number).error_code == 0
            rows = daemon.status()["partitions"]
            bad = [row["partition"] for row in rows if row["directory"] == str(disk.path / "data")]
            assert len(bad) == 2
            disk.fail()
            for number in bad:
                assert client.produce("t", batch(), number).error_code == ErrorCode.KAFKA_STORAGE_ERROR
                assert client.fetch("t", 0, number).error_code == ErrorCode.KAFKA_STORAGE_ERROR
            for number in set(range(4)) - set(bad):
                assert client.produce("t", batch(), number).base_offset == 20
        shown = directories(daemon)
        assert (shown["data"]["state"], shown["good"]["state"]) == ("offline", "online")
        assert "Input/output error" in shown["data"]["reason"]
        assert {row["partition"] for row in daemon.status()["partitions"] if row["offline"]} == set(bad)
        metrics = tiers.http(daemon, "/metrics")
        assert f'tierd_directory_offline{{directory="{disk.path / "data"}"}} 1.0' in metrics
        assert f'tierd_directory_offline{{directory="{good}"}} 0.0' in metrics
        told = health(daemon)
        assert (told["status"], len(told["reasons"])) == ("degraded", 1 + len(bad))  # the directory, and what is in it
        assert all(any(reason.startswith(f"t-{number}: is offline") for reason in told["reasons"]) for number in bad)
        assert daemon.stop() == 0

        daemon.start()  # the disk is still dead
        assert directories(daemon)["data"]["state"] == "offline"
        with connect(daemon) as client:
            assert client.produce("t", batch(), bad[0]).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert daemon.stop() == 0

        disk.unmount()
        daemon.start()  # the mount point is empty
        assert "is its disk mounted?" in directories(daemon)["data"]["reason"]
        assert not (disk.path / "data").exists()
        with connect(daemon) as client:
            client.create("other", 2)
        assert daemon.stop() == 0

        disk.mount()
        daemon.start()
        assert {row["state"] for row in daemon.status()["directories"]} == {"online"}
        with connect(daemon) as client:
            for number in range(4):
                end = client.produce("t", batch(), number).base_offset
                # what was not fsynced is lost on the disk that failed, nothing else
                assert end in (0, 20) if number in bad else end == 23
                assert read_all(client, "t", number, end + 3) == list(range(end + 3))
        tiers.copy(daemon, roll=True)
        assert daemon.stop() == 0


def test_reads_of_a_failing_disk_count_too(tmp_path: Path) -> None:
    with (
        mounts.ext4(tmp_path / "bad") as disk,
        tierd(tmp_path / "good", disk.path / "data", state=tmp_path / "state") as daemon,
        connect(daemon) as client,
    ):
        client.create("t", 2)
        for number in range(2):
            assert client.produce("t", batch(40, size=20_000), number).error_code == 0
        (bad,) = (row["partition"] for row in daemon.status()["partitions"] if "bad" in row["directory"])
        disk.fail()
        for _ in range(10):  # the first of them may end the connection: its length was sent already
            try:
                with connect(daemon) as reader:
                    answer = reader.fetch("t", 0, bad, max_wait=100)
            except ConnectionError:
                continue
            if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                break
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert directories(daemon)["data"]["state"] == "offline"


def test_the_only_directory_must_be_usable(tmp_path: Path) -> None:
    with mounts.ext4(tmp_path / "bad") as disk:
        disk.fail()
        with pytest.raises(DidNotStart) as refused, tierd(disk.path / "data", state=tmp_path / "state"):
            pass
        assert refused.value.exit_code == 4
        assert "no data directory can be used" in refused.value.said


def test_a_daemon_whose_last_disk_fails_ends(tmp_path: Path) -> None:
    with (
        mounts.ext4(tmp_path / "bad") as disk,
        tierd(disk.path / "data", state=tmp_path / "state") as daemon,
        connect(daemon) as client,
    ):
        client.create("t")
        disk.fail()
        assert client.produce("t", batch()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert daemon.wait(60) == 1
        assert "is offline" in daemon.log.read_text()


# Directories come and go.


def refused(*data: Path, state: Path, remote: Path | None = None) -> str:
    with pytest.raises(DidNotStart) as caught, tierd(*data, state=state, remote=remote):
        pass
    assert caught.value.exit_code == 4, caught.value.said
    return caught.value.said


def test_a_directory_is_added_and_an_empty_one_left_out(tmp_path: Path) -> None:
    a, b, state = tmp_path / "a", tmp_path / "b", tmp_path / "state"
    with tierd(a, state=state) as daemon, connect(daemon) as client:
        client.create("t", 2)
        client.produce("t", batch(3))
        daemon.stop()
    with tierd(a, b, state=state) as daemon, connect(daemon) as client:
        client.create("u", 2)
        assert {row["directory"] for row in daemon.status()["partitions"] if row["topic"] == "u"} == {str(b)}
        wishes = [{"name": "t", "partitions": (0, 1)}]
        answer = client.call(34, 2, dirs=[{"path": str(b), "topics": wishes}])
        assert [p.error_code for p in answer.results[0].partitions] == [0, 0]
        while directories(daemon)["a"]["partitions"]:
            client.fetch("t", 3, max_wait=100)
        daemon.stop()
    assert str(b) in refused(a, state=state)
    with tierd(b, state=state) as daemon, connect(daemon) as client:
        assert read_all(client, "t", 0, 3) == [0, 1, 2]
        assert list(directories(daemon)) == ["b"]


@pytest.mark.parametrize("again", [True, False], ids=["a new disk in its place", "left out"])
def test_what_the_bucket_has_of_a_lost_directory_comes_back(tmp_path: Path, again: bool) -> None:
    a, b, state, bucket = tmp_path / "a", tmp_path / "b", tmp_path / "state", tmp_path / "bucket"
    with tierd(a, b, state=state, remote=bucket) as daemon, connect(daemon) as client:
        client.create("t", 4)
        for number in range(4):
            client.produce("t", batch(10, size=500), number)
        tiers.copy(daemon, roll=True)
        (lost, *_) = (row["partition"] for row in daemon.status()["partitions"] if row["directory"] == str(a))
        assert daemon.stop() == 0
    (tmp_path / "a").rename(tmp_path / "broken")
    said = refused(b, state=state, remote=bucket)
    assert str(a) in said
    assert "--lost" in said
    data = [b, a] if again else [b]
    with tierd(*data, state=state, remote=bucket, extra=["--lost", str(a)]) as daemon, connect(daemon) as client:
        for number in range(4):
            assert client.produce("t", batch(3), number).base_offset == 10
            assert read_all(client, "t", number, 13) == list(range(13))
        tiers.copy(daemon, roll=True)
        assert daemon.stop() == 0
    with tierd(*data, state=state, remote=bucket) as daemon, connect(daemon) as client:
        assert read_all(client, "t", lost, 13) == list(range(13))


def test_what_an_offline_disk_held_back_counts_in_the_bucket_later(tmp_path: Path) -> None:
    """Its records are older than the run that did without it; a catalog made anew must not take them for a fork."""
    a, b, state, bucket = tmp_path / "a", tmp_path / "b", tmp_path / "state", tmp_path / "bucket"
    with tierd(a, b, state=state, remote=bucket) as daemon, connect(daemon) as client:
        client.create("t", 2)
        for number in range(2):
            client.produce("t", batch(10, size=500), number)
        tiers.copy(daemon, roll=True)
        for number in range(2):
            client.produce("t", batch(10, size=500), number)  # only on the disks
        (away,) = (row["partition"] for row in daemon.status()["partitions"] if row["directory"] == str(b))
        assert daemon.stop() == 0
    b.rename(tmp_path / "unplugged")
    with tierd(a, b, state=state, remote=bucket) as daemon, connect(daemon) as client:
        assert client.produce("t", batch(10), away).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("t", batch(10), 1 - away).base_offset == 20
        assert daemon.stop() == 0
    (tmp_path / "unplugged").rename(b)
    with tierd(a, b, state=state, remote=bucket) as daemon:
        tiers.copy(daemon, roll=True)
        assert daemon.partition("t", away)["copied_to"] == 20
        assert daemon.stop() == 0
    for file in state.glob("catalog.sqlite*"):
        file.unlink()
    with tierd(a, b, state=state, remote=bucket) as daemon, connect(daemon) as client:
        row = daemon.partition("t", away)
        assert (row["copied_to"], row["log_end"]) == (20, 20)
        tiers.evict(daemon)
        assert daemon.partition("t", away)["local_start"] == 20
        assert read_all(client, "t", away, 20) == list(range(20))


def test_a_partition_moves_under_two_real_clients_and_a_bucket(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    options = sets(segment_bytes="1MiB", tierd_archive_max_age_ms="1d")
    sent = list(traffic.stream("t", 0, 6000, 1000))
    with tierd(a, b, state=tmp_path / "state", remote=tmp_path / "bucket", extra=options) as daemon:
        traffic.produce_confluent(daemon.address, "t", sent[:3000])
        for turn in range(4):
            with connect(daemon) as client:
                target = b if daemon.partition("t")["directory"] == str(a) else a
                wishes = [{"name": "t", "partitions": (0,)}]
                answer = client.call(34, 2, dirs=[{"path": str(target), "topics": wishes}])
                assert answer.results[0].partitions[0].error_code == 0
                traffic.produce_confluent(daemon.address, "t", sent[3000 + turn * 750 : 3750 + turn * 750])
                while daemon.partition("t")["directory"] != str(target):
                    client.fetch("t", 0, max_wait=100)
        tiers.copy(daemon, roll=True)
        logs = sorted(path.name for path in (tmp_path / "bucket").rglob("*.log"))
        assert len(logs) == len({name[:20] for name in logs}), "nothing was copied twice"
        assert traffic.digest(traffic.consume_confluent(daemon.address, "t", 0, 6000)) == traffic.digest(sent)
        tiers.evict(daemon)
        assert traffic.digest(traffic.consume_kafka_python(daemon.address, "t", 0, 6000)) == traffic.digest(sent)
        assert not list(tmp_path.glob("?/*-future"))


# Kafka's own tools.


@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_kafkas_tools_show_and_move_partitions(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with (
        tierd(a, b, state=tmp_path / "state") as daemon,
        connect(daemon) as client,
        tools.running(daemon.address, tmp_path) as kafkas,
    ):
        client.create("t", 2)
        for number in range(2):
            client.produce("t", batch(10), number)
        shown = _log_dirs(kafkas)
        assert {Path(row["logDir"]).name: [p["partition"] for p in row["partitions"]] for row in shown} == {
            "a": ["t-0"],
            "b": ["t-1"],
        }
        assert all(p["size"] > 0 and p["offsetLag"] == 0 for row in shown for p in row["partitions"])
        wish = [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": [str(b)]}]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": wish}))
        reassign = ("reassign.ReassignPartitionsCommand", "--reassignment-json-file", str(plan))
        said = _tool(kafkas, *reassign, "--execute")
        assert f"log directory to {b} for replica t-0 with broker 1" in said
        done = "Reassignment of replica t-0-1 completed successfully"
        tiers.until("the move", lambda: done in _tool(kafkas, *reassign, "--verify"))
        shown = _log_dirs(kafkas)
        assert {Path(row["logDir"]).name: len(row["partitions"]) for row in shown} == {"a": 0, "b": 2}
        assert read_all(client, "t", 0, 10) == list(range(10))


def _tool(kafkas: tools.Tools, name: str, *arguments: str) -> str:
    said = kafkas.run(name, *arguments)
    assert said.status == 0, said
    return said.text


def _log_dirs(kafkas: tools.Tools) -> list[dict[str, Any]]:
    said = _tool(kafkas, "LogDirsCommand", "--describe", "--topic-list", "t")
    document = json.loads(said[said.index("{") :])
    rows: list[dict[str, Any]] = document["brokers"][0]["logDirs"]
    return rows
