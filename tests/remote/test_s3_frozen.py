"""Archived objects: what a reader is told, and how they are thawed. Against moto, which freezes and thaws."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kit.cli import tierd
from tierd.base.clock import SystemClock
from tierd.base.errors import Archived, RemoteUnavailable, Usage
from tierd.config.model import Remote
from tierd.ipc.calls import failed, raised
from tierd.remote import crc
from tierd.remote.errors import ObjectArchived
from tierd.remote.keys import Keys
from tierd.remote.open import Bucket, open_store
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Options, S3Store
from tierd.remote.watched import WatchedStore
from tierd.storage.disk import PosixDisk
from tierd.tiering.restore.thaw import thaw

QUICK = RetryPolicy(tries=2, first_ms=1, longest_ms=2)
_NUMBER = count(1)
CLASSES = {"log": "GLACIER"}
ONE = "one-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-BBBBBBBBBBBBBBBBBBBBBA"
TWO = "two-AAAAAAAAAAAAAAAAAAAAAQ/0/00000000000000000000-BBBBBBBBBBBBBBBBBBBBBA"


def put(store: S3Store, key: str) -> None:
    store.put(key, b"0123456789", crc32c=crc.crc32c(b"0123456789"))


@pytest.fixture
def store(moto_endpoint: str) -> Iterator[S3Store]:
    """Two segments whose `.log` is in Glacier, one object in Deep Archive that is nobody's."""
    options = S3Options(
        endpoint=moto_endpoint,
        region="us-east-1",
        path_style=True,
        access_key_id="a",
        secret_access_key="s",
        classes=CLASSES,
    )
    made = S3Store(f"frozen-{next(_NUMBER)}", options, clock=SystemClock(), policy=QUICK)
    made.client.create_bucket(Bucket=made.bucket)
    for stem in (ONE, TWO):
        for kind in (".log", ".indexes", ".rsm-manifest"):
            put(made, stem + kind)
    made.client.put_object(Bucket=made.bucket, Key="stranger", Body=b"x", StorageClass="DEEP_ARCHIVE")
    yield made
    made.close()


def bucket_of(store: S3Store) -> Bucket:
    return Bucket(WatchedStore(store, SystemClock()), Keys(""), "s3://b/")


def test_a_reader_is_told_and_the_bucket_is_not_taken_for_silent(store: S3Store) -> None:
    watched = WatchedStore(store, SystemClock())
    with pytest.raises(ObjectArchived, match=r"one-.*InvalidObjectState.*restore --thaw") as caught:
        watched.get(ONE + ".log", 2, 4)
    assert store.requests["get_object"] == 1, "not tried again"
    assert not isinstance(caught.value, RemoteUnavailable)
    assert watched.calls.silent_ms == 0
    assert watched.head(ONE + ".log").size == 10
    assert watched.get(ONE + ".indexes") == b"0123456789"
    assert isinstance(raised(failed(1, caught.value)), Archived), "the broker is told, too"


def test_what_is_frozen_is_asked_for_once_and_can_then_be_read(store: S3Store) -> None:
    bucket = bucket_of(store)
    (dry,) = thaw(bucket, (), days=3, tier="Bulk", dry=True)
    assert (dry.storage_class, dry.objects, dry.bytes, dry.asked, dry.ready) == ("GLACIER", 2, 20, 2, False)
    assert dry.takes == "5 to 12 hours"
    assert store.requests["restore_object"] == 0
    (one,) = thaw(bucket, ["one"], days=3, tier="Bulk", dry=False)
    assert (one.objects, one.asked) == (1, 1)
    (both,) = thaw(bucket, (), days=3, tier="Standard", dry=False)
    assert (both.objects, both.readable, both.asked) == (2, 1, 1)
    assert store.requests["restore_object"] == 2
    (again,) = thaw(bucket, (), days=3, tier="Standard", dry=False)
    assert again.ready
    assert store.get(ONE + ".log", 2, 4) == b"23"


def test_one_that_somebody_else_has_just_asked_for(store: S3Store) -> None:
    def under_way(http_response: object, parsed: dict[str, Any], model: object, **_: object) -> None:
        parsed["Restore"] = 'ongoing-request="true"'

    store.client.meta.events.register("after-call.s3.HeadObject", under_way)
    (found,) = thaw(bucket_of(store), (), days=1, tier="Standard", dry=False)
    assert (found.objects, found.under_way, found.asked, found.ready) == (2, 2, 0, False)

    def already(**_: object) -> None:
        error: Any = {"Error": {"Code": "RestoreAlreadyInProgress", "Message": "m"}}
        error["ResponseMetadata"] = {"HTTPStatusCode": 409}
        raise ClientError(error, "RestoreObject")

    store.client.meta.events.register("before-call.s3.RestoreObject", already)
    store.thaw(ONE + ".log", "GLACIER", 1, "Standard")


def test_an_archive_tier_of_intelligent_tiering(store: S3Store) -> None:
    asked: list[dict[str, Any]] = []

    def archived(http_response: object, parsed: dict[str, Any], model: object, **_: object) -> None:
        parsed |= {"StorageClass": "INTELLIGENT_TIERING", "ArchiveStatus": "ARCHIVE_ACCESS"}

    def note(params: dict[str, Any], **_: object) -> None:
        asked.append(params["RestoreRequest"])

    store.client.meta.events.register("after-call.s3.HeadObject", archived)
    store.client.meta.events.register("provide-client-params.s3.RestoreObject", note)
    thaw(bucket_of(store), ["two"], days=9, tier="Standard", dry=False)
    assert asked == [{"GlacierJobParameters": {"Tier": "Standard"}}], "what is thawed there stays"


def test_the_verb(store: S3Store, moto_endpoint: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    where = ["restore", "--remote", f"s3://{store.bucket}/", "--to", tmp_path / "to", "--thaw"]
    sets = [f"remote.s3.endpoint={moto_endpoint}", "remote.s3.region=us-east-1", "remote.s3.access.key.id=a"]
    config = tmp_path / "tierd.toml"
    config.write_text('[remote.s3]\nsecret.access.key = "s"\n')
    words = [*where, "-c", config, *(word for one in sets for word in ("--set", one))]
    ended = tierd(capsys, *words, "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "GLACIER: 2 objects, 20 B: 0 can be read, 0 are being thawed, 2 would be asked for",
        "  a Standard thaw of GLACIER takes 3 to 5 hours; copies stay for 7 days",
        "give the same command again to look",
    ]
    assert tierd(capsys, *words, "--thaw-days", "2").code == 0
    told = json.loads(tierd(capsys, *words, "--json").out)
    assert told["ready"] is True
    assert told["classes"][0]["readable"] == 2
    assert not (tmp_path / "to").exists()


def test_a_directory_freezes_nothing(tmp_path: Path) -> None:
    remote = Remote(url=f"file:{tmp_path}")
    bucket = open_store(f"file:{tmp_path}", remote, disk=PosixDisk(), clock=SystemClock())
    with pytest.raises(Usage, match="it is no S3 bucket"):
        thaw(bucket, (), days=1, tier="Standard", dry=True)
