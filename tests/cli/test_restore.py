"""`tierd restore` as scripts see it: what it prints, its exit codes, and what it refuses."""

import json
from pathlib import Path

import pytest

from kit.archived import aiven_bucket, tree
from kit.bucket import in_folder
from kit.cli import Ended, tierd
from kit.golden import golden
from tierd.base.ids import Uuid
from tierd.broker.key_hash import partition_of
from tierd.broker.registry import Registry
from tierd.config.state_files import RESTORE
from tierd.remote.archive_id import Archive, create_archive
from tierd.remote.groups import GroupOffset, GroupOffsets, encode_groups
from tierd.remote.open import Bucket
from tierd.remote.topics import TopicFile, put_topic
from tierd.storage.disk import PosixDisk
from tierd.storage.metadata import parse_partition_metadata
from tierd.tiering.restore.journal import Asked, End, Journal, keep
from tiering.restore.test_bootstrap import FORMATTED

PLAIN = Uuid.parse("pysNnPZjQveUrPTnyXRpQQ")


class Verb:
    """`tierd restore` of one bucket to one place."""

    def __init__(self, capsys: pytest.CaptureFixture[str], root: Path) -> None:
        self.capsys, self.bucket, self.to = capsys, aiven_bucket(root / "bucket", "plain", "txn"), root / "data"

    def __call__(self, *words: str | Path) -> Ended:
        return tierd(self.capsys, "restore", "--remote", f"file:{self.bucket}", "--to", self.to, *words)

    @property
    def state(self) -> Path:
        return self.to.with_name("data.tierd")


@pytest.fixture
def verb(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Verb:
    return Verb(capsys, tmp_path)


def test_all_of_a_bucket(verb: Verb) -> None:
    before = tree(verb.bucket)
    ended = verb()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"restored to {verb.to}: 2 topics, 2 partitions, 51.9 KiB",
        "its topics have new ids: from now on it is another log than the bucket's",
    ]
    assert {path.name for path in verb.to.iterdir() if path.is_dir()} == {"plain-0", "txn-0"}
    assert [path.name for path in verb.state.iterdir()] == ["registry.sqlite"]
    assert tree(verb.bucket) == before


def test_a_dry_run_makes_nothing(verb: Verb) -> None:
    ended = verb("--dry-run")
    assert ended.code == 0
    assert ended.out.splitlines()[0] == "plain-0: offsets 0 to 240 (exclusive), 4 segments, 30.3 KiB"
    told = json.loads(verb("--dry-run", "--json", "--topic", "txn").out)
    (partition,) = told.pop("partitions")
    assert told == {"url": f"file:{verb.bucket}", "dry_run": True, "bytes": partition["bytes"], "groups": None}
    assert (partition["topic"], partition["log_end"]) == ("txn", 216)
    assert not verb.to.exists()
    assert not verb.state.exists()


def test_what_is_lost_is_exit_code_1(verb: Verb) -> None:
    lost = sorted(verb.bucket.glob("plain-*/0/*.log"))[1]
    lost.unlink()
    assert verb("--dry-run").err.splitlines() == ["plain-0: the bucket lacks offsets 60 to 119"]
    planned = {row["topic"]: row["missing"] for row in json.loads(verb("--dry-run", "--json").out)["partitions"]}
    assert planned == {"plain": [[60, 120]], "txn": []}
    ended = verb("--json")
    assert ended.code == 1
    rows = {row["topic"]: row for row in json.loads(ended.out)["partitions"]}
    assert [(one["start"], one["stop"], one["accepted"]) for one in rows["plain"]["lost"]] == [(60, 120, False)]
    assert (rows["txn"]["lost"], rows["txn"]["log_end"]) == ([], 216)


