"""A Kafka that is given what `tierd export-metadata` writes knows what the bucket has."""

import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kit import kafka
from kit.answers import EARLIEST_LOCAL, LATEST, LATEST_TIERED, Asker
from kit.archived import aiven_bucket
from kit.cli import tierd
from kit.tiers import until
from kit.traffic import consume_confluent
from tierd.storage import names
from tierd.storage.metadata import parse_partition_metadata
from tierd.tiering.handover.records import TOPIC

pytestmark = [pytest.mark.full, pytest.mark.e2e, pytest.mark.kafka, pytest.mark.timeout(300)]

_TIERED = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "BucketReader",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "500",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}


def test_kafka_goes_on_from_what_was_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the page about it says, with a plugin that finds segments under the keys of Aiven's: local ones may go."""
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    remote = ("--remote", f"file:{bucket}")
    plugin = _compiled(tmp_path / "plugin")
    settings = {"remote.log.storage.manager.class.path": f"{plugin}/", "rsm.config.bucket": str(bucket)}
    broker = kafka.Kafka(tmp_path / "kafka", _TIERED | settings)
    try:
        broker.format()
        assert tierd(capsys, "restore", *remote, "--to", broker.data, "--keep-ids", "--kafka").code == 0
        broker.start()
        made = [broker.data / f"{TOPIC}-{number}" / names.PARTITION_METADATA for number in range(3)]
        until("its topic", lambda: all(path.exists() for path in made))
        broker.kill()
        topic_id = parse_partition_metadata(made[0].read_bytes(), "")
        for path in broker.data.glob(f"{TOPIC}-*"):
            shutil.rmtree(path)
        where = ("--to", broker.data, "--topic-id", str(topic_id), "--partitions", "3")
        assert tierd(capsys, "export-metadata", *remote, *where).code == 0
        broker.start()
        _tier(broker.address, "plain")
        with Asker(broker.address) as asker:
            until("leads", lambda: asker.list_offsets("plain", LATEST).leader_epoch > 1)
            until("knows", lambda: asker.list_offsets("plain", LATEST_TIERED).offset == 239)
            until("evicts", lambda: asker.list_offsets("plain", EARLIEST_LOCAL).offset == 240)
        read = consume_confluent(broker.address, "plain", 0, 240)
        assert [one.offset for one in read] == list(range(240))
    finally:
        broker.kill()


def _compiled(folder: Path) -> Path:
    done = subprocess.run(
        ["javac", "-cp", f"{kafka.jars()}/*", "-d", str(folder), str(kafka.JAVA / "BucketReader.java")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def _tier(address: str, topic: str) -> None:
    """Nothing stays on its disk but the active segment."""
    wanted = {"remote.storage.enable": "true", "local.retention.ms": "1"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": address})
    admin.incremental_alter_configs([resource])[resource].result(60)
