"""What becomes of an archive while its bucket changes, goes, or is another one."""

import json
import os
import shutil
from pathlib import Path

import pytest

from broker.client import Client
from kit.archived import Serving, aiven_bucket, fetched, local, read_on, serving
from kit.bucket import in_folder, in_weed
from kit.golden import golden
from kit.tiers import until
from kit.weed import Weed
from tierd.base.errors import StartRefused
from tierd.base.ids import Uuid
from tierd.broker.broker import Broker
from tierd.config.load import Options, SettingsError, load
from tierd.daemon.parts import Opened
from tierd.remote import crc
from tierd.remote.archive_id import Archive, create_archive
from tierd.remote.manifest import parse_manifest
from tierd.storage.batch import walk
from tierd.wire.errors import ErrorCode

PLAIN_END, TXN_END = 240, 216
OFTEN = {"remote__refresh__interval__ms": 100}


def moved(bucket: Path, elsewhere: Path, *patterns: str) -> list[tuple[Path, Path]]:
    """Take files out of the bucket; where they were, and where they are."""
    elsewhere.mkdir(exist_ok=True)
    found = [(path, elsewhere / path.name) for pattern in patterns for path in bucket.rglob(pattern)]
    for path, to in found:
        path.rename(to)
    assert found
    return found


def test_new_segments_reach_who_waits_for_them(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    taken = moved(bucket, tmp_path / "later", "*180-*")
    with (
        serving(bucket, tmp_path / "state", **OFTEN) as archive,
        Client(archive.address) as client,
        Client(archive.address) as other,
    ):
        assert other.list_offsets("plain", -1).offset == 180
        client.send_fetch([("plain", 0, 180, 1 << 20)], max_wait=60_000)
        for where, path in sorted(taken, key=lambda one: one[0].suffix == ".rsm-manifest"):
            path.rename(where)
        assert client.fetched()[0].error_code == 0
        assert fetched(client, "plain", 180).high_watermark == PLAIN_END
        assert read_on(other, "plain", PLAIN_END) == local("plain", "plain", PLAIN_END)
        moved(bucket, tmp_path / "gone", f"{0:020d}-*")
        until("log start", lambda: other.list_offsets("plain", -2).offset == 60)
        assert other.fetch("plain", 0).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_objects_that_were_put_there_once_more_are_read_on(tmp_path: Path) -> None:
    """A copy of the bucket has other ETags than those with which reads ask for its objects."""
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    with serving(bucket, tmp_path / "state", **OFTEN) as archive, Client(archive.address) as client:
        assert fetched(client, "plain", 0)
        for path in (*bucket.rglob("*.log"), *bucket.rglob("*.indexes")):
            os.utime(path, (1, 1))
        assert read_on(client, "plain", PLAIN_END) == local("plain", "plain", PLAIN_END)


def test_a_newer_topic_takes_the_name_while_it_is_served(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    (old,) = bucket.iterdir()
    other = Uuid(bytes(15) + b"\x07")
    newer = tmp_path / f"plain-{other}"
    shutil.copytree(old, newer)
    for path in newer.rglob("*.rsm-manifest"):
        document = json.loads(path.read_bytes())
        metadata = document["remoteLogSegmentMetadata"]
        metadata["remoteLogSegmentId"]["topicIdPartition"]["topicId"] = str(other)
        metadata["eventTimestampMs"] = 1 << 45
        path.write_text(json.dumps(document))
    with serving(bucket, tmp_path / "state", **OFTEN) as archive, Client(archive.address) as client:
        assert fetched(client, "plain", 0)
        newer.rename(bucket / newer.name)
        aside = f"plain.{old.name[-22:]}"
        until("the name", lambda: client.list_offsets(aside, -1).offset == PLAIN_END)
        ids = {one.name: one.topic_id.bytes for one in client.call(3, 12, topics=None).topics}
        assert ids["plain"] == other.raw
        assert read_on(client, aside, PLAIN_END) == read_on(client, "plain", PLAIN_END)
        (bucket / newer.name).rename(newer)
        until("it is back", lambda: client.list_offsets(aside, -1).error_code != 0)
        assert archive.row("plain")["topic_id"] == old.name[-22:]


def test_partitions_come_and_go(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    (topic,) = bucket.iterdir()
    shutil.copytree(topic / "0", tmp_path / "2")
    with serving(bucket, tmp_path / "state", **OFTEN) as archive, Client(archive.address) as client:

        def ends() -> list[int]:
            return [row["log_end"] for row in archive.status()["partitions"] if row["topic"] == "plain"]

        assert ends() == [PLAIN_END]
        (tmp_path / "2").rename(topic / "2")
        until("three", lambda: ends() == [PLAIN_END, 0, PLAIN_END])
        assert client.fetch("plain", 0, 1).high_watermark == 0
        (topic / "2").rename(tmp_path / "2")
        until("one again", lambda: ends() == [PLAIN_END])
        assert fetched(client, "plain", 0)


def test_a_gap_is_jumped_over_and_told(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "txn")
    moved(bucket, tmp_path / "lost", f"{72:020d}-*.log")
    with serving(bucket, tmp_path / "state") as archive, Client(archive.address) as client:
        for isolation in (0, 1):
            for offset in (72, 100, 143):
                records = bytes(fetched(client, "txn", offset, isolation_level=isolation).records)
                assert next(iter(walk(records)))[1].base_offset == 144
        assert archive.row("txn")["gaps"] == [[72, 144]]
        (problem,) = archive.status()["problems"]
        assert (problem["where"], problem["kind"]) == ("txn-0", "lost in bucket")
        assert client.list_offsets("txn", -3).error_code == 0


def test_a_tierer_that_ends_is_started_again(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    with serving(bucket, tmp_path / "state", **OFTEN) as archive, Client(archive.address) as client:
        assert fetched(client, "plain", 0)
        taken = moved(bucket, tmp_path / "later", "*180-*")
        until("the end", lambda: client.list_offsets("plain", -1).offset == 180)
        archive.run(_kill(archive))
        for where, path in sorted(taken, key=lambda one: one[0].suffix == ".rsm-manifest"):
            path.rename(where)
        until("another", lambda: archive.link.restarts and archive.link.ready)
        until("the end", lambda: client.list_offsets("plain", -1).offset == PLAIN_END)
        assert fetched(client, "plain", 180)


async def _kill(archive: Serving) -> None:
    archive.link._child.kill()


def test_a_bucket_that_is_gone_is_told_and_what_was_there_is_kept(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    with serving(bucket, tmp_path / "state", **OFTEN) as archive, Client(archive.address) as client:
        assert fetched(client, "plain", 0)
        bucket.rename(tmp_path / "elsewhere")
        until("trouble", lambda: archive.link.trouble)
        assert client.list_offsets("plain", -1).offset == PLAIN_END
        assert fetched(client, "plain", 0), "it is in the cache"
        (tmp_path / "elsewhere").rename(bucket)
        until("no trouble", lambda: archive.link.trouble is None)


@pytest.mark.parametrize("variant", ["zstd", "enc", "txn-enc"])
def test_compressed_and_encrypted_buckets(variant: str, tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", variant)
    (folder,) = bucket.iterdir()
    topic = folder.name[:-23]
    stop = max(parse_manifest(path.read_bytes(), "").next_base for path in bucket.rglob("*.rsm-manifest"))
    key = tmp_path / "key1.pem"
    key.write_bytes((golden("aiven") / "keys" / "private.pem").read_bytes())
    sets = {"remote__encryption__key__files": str(key)}
    with serving(bucket, tmp_path / "state", **sets) as archive, Client(archive.address) as client:
        assert read_on(client, topic, stop, isolation_level=1) == local(variant, topic, stop)
        assert client.list_offsets(topic, -2).leader_epoch == 0


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "enc", "plain")
    with serving(bucket, tmp_path / "state") as archive, Client(archive.address) as client:
        assert "lacks key1" in until("trouble", lambda: archive.link.trouble)
        assert fetched(client, "plain", 0)


@pytest.mark.s3
def test_the_same_from_s3(weed_server: Weed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remotely = in_weed(weed_server, "archive")
    root = golden("aiven") / "bucket-txn"
    for path in root.rglob("*.*"):
        data = path.read_bytes()
        remotely.bucket.store.put(path.relative_to(root).as_posix(), data, crc32c=crc.crc32c(data))
    for name, value in remotely.env.items():
        monkeypatch.setenv(name, value)
    before = sorted(remotely.objects())
    sets = {key.replace(".", "__"): value for key, value in remotely.settings.items()}
    with serving(remotely.url, tmp_path / "state", **sets) as archive, Client(archive.address) as client:
        assert read_on(client, "txn", TXN_END, isolation_level=1) == local("txn", "txn", TXN_END)
    assert sorted(remotely.objects()) == before


def test_a_place_where_nobody_has_written_is_refused(tmp_path: Path) -> None:
    """A misspelt one would look like an empty archive for ever."""
    with pytest.raises(StartRefused, match="check --remote"), serving(tmp_path / "misspelt", tmp_path / "state"):
        raise AssertionError("it has started")
    assert not (tmp_path / "misspelt").exists()
    bucket = in_folder(tmp_path / "bucket").bucket
    create_archive(bucket.store, bucket.keys, Archive(archive_id=Uuid(bytes(16)), created_ms=0))
    with serving(tmp_path / "bucket", tmp_path / "other") as archive:
        assert archive.status()["partitions"] == []


def test_a_state_directory_serves_one_mode(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    with serving(bucket, tmp_path / "state") as archive:
        assert isinstance(archive.broker, Broker)
    options = Options(data=(tmp_path / "data",), state=tmp_path / "state", listen="127.0.0.1:0")
    opened = Opened(load(options, need_data=True))
    try:
        with pytest.raises(StartRefused, match="mode archive"):
            opened.open()
    finally:
        opened.close(clean=False)


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (Options(mode="archive", remote="file:/b"), "state"),
        (Options(mode="archive", state=Path("/s")), "remote.url"),
        (Options(mode="archive", state=Path("/s"), remote="file:/b", data=(Path("/d"),)), "data"),
    ],
)
def test_what_an_archive_must_be_told(given: Options, path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(given, need_data=True)
    assert [problem.path for problem in caught.value.problems] == [path]
