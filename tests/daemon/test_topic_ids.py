"""Whose a partition directory without `partition.metadata` is."""

import shutil
from pathlib import Path

import pytest

from kit.clock import FakeClock
from kit.daemon import running
from kit.traffic import consume_confluent, digest, produce_confluent, stream
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.model import Remote
from tierd.daemon.topic_ids import TopicIds, of_bucket, of_catalog, of_neighbours
from tierd.remote.open import open_store
from tierd.remote.topics import TopicFile, put_topic
from tierd.storage.disk import PosixDisk
from tierd.storage.identity import write_topic_id
from tierd.tiering.catalog import Catalog
from tierd.tiering.options import TopicState

TP = TopicPartition("t", 1)
ONE, TWO = Uuid(bytes(range(16))), Uuid(bytes(range(1, 17)))


def ask(**sources: object) -> Uuid | None:
    return TopicIds(list(sources.items()))(TP)  # type: ignore[arg-type]


def test_the_nearest_that_knows_is_believed() -> None:
    def broken(_: str) -> list[Uuid]:
        raise OSError("no answer")

    assert ask(nobody=lambda _: [], broken=broken, first=lambda _: [ONE], later=lambda _: [TWO]) == ONE
    assert ask(torn=lambda _: [ONE, TWO], later=lambda _: [TWO]) is None
    assert ask(nobody=lambda _: []) is None


def test_other_partitions_of_the_topic(tmp_path: Path) -> None:
    source = of_neighbours([tmp_path])
    for name in ("t-0", "t-1", "t-2", "other-0", "t-x-0"):
        (tmp_path / name).mkdir()
    write_topic_id(tmp_path / "other-0", PosixDisk(), TWO)
    write_topic_id(tmp_path / "t-x-0", PosixDisk(), TWO)
    assert ask(source=source) is None
    write_topic_id(tmp_path / "t-2", PosixDisk(), ONE)
    assert ask(source=source) == ONE
    write_topic_id(tmp_path / "t-0", PosixDisk(), TWO)
    assert ask(source=source) is None


def state(topic: str, topic_id: Uuid, deleted_ms: int | None = None) -> TopicState:
    return TopicState(topic=topic, topic_id=topic_id, partitions=2, config={}, created_ms=1, deleted_ms=deleted_ms)


def test_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    assert ask(source=of_catalog(path)) is None
    assert not path.exists()
    catalog = Catalog.open(path)
    catalog.set_topic(state("t", ONE, deleted_ms=5))
    catalog.set_topic(state("t-x", TWO))
    catalog.close()
    assert ask(source=of_catalog(path)) is None
    catalog = Catalog.open(path)
    catalog.set_topic(state("t", TWO))
    catalog.close()
    assert ask(source=of_catalog(path)) == TWO
    path.write_bytes(b"no database" * 100)
    assert ask(source=of_catalog(path)) is None


def test_the_bucket(tmp_path: Path) -> None:
    remote = Remote(url=f"file:{tmp_path / 'bucket'}")
    (tmp_path / "bucket").mkdir()
    source = of_bucket(remote, PosixDisk(), FakeClock())
    assert ask(source=of_bucket(Remote(), PosixDisk(), FakeClock())) is None
    assert ask(source=source) is None
    assert remote.url is not None
    bucket = open_store(remote.url, remote, disk=PosixDisk(), clock=FakeClock())
    for topic, topic_id, deleted_ms in (("t", ONE, 5), ("t-x", TWO, None), ("t", TWO, None)):
        put_topic(
            bucket.store,
            bucket.keys,
            TopicFile(
                topic=topic, topic_id=topic_id, partitions=2, config={}, created_ms=1, deleted_ms=deleted_ms, epoch=1
            ),
        )
    assert ask(source=source) == TWO


@pytest.mark.e2e
def test_a_partition_comes_back_without_its_file_and_without_the_registry(tmp_path: Path) -> None:
    sent = list(stream("t", 0, 500, 200))
    with running(tmp_path / "data", None, "--set", "num.partitions=2") as tierd:
        produce_confluent(tierd.address, "t", sent)
        assert tierd.stop() == 0
    shutil.rmtree(tmp_path / "data.tierd")
    (tmp_path / "data" / "t-0" / "partition.metadata").unlink()
    with running(tmp_path / "data") as tierd:
        assert tierd.status()["unidentified"] == []
        assert digest(consume_confluent(tierd.address, "t", 0, 500)) == digest(sent)
        assert tierd.stop() == 0
