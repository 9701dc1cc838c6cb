"""Remote URLs."""

from pathlib import Path

import pytest

from kit.clock import FakeClock
from tierd.base.errors import Usage
from tierd.config.model import S3, Remote
from tierd.remote.file import FileStore
from tierd.remote.open import Location, open_store, parse_location
from tierd.remote.s3 import S3Store
from tierd.storage.disk import PosixDisk


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("s3://bucket", Location("s3", "bucket", "")),
        ("s3://bucket/", Location("s3", "bucket", "")),
        ("s3://bucket/tier/", Location("s3", "bucket", "tier/")),
        ("s3://bucket/a/b", Location("s3", "bucket", "a/b")),
        ("file:/var/lib/x", Location("file", "/var/lib/x", "")),
    ],
)
def test_urls(url: str, location: Location) -> None:
    assert parse_location(url) == location


@pytest.mark.parametrize("url", ["", "s3:bucket", "s3://", "s3:///x", "file:", "ftp://x/y", "/var/lib"])
def test_what_is_no_bucket(url: str) -> None:
    with pytest.raises(Usage, match="s3://BUCKET/PREFIX/ or file:DIR"):
        parse_location(url)


def test_opening(tmp_path: Path) -> None:
    disk, clock = PosixDisk(), FakeClock()
    bucket = open_store(f"file:{tmp_path}", Remote(), disk=disk, clock=clock)
    assert isinstance(bucket.store, FileStore)
    assert bucket.keys.prefix == ""
    remote = Remote(s3=S3(endpoint="http://127.0.0.1:9"))
    bucket = open_store("s3://b/tier/", remote, disk=disk, clock=clock)
    assert isinstance(bucket.store, S3Store)
    assert (bucket.store.bucket, bucket.keys.prefix) == ("b", "tier/")
    bucket.store.client.close()
