"""A directory as the bucket: power cuts, copies, several processes, and what file systems do."""

import itertools
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.clock import FakeClock
from kit.golden import golden
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.clock import SystemClock
from tierd.base.disk import Disk
from tierd.remote import crc, file_names
from tierd.remote.errors import BucketFull, BucketMissing, NotFound, PreconditionFailed, RequestRefused
from tierd.remote.file import FileStore
from tierd.remote.keys import Keys, ObjectKind, SegmentObject
from tierd.remote.manifest import parse_manifest
from tierd.remote.store import ObjectInfo
from tierd.storage.disk import PosixDisk

PART = 1000


def opened(root: Path, disk: Disk | None = None) -> FileStore:
    return FileStore(root / "bucket", disk=disk or PosixDisk(), clock=SystemClock())


def put(store: FileStore, key: str, data: bytes, **wanted: object) -> ObjectInfo:
    return store.put(key, data, crc32c=crc.crc32c(data), **wanted)  # type: ignore[arg-type]


def upload(store: FileStore, key: str, data: bytes) -> ObjectInfo:
    parts = store.begin_upload(key, {"m": "1"}, part_bytes=PART)
    for number, start in enumerate(range(0, len(data), PART), 1):
        piece = data[start : start + PART]
        parts.put_part(number, piece, crc32c=crc.crc32c(piece))
    return parts.complete()


@pytest.mark.parametrize("lost", [False, True], ids=["kill", "power cut"])
def test_a_cut_at_any_step_leaves_old_or_new(tmp_path: Path, lost: bool) -> None:
    for dies_at in itertools.count(1):
        root = tmp_path / str(dies_at)
        root.mkdir()
        old = put(opened(root), "a/head", b"one", metadata={"v": "1"})
        disk = ModelDisk(root, dies_at)
        try:
            put(opened(root, disk), "a/head", b"two", metadata={"v": "2"}, if_match=old.etag)
        except PowerCut:
            if lost:
                disk.lose_unsynced()
            body = opened(root).get("a/head")
            assert body in (b"one", b"two")
            info, again = opened(root).get_with_info("a/head")
            assert again == body
            assert info.crc32c in (None, crc.crc32c(body))
            assert info.metadata in (None, {"v": "1"} if body == b"one" else {"v": "2"})
            assert opened(root).head("a/head").etag == info.etag
            put(opened(root), "a/head", b"three", if_match=info.etag)
            assert [found.key for found in opened(root).list("")] == ["a/head"]
        else:
            disk.lose_unsynced()
            assert opened(root).get_with_info("a/head")[0].metadata == {"v": "2"}
            assert opened(root).get("a/head") == b"two"
            return


@pytest.mark.parametrize("create", [put, upload])
def test_a_cut_while_creating_leaves_all_or_nothing(tmp_path: Path, create: object) -> None:
    data = bytes(range(256)) * 10
    for dies_at in itertools.count(1):
        root = tmp_path / str(dies_at)
        root.mkdir()
        disk = ModelDisk(root, dies_at)
        try:
            create(opened(root, disk), "t/0/x.log", data)  # type: ignore[operator]
        except PowerCut:
            disk.lose_unsynced()
            store = opened(root)
            there = [found.key for found in store.list("t/")]
            assert there == [] or store.get("t/0/x.log") == data
            for left in store.list_uploads(""):
                store.abort_upload(left.key, left.upload_id)
            assert create(store, "t/0/x.log", data).size == len(data)  # type: ignore[operator]
            assert store.get("t/0/x.log") == data
        else:
            disk.lose_unsynced()
            assert opened(root).head("t/0/x.log").crc32c == crc.crc32c(data)
            assert list(opened(root).list_uploads("")) == []
            return


def test_what_was_deleted_stays_deleted(tmp_path: Path) -> None:
    put(opened(tmp_path), "a/b/c", b"x")
    disk = ModelDisk(tmp_path)
    opened(tmp_path, disk).delete(["a/b/c"])
    disk.lose_unsynced()
    assert list(opened(tmp_path).list("")) == []
    assert list(opened(tmp_path).list_folders("")) == []


def test_a_full_disk_is_a_bucket_that_heals(tmp_path: Path) -> None:
    disk = ModelDisk(tmp_path, room_bytes=100)
    store = opened(tmp_path, disk)
    with pytest.raises(BucketFull):
        put(store, "k", b"x" * 200)
    disk.room_bytes = None
    put(store, "k", b"x" * 200)
    assert list((tmp_path / "bucket" / ".tierd-meta" / "tmp").iterdir()) == []