def test_settings_and_new_ids_are_where_a_tierd_looks_for_them(verb: Verb) -> None:
    bucket: Bucket = in_folder(verb.bucket).bucket
    create_archive(bucket.store, bucket.keys, Archive(archive_id=PLAIN, created_ms=1))
    config = {"retention.ms": "86400000000", "segment.bytes": "1048576", "of.a.later.tierd": "1"}
    put_topic(
        bucket.store,
        bucket.keys,
        TopicFile(topic="plain", topic_id=PLAIN, partitions=3, config=config, created_ms=7, epoch=1),
    )
    ended = verb("--topic", "plain")
    assert ended.code == 0
    assert "a setting is not taken: Unknown topic config name: of.a.later.tierd" in ended.err
    assert {path.name for path in verb.to.iterdir() if path.is_dir()} == {"plain-0", "plain-1", "plain-2"}
    registry = Registry.open(verb.state / "registry.sqlite")
    (row,) = registry.topics()
    registry.close()
    assert (row.name, row.partitions, row.created_ms, row.adopted) == ("plain", 3, 7, False)
    assert row.config == {"retention.ms": "86400000000", "segment.bytes": "1048576"}
    assert str(row.id) in (verb.to / "plain-2" / "partition.metadata").read_text()
    assert row.id != PLAIN


def test_other_places_are_left_alone(verb: Verb) -> None:
    assert verb("--topic", "plane").code == 2
    verb.to.mkdir()
    (verb.to / "something").touch()
    ended = verb()
    assert (ended.code, ended.out) == (4, "")
    assert "is not empty" in ended.err
    (verb.to / "something").unlink()
    assert verb().code == 0
    assert "state directory: say another --to or --state" in verb().err
    assert tierd(verb.capsys, "restore", "--to", verb.to).code == 2


def test_one_that_was_cut_off_goes_on(verb: Verb) -> None:
    """The key is missing at first."""
    aiven_bucket(verb.bucket, "enc")
    ended = verb()
    assert ended.code == 5
    assert "key1" in ended.err
    ended = verb("--topic", "plain")
    assert ended.code == 4
    assert "all topics, has begun in" in ended.err
    key = verb.bucket.with_name("key1.pem")
    key.write_bytes((golden("aiven") / "keys" / "private.pem").read_bytes())
    ended = verb("--set", f"remote.encryption.key.files={key}")
    assert (ended.code, ended.err) == (0, "")
    assert (verb.to / "enc-0").is_dir()
    assert not list(verb.to.glob("*-delete"))


def test_until_a_time(verb: Verb) -> None:
    """Of what is not cut nothing is said."""
    rows = json.loads(verb("--dry-run", "--json", "--until", "2000-01-01T00:00:00Z").out)["partitions"]
    assert [(row["log_end"], row["source_end"], row["torn"]) for row in rows] == [(0, 240, False), (0, 216, False)]
    ended = verb("--until", "4000000000000", "--dry-run")
    assert ended.out.splitlines()[0] == "plain-0: offsets 0 to 240 (exclusive), 4 segments, 30.3 KiB"
    for text in ("yesterday", "2026-07-01T12:00:00"):
        ended = verb("--until", text)
        assert (ended.code, "with its zone" in ended.err) == (2, True)
    assert not verb.to.exists()


