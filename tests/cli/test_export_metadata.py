"""`tierd export-metadata`: what it writes for Kafka, as Kafka's own tool reads it, and what it refuses."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from kit.archived import aiven_bucket, tree
from kit.bucket import in_folder
from kit.cli import Ended, tierd
from kit.golden import golden
from kit.kafka import java
from tierd.base.ids import Uuid
from tierd.remote.heads import HEAD, Head
from tierd.remote.topics import TopicFile, put_topic
from tierd.storage.metadata import parse_partition_metadata

TOPIC = "__remote_log_metadata"
PLAIN = Uuid.parse("pysNnPZjQveUrPTnyXRpQQ")
GONE = Uuid(b"\x05" * 16)


class Verb:
    """Of one bucket to one place, into three partitions."""

    def __init__(self, capsys: pytest.CaptureFixture[str], root: Path) -> None:
        self.capsys, self.bucket, self.to = capsys, aiven_bucket(root / "bucket", "plain", "txn"), root / "data"

    def __call__(self, *words: str | Path) -> Ended:
        place = ("--remote", f"file:{self.bucket}", "--to", self.to, "--partitions", "3")
        return tierd(self.capsys, "export-metadata", *place, *words)

    def delete_something(self) -> None:
        """Log start of one topic is inside its second segment; another topic was deleted, a third one with objects."""
        bucket = in_folder(self.bucket).bucket
        store, keys = bucket.store, bucket.keys
        head = Head(
            topic="plain",
            topic_id=PLAIN,
            partition=0,
            epoch=2,
            incarnation=PLAIN,
            updated_ms=1,
            log_start=70,
            copied_to=240,
        )
        HEAD.put(store, keys.head("plain", PLAIN, 0), head)
        for topic, topic_id, count in (("gone", GONE, 2), ("txn", self.txn_id, 1)):
            file = TopicFile(
                topic=topic, topic_id=topic_id, partitions=count, config={}, created_ms=1, deleted_ms=7, epoch=1
            )
            put_topic(store, keys, file)

    @property
    def txn_id(self) -> Uuid:
        (folder,) = self.bucket.glob("txn-*")
        return Uuid.parse(folder.name[-22:])

    def log(self, number: int) -> Path:
        return self.to / f"__remote_log_metadata-{number}" / f"{0:020d}.log"


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Verb:
    return Verb(capsys, tmp_path)


def payloads(text: str) -> list[str]:
    """What DumpLogSegments says of records, without the times that an export does not know."""
    found = re.findall(r"payload: (.*)", text)
    assert found
    return [re.sub(r"(state=COPY_SEGMENT_FINISHED, eventTimestampMs=)\d+", r"\1", one) for one in found]


def decoded(*files: Path) -> list[str]:
    named = ",".join(map(str, files))
    tool = "org.apache.kafka.tools.DumpLogSegments"
    return payloads(java(tool, "--remote-log-metadata-decoder", "--files", named))


@pytest.mark.kafka
def test_kafka_reads_what_it_would_have_written(verb: Verb) -> None:
    verb.delete_something()
    before = tree(verb.bucket)
    ended = verb("--node-id", "4")
    assert (ended.code, tree(verb.bucket)) == (0, before)
    told = decoded(*(verb.log(number) for number in range(3)))
    recorded = payloads((golden("aiven") / "local-plain" / "remote_log_metadata.dump.txt").read_text())
    plain = [one for one in told if "plain-0" in one]
    states = Counter(re.findall(r"state=(\w+)", "\n".join(plain)))
    assert states == {"COPY_SEGMENT_STARTED": 4, "COPY_SEGMENT_FINISHED": 4, "DELETE_SEGMENT_STARTED": 1}
    assert [one for one in plain if "DELETE" not in one] == recorded
    assert "DELETE_SEGMENT_STARTED" in plain[2]
    deletes = [re.findall(r":(\w+-\d).*state=(\w+).*brokerId=(\d)", one)[0] for one in told if "PARTITION" in one]
    steps = ["DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED"]
    assert sorted(deletes) == sorted(
        [(f"gone-{number}", step, "4") for number in range(2) for step in steps]
        + [("txn-0", step, "4") for step in steps[:2]]
    )


def test_what_it_says(verb: Verb) -> None:
    verb.delete_something()
    dry = verb("--dry-run")
    assert (dry.code, verb.to.exists()) == (0, False)
    assert dry.out.splitlines() == [
        "plain-0: offsets 70 to 240 (exclusive), 4 segments, 30.0 KiB, 1 of them wait for their delete; "
        "__remote_log_metadata-2",
        "would be written: 17 records of 4 segments in 3 partitions of __remote_log_metadata",
        "the plugin finds the objects with rsm.config.key.prefix=",
    ]
    assert "which Kafka will not delete: txn" in dry.err
    told = json.loads(verb("--json", "--topic", "plain").out)
    assert (told["records"], told["requests"], told["deleted"], told["unreadable"]) == (9, 4, [], [])
    assert {path.name for path in verb.to.iterdir() if path.is_dir()} == {
        f"__remote_log_metadata-{n}" for n in range(3)
    }
    for number in range(3):
        raw = (verb.log(number).with_name("partition.metadata")).read_bytes()
        assert str(parse_partition_metadata(raw, "")) == told["topic_id"]
    assert [verb.log(number).stat().st_size > 0 for number in range(3)] == [False, False, True]


def test_the_topic_itself_is_not_in_the_export(verb: Verb) -> None:
    """A bucket may have it, from times when it was a topic like others."""
    before = verb("--dry-run").out
    bucket = in_folder(verb.bucket).bucket
    head = Head(
        topic=TOPIC, topic_id=GONE, partition=0, epoch=2, incarnation=GONE, updated_ms=1, log_start=9, copied_to=9
    )
    HEAD.put(bucket.store, bucket.keys.head(TOPIC, GONE, 0), head)
    file = TopicFile(topic=TOPIC, topic_id=GONE, partitions=1, config={}, created_ms=1, deleted_ms=None, epoch=1)
    put_topic(bucket.store, bucket.keys, file)
    assert verb("--dry-run").out == before
    assert verb("--dry-run", "--topic", TOPIC).code == 2


def test_a_place_that_has_such_a_log_is_refused(verb: Verb) -> None:
    given = str(GONE)
    left = verb.to / "__remote_log_metadata-0.of-a-run-that-was-cut-off-delete"
    left.mkdir(parents=True)
    assert json.loads(verb("--json", "--topic-id", given).out)["topic_id"] == given
    ended = verb()
    assert (ended.code, ended.out) == (4, "")
    assert "move the directories of __remote_log_metadata away first" in ended.err
    assert verb("--topic-id", "short").code == 2
    assert tierd(verb.capsys, "export-metadata", "--to", verb.to.with_name("other")).code == 2
