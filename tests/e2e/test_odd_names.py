"""Topics of every odd name that Kafka allows: made, written, killed, and there again at the next start."""

import sqlite3
from pathlib import Path

import pytest

from broker.client import Client, batch, offsets_of
from kit import tiers
from kit.daemon import Daemon, running
from tierd.config.state_files import REGISTRY
from tierd.wire.errors import ErrorCode

pytestmark = pytest.mark.e2e

_HEX = "0123456789abcdef" * 2
ODD = (
    "a" * 249,
    "." * 3,
    ".lock",
    "-",
    "-1",
    "--help",
    "a-0",
    "a-00",
    "a-0-0",
    "__x",
    "__cluster_metadata_",
    "__cluster_metadata-0",
    "meta.properties",
    ".kafka_cleanshutdown",
    "cleaner-offset-checkpoint",
    *(f"a-0.{_HEX}-{mark}" for mark in ("delete", "future", "stray")),
    f"{'b' * 202}-0.{_HEX}-delete",
    "a-1.deleted",
    "x.log",
    "c.tmp",
)
KRAFT = "__cluster_metadata"


def connect(daemon: Daemon) -> Client:
    host, _, port = daemon.address.rpartition(":")
    return Client((host, int(port)))


def test_every_legal_name_outlives_a_kill(tmp_path: Path) -> None:
    assert all(len(name) <= 249 for name in ODD)
    with running(tmp_path / "data", f"file:{tmp_path / 'bucket'}") as daemon:
        with connect(daemon) as client:
            for name in ODD:
                assert client.create(name).error_code == 0, name
                assert client.produce(name, batch()).error_code == 0, name
        for round in range(2):
            daemon.kill()
            daemon.start()
            with connect(daemon) as client:
                for name in ODD:
                    assert offsets_of(client.fetch(name, 0).records) == list(range(3 + round)), name
                    assert client.produce(name, batch(1)).base_offset == 3 + round, name
        tiers.copy(daemon, roll=True)
        assert {daemon.partition(name)["copied_to"] for name in ODD} == {5}
        with connect(daemon) as client:
            for name in ODD:
                answer = client.call(20, 6, topics=[{"name": name, "topic_id": None}], timeout=1000)
                assert answer.responses[0].error_code == 0, name
        daemon.kill()
        daemon.start()
        assert daemon.status()["partitions"] == []
        assert daemon.stop() == 0


def test_nobody_makes_the_metadata_log_of_kafka(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        with connect(daemon) as client:
            assert client.create(KRAFT).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
            asked = client.call(3, 9, topics=[{"name": KRAFT}], allow_auto_topic_creation=True)
            assert asked.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        daemon.kill()
        daemon.start()


@pytest.mark.parametrize("known", [True, False], ids=["with its id", "without partition.metadata"])
def test_one_that_an_older_tierd_made_is_served(tmp_path: Path, known: bool) -> None:
    with running(tmp_path / "data") as daemon:
        with connect(daemon) as client:
            client.create("was")
            client.produce("was", batch())
        daemon.kill()
        (daemon.data / "was-0").rename(daemon.data / f"{KRAFT}-0")
        if not known:
            (daemon.data / f"{KRAFT}-0" / "partition.metadata").unlink()
        db = sqlite3.connect(daemon.control.with_name(REGISTRY))
        with db:
            db.execute("UPDATE topics SET name = ?", (KRAFT,))
        db.close()
        for _ in range(2):
            daemon.start()
            with connect(daemon) as client:
                assert offsets_of(client.fetch(KRAFT, 0).records) == [0, 1, 2]
            daemon.kill()
