"""Looks into a bucket and the catalog beside it, and says which objects nobody owns."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kit.weed import ACCESS_KEY, SECRET_KEY, Weed
from tierd.base.clock import SystemClock
from tierd.config.model import S3, Remote
from tierd.remote.keys import PROBE
from tierd.remote.open import Bucket, open_store
from tierd.storage.disk import PosixDisk

SUFFIXES = frozenset({".log", ".indexes", ".rsm-manifest"})
META = ".tierd-meta"
_FINISHED = 1


@dataclass(frozen=True, slots=True)
class Remotely:
    """A bucket as tierd is told of it, and our own way into it."""

    bucket: Bucket
    folder: Path | None
    """Where it lies, when it is a directory."""
    settings: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.bucket.url

    def objects(self) -> list[str]:
        return [info.key for info in self.bucket.store.list(self.bucket.keys.prefix)]


def in_folder(folder: Path) -> Remotely:
    return Remotely(_open(Remote(url=f"file:{folder}")), folder)


def in_weed(server: Weed, name: str) -> Remotely:
    s3 = S3(endpoint=server.endpoint, region="us-east-1", access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY)
    settings = {"remote.s3.endpoint": server.endpoint, "remote.s3.region": "us-east-1"}
    return Remotely(_open(Remote(url=f"s3://{server.bucket(name)}/tier/", s3=s3)), None, settings, server.env)


def _open(remote: Remote) -> Bucket:
    assert remote.url is not None
    return open_store(remote.url, remote, disk=PosixDisk(), clock=SystemClock())


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        yield db
    finally:
        db.close()


def rows(state: Path) -> dict[str, tuple[int, int]]:
    """Every segment that a catalog row names: its stem, the state of the row and the segment's size."""
    with _reading(state / "catalog.sqlite") as db:
        return {stem: (now, size) for stem, now, size in db.execute("SELECT stem, state, size_bytes FROM segments")}


def ranges(state: Path, topic: str) -> list[tuple[int, int]]:
    """[base, next base) of what the catalog counts as committed, ascending."""
    query = f"SELECT base, next_base FROM segments WHERE topic = ? AND state = {_FINISHED} ORDER BY base"
    with _reading(state / "catalog.sqlite") as db:
        return db.execute(query, (topic,)).fetchall()


def unowned(remotely: Remotely, state: Path) -> list[str]:
    """What should not be there: objects and uploads that no catalog row names, rows of committed segments without all
    their objects, and in a directory the notes beside objects that are gone."""
    named, there = rows(state), defaultdict[str, set[str]](set)
    for key in remotely.objects():
        stem, dot, kind = key.rpartition(".")
        if dot + kind in SUFFIXES:
            there[stem].add(dot + kind)
    wrong = [f"{stem}: {sorted(have)} and no row" for stem, have in there.items() if stem not in named]
    for stem, (now, size) in named.items():
        if now == _FINISHED and size and there.get(stem) != SUFFIXES:
            wrong.append(f"{stem}: committed, but only {sorted(there.get(stem, ()))} are there")
    for upload in remotely.bucket.store.list_uploads(remotely.bucket.keys.prefix):
        if PROBE not in upload.key and upload.key.rpartition(".")[0] not in named:  # a sweep takes those of a look
            wrong.append(f"an upload of {upload.key}, which no row names")
    return wrong if remotely.folder is None else wrong + _notes(remotely.folder, named)


def _notes(folder: Path, named: dict[str, tuple[int, int]]) -> list[str]:
    wrong = []
    for path in (folder / META / "objects").rglob("*"):
        parts = path.relative_to(folder / META / "objects").parts
        if path.is_dir() or parts[0] == "tierd":
            continue  # claims, heads, topics: a note before its object is overwritten when the key is written again
        key = "/".join(parts).removesuffix(".json")
        if not (folder / key).exists() and key.rpartition(".")[0] not in named:
            wrong.append(f"{key}: a note without an object")
    for upload in (folder / META / "uploads").glob("*"):
        info = upload / "info.json"
        if not any(upload.iterdir()):
            continue  # begun or dropped by half, and swept after a day
        if not info.exists() or json.loads(info.read_bytes())["key"].rpartition(".")[0] not in named:
            wrong.append(f"{upload}: an upload of nobody's")
    return wrong


def left_of(prefix: str, remotely: Remotely, data: Path, state: Path) -> list[str]:
    """All that is still there of deleted topics whose names begin with *prefix*, in the bucket, on the disk and in
    the catalog; their tombstones in `tierd/topics/` stay for ever and are not counted."""
    found = [key for key in remotely.objects() if f"/{prefix}" in f"/{key}" and "tierd/topics/" not in key]
    if remotely.folder is not None:
        found += [str(path) for path in remotely.folder.rglob(f"{prefix}*") if "topics" not in path.parts]
    found += [str(path) for path in data.glob(f"{prefix}*")]
    tables = (("catalog", "segments", "topic"), ("catalog", "partitions", "topic"), ("registry", "topics", "name"))
    for file, table, column in tables:
        with _reading(state / f"{file}.sqlite") as db:
            query = f"SELECT count(*) FROM {table} WHERE {column} LIKE ?"
            (count,) = db.execute(query, (prefix + "%",)).fetchone()
            found += [f"{count} rows of {table}"] if count else []
    return found