def test_to_given_offsets(verb: Verb, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"

    def told(**rows: int) -> Path:
        parts = [{"topic": topic, "partition": 0, "offset": offset} for topic, offset in rows.items()]
        file.write_text(json.dumps({"version": 1, "partitions": parts}))
        return file

    assert "plain-0 cannot end at 241, the bucket has offsets 0 to 240" in verb("--offsets", told(plain=241)).err
    assert "nobody-0 is not among what is restored" in verb("--offsets", told(nobody=1)).err
    assert "say one of them" in verb("--offsets", told(plain=1), "--until", "1").err
    file.write_text("{}")
    assert verb("--offsets", file).code == 2
    ended = verb("--dry-run", "--offsets", told(plain=100, txn=104))
    assert ended.out.splitlines()[0] == (
        "plain-0: offsets 0 to 100 (exclusive), 2 segments, 12.3 KiB; the bucket's ends at 240"
    )
    assert ended.out.splitlines()[1].endswith("; the bucket's ends at 216, a transaction would be torn")
    rows = json.loads(verb("--json", "--offsets", file).out)["partitions"]
    assert rows[0]["log_end"] == 100
    assert [row["lost"] for row in rows] == [[], []]


def test_a_cut_stays_where_the_first_run_has_found_it(verb: Verb) -> None:
    """The bucket had less then."""
    verb.state.mkdir()
    asked = Asked(url=f"file:{verb.bucket}", until_ms=4_000_000_000_000)
    ends = (End(topic="plain", partition=0, offset=180), End(topic="txn", partition=0, offset=216))
    keep(PosixDisk(), verb.state / RESTORE, Journal(asked=asked, ends=ends))
    refused = verb("--until", "1")
    assert (refused.code, "until 4000000000000 ms, has begun in" in refused.err) == (4, True)
    ended = verb("--json", "--until", "4000000000000")
    assert ended.code == 0
    rows = json.loads(ended.out)["partitions"]
    assert [(row["log_end"], row["source_end"]) for row in rows] == [(180, 240), (216, 216)]


def test_for_a_kafka_only_where_one_was_formatted(verb: Verb) -> None:
    """What it makes of it tests/e2e shows."""
    ended = verb("--kafka")
    assert (ended.code, "has no bootstrap.checkpoint and no meta.properties: format it" in ended.err) == (4, True)
    verb.to.mkdir()
    (verb.to / "meta.properties").write_text("version=1\nnode.id=5\ndirectory.id=pg2V57h6Q-ieqnbLpTHdaA\n")
    (verb.to / "bootstrap.checkpoint").write_bytes(FORMATTED)
    assert verb().code == 4
    metadata = verb.to / "__cluster_metadata-0"
    metadata.mkdir()
    (metadata / "00000000000000000000.log").touch()
    ended = verb("--kafka")
    assert (ended.code, "has been started" in ended.err) == (4, True)
    (metadata / "00000000000000000000.log").unlink()
    assert verb("--kafka", "--dry-run").code == 0
    assert (verb.to / "bootstrap.checkpoint").read_bytes() == FORMATTED
    assert verb("--kafka").code == 0
    assert b"plain" in (verb.to / "bootstrap.checkpoint").read_bytes()
    assert not verb.state.exists()


def test_ids_are_kept_of_whole_logs_only(verb: Verb, tmp_path: Path) -> None:
    ended = verb("--keep-ids", "--until", "1")
    assert (ended.code, "plain-0 cannot keep its topic's id" in ended.err) == (4, True)
    assert not verb.to.exists()
    assert verb("--keep-ids", "--until", "4000000000000", "--topic", "plain").code == 0
    assert parse_partition_metadata((verb.to / "plain-0" / "partition.metadata").read_bytes()) == PLAIN
    registry = Registry.open(verb.state / "registry.sqlite")
    assert [row.id for row in registry.topics()] == [PLAIN]
    registry.close()


def test_groups_come_along(verb: Verb) -> None:
    """Those that have committed something in what is restored, not behind its end."""
    rows = [
        GroupOffset(topic, None, 0, offset, None, "", 5) for topic, offset in (("plain", 300), ("txn", 7), ("x", 1))
    ]
    file = verb.bucket / "tierd" / "groups" / "0000000001-0000000000.zst"
    file.parent.mkdir(parents=True)
    file.write_bytes(encode_groups(9, [GroupOffsets("readers", tuple(rows))]))
    told = json.loads(verb("--dry-run", "--json").out)["groups"]
    assert told == {"taken_ms": 9, "groups": 1, "offsets": 2, "set_back": 1, "dropped": 1}
    ended = verb()
    assert "51.9 KiB; 2 offsets of 1 groups, 1 set back to the end of their log" in ended.out
    (folder,) = verb.to.glob("__consumer_offsets-*")
    assert folder.name == f"__consumer_offsets-{partition_of('readers', 50)}"
    registry = Registry.open(verb.state / "registry.sqlite")
    (row,) = (row for row in registry.topics() if row.name == "__consumer_offsets")
    registry.close()
    assert row.partitions == 50
    assert str(row.id) in (folder / "partition.metadata").read_text()