@pytest.mark.parametrize("variant", ["plain", "plain-chunks", "txn"])
def test_a_plain_copy_of_an_aiven_bucket_opens(variant: str) -> None:
    """As it is, and without a write to it."""
    store = FileStore(golden("aiven") / f"bucket-{variant}", disk=ModelDisk(Path("/nonexistent"), 1), clock=FakeClock())
    keys = Keys("tier/")
    segments = 0
    for info in store.list("tier/"):
        parsed = keys.parse(info.key)
        assert isinstance(parsed, SegmentObject)
        assert store.head(info.key) == info
        assert info.metadata is None
        if parsed.kind is ObjectKind.MANIFEST:
            manifest = parse_manifest(store.get(info.key), info.key)
            log = store.head(keys.segment(parsed.name, ObjectKind.LOG))
            assert len(store.get(log.key, 10, manifest.size_bytes, if_match=log.etag)) == manifest.size_bytes - 10
            segments += 1
    assert segments >= 3
    (folder,) = store.list_folders("tier/")
    (partition,) = store.list_folders(folder)
    assert partition.endswith("/0/")


def test_etags_survive_a_copy_and_the_loss_of_the_meta_files(tmp_path: Path) -> None:
    small, big = b"small", b"big" * 500_000
    store = opened(tmp_path)
    infos = {key: put(store, key, data) for key, data in (("s", small), ("b", big))}
    shutil.copytree(tmp_path / "bucket", tmp_path / "moved" / "bucket", copy_function=shutil.copyfile)
    moved = opened(tmp_path / "moved")
    for key, info in infos.items():
        assert moved.head(key).etag == info.etag
    shutil.rmtree(tmp_path / "moved" / "bucket" / ".tierd-meta")
    bare = opened(tmp_path / "moved")
    for key, info in infos.items():
        assert bare.head(key).crc32c is None
        assert bare.get(key, 0, 2, if_match=info.etag) == bare.get(key)[:2]
        with pytest.raises(PreconditionFailed):
            bare.get(key, if_match=info.etag.replace(info.etag[1], "e" if info.etag[1] != "e" else "f", 1))
    put(bare, "s", b"later", if_match=infos["s"].etag)


def test_a_changed_file_is_another_object(tmp_path: Path) -> None:
    store = opened(tmp_path)
    info = put(store, "k", b"aaaa", metadata={"m": "1"})
    (tmp_path / "bucket" / "k").write_bytes(b"bbbb")
    assert store.head("k").metadata is None
    with pytest.raises(PreconditionFailed):
        store.get("k", if_match=info.etag)


def test_a_bucket_that_vanishes_is_away_not_empty(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert list(store.list("")) == []
    put(store, "k", b"x")
    (tmp_path / "bucket").rename(tmp_path / "unmounted")
    for look in (
        lambda: store.get("k"),
        lambda: list(store.list("")),
        lambda: put(store, "k", b""),
        lambda: store.delete(["k"]),
    ):
        with pytest.raises(BucketMissing):
            look()
    (tmp_path / "unmounted").rename(tmp_path / "bucket")
    assert store.get("k") == b"x"


def test_a_bucket_that_vanishes_while_something_is_written_is_not_made_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, "k", b"x")
    folders = store._folders
    with folders.locked("k"):
        tmp = folders.new_tmp()
        folders.write_tmp(tmp, b"y")
        (tmp_path / "bucket").rename(tmp_path / "unmounted")
        with pytest.raises(BucketMissing):
            folders.name(tmp, folders.data("new/k"))
    for late in (folders.new_tmp, lambda: folders.locked("k").__enter__()):
        with pytest.raises(BucketMissing):
            late()
    assert not (tmp_path / "bucket").exists()


def test_threads_that_make_a_new_bucket_together(tmp_path: Path) -> None:
    for turn in range(30):
        store = opened(tmp_path / str(turn))
        gate = threading.Barrier(6)

        def act(number: int, store: FileStore = store, gate: threading.Barrier = gate) -> str:
            gate.wait()
            return put(store, f"a/{number}", b"x").key

        with ThreadPoolExecutor(6) as pool:
            assert len(set(pool.map(act, range(6)))) == 6


def test_strange_files_are_left_alone(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, "t/a", b"x")
    (tmp_path / "bucket" / "t" / "a~").write_bytes(b"an editor's")
    (tmp_path / "bucket" / "empty").mkdir()
    assert [found.key for found in store.list("")] == ["t/a"]
    assert list(store.list_folders("")) == ["t/"]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", ".", "x~", ".tierd-meta/x", "nul\0"])
def test_keys_that_no_file_can_have(tmp_path: Path, key: str) -> None:
    store = opened(tmp_path)
    with pytest.raises(RequestRefused):
        put(store, key, b"x")
    with pytest.raises(NotFound):
        store.get(key)
    assert store.delete([key])[0].refused is None


def test_a_key_is_an_object_or_a_folder(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, "a", b"x")
    with pytest.raises(RequestRefused, match="KeyConflict"):
        put(store, "a/b", b"x")
    put(store, "c/d", b"x")
    with pytest.raises(RequestRefused, match="KeyConflict"):
        put(store, "c", b"x")
    store.delete(["c"])
    assert store.get("c/d") == b"x"


def test_what_crashed_writers_left_is_swept_when_old(tmp_path: Path) -> None:
    store = opened(tmp_path)
    put(store, "k", b"x")
    left = [tmp_path / "bucket" / ".tierd-meta" / "tmp" / name for name in ("old", "new")]
    for path in left:
        path.write_bytes(b"?")
    upload = store.begin_upload("u")
    empty = [tmp_path / "bucket" / ".tierd-meta" / "uploads" / name for name in ("old", "new")]
    for folder in empty:
        folder.mkdir()
    for path in (left[0], empty[0], empty[0].with_name(upload.upload_id)):
        os.utime(path, (1, 1))
    put(opened(tmp_path), "k", b"y")
    assert [path.exists() for path in (*left, *empty)] == [False, True, False, True]
    assert [one.upload_id for one in store.list_uploads("")] == [upload.upload_id]


def test_a_short_part_before_the_last_is_refused(tmp_path: Path) -> None:
    parts = opened(tmp_path).begin_upload("k", part_bytes=PART)
    for number, size in ((1, PART - 1), (2, PART)):
        parts.put_part(number, bytes(size), crc32c=crc.crc32c(bytes(size)))
    with pytest.raises(RequestRefused, match="short"):
        parts.complete()
    with pytest.raises(RequestRefused):
        parts.put_part(3, bytes(PART + 1), crc32c=crc.crc32c(bytes(PART + 1)))


INCREMENTS = """
import sys
from pathlib import Path
from tierd.base.clock import SystemClock
from tierd.remote import crc
from tierd.remote.errors import PreconditionFailed
from tierd.remote.file import FileStore
from tierd.storage.disk import PosixDisk

store = FileStore(Path(sys.argv[1]), disk=PosixDisk(), clock=SystemClock())
for _ in range(20):
    while True:
        info, body = store.get_with_info("count")
        new = b"%d" % (int(body) + 1)
        try:
            store.put("count", new, crc32c=crc.crc32c(new), if_match=info.etag)
        except PreconditionFailed:
            continue
        break
"""


def test_processes_do_not_lose_each_others_swaps(tmp_path: Path) -> None:
    put(opened(tmp_path), "count", b"0")
    command = [sys.executable, "-c", INCREMENTS, str(tmp_path / "bucket")]
    workers = [subprocess.Popen(command) for _ in range(3)]
    assert [worker.wait(timeout=60) for worker in workers] == [0, 0, 0]
    assert opened(tmp_path).get("count") == b"60"


parts = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=300).filter(
    lambda part: part not in (".", "..") and not part.endswith("~")
)


@given(st.lists(parts, min_size=1, max_size=4))
def test_every_name_fits_and_is_its_own(found: list[str]) -> None:
    key = "k/" + "/".join(found)
    pieces = file_names.path_parts(key)
    assert all(1 <= len(os.fsencode(piece)) <= 255 for piece in pieces)
    joined = b"/".join(os.fsencode(piece) for piece in pieces).replace(b"~/", b"")
    assert joined == os.fsencode(key) or b"~/" in os.fsencode(key)


NAMES = ["a", "a-b", "a.", "b", "n" * 241, "n" * 500]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(
        st.lists(st.sampled_from(["a", "a-b", "a.", "b", "n" * 241, "n" * 500]), min_size=1, max_size=3).map("/".join)
    ),
    st.sampled_from(["", "a", "a/", "a-", "b/a", "n", "n" * 241 + "/"]),
    st.sampled_from([None, "a", "a/", "a/b", "a-b/a", "n" * 241]),
)
def test_listing_is_as_in_s3(
    tmp_path_factory: pytest.TempPathFactory, keys: set[str], prefix: str, after: str | None
) -> None:
    keys = {key for key in keys if not any(other.startswith(key + "/") for other in keys)}
    store = opened(tmp_path_factory.mktemp("listing"))
    for key in keys:
        put(store, key, b"")
    expected = sorted(key for key in keys if key.startswith(prefix) and (after is None or key > after))
    assert [found.key for found in store.list(prefix, after)] == expected
    tails = {key[len(prefix) :] for key in keys if key.startswith(prefix)}
    assert list(store.list_folders(prefix)) == sorted({prefix + t[: t.index("/") + 1] for t in tails if "/" in t})
    store.delete(sorted(keys))
    assert list(store.list("")) == []


def test_a_bucket_that_goes_away_in_the_middle_of_a_list_has_not_lost_what_comes_next(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for key in ("a/1", "b/1"):
        put(store, key, b"x")
    listed = store.list("")
    assert next(listed).key == "a/1"
    (tmp_path / "bucket").rename(tmp_path / "away")
    with pytest.raises(BucketMissing):
        list(listed)
