"""Looks at a `file:` bucket and the catalog beside it, and says which objects nobody owns."""

import json
import sqlite3
from collections import defaultdict
from pathlib import Path

SUFFIXES = (".log", ".indexes", ".rsm-manifest")
META = ".tierd-meta"
_FINISHED = 1


def stems(bucket: Path) -> dict[str, set[str]]:
    """Segment objects by stem (`<topic>-<id>/<partition>/<base>-<segment id>`): which of the three are there."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in bucket.rglob("*"):
        if path.is_file() and path.suffix in SUFFIXES and META not in path.parts:
            found[str(path.relative_to(bucket).with_suffix(""))].add(path.suffix)
    return dict(found)


def rows(state: Path) -> dict[str, int]:
    """Every segment that a catalog row names: its stem, and the state of the row."""
    with sqlite3.connect(f"file:{state / 'catalog.sqlite'}?mode=ro", uri=True) as db:
        found = dict(db.execute("SELECT stem, state FROM segments").fetchall())
    db.close()
    return found


def ranges(state: Path, topic: str) -> list[tuple[int, int]]:
    """[base, next base) of what the catalog counts as committed, ascending."""
    with sqlite3.connect(f"file:{state / 'catalog.sqlite'}?mode=ro", uri=True) as db:
        query = f"SELECT base, next_base FROM segments WHERE topic = ? AND state = {_FINISHED} ORDER BY base"
        found = db.execute(query, (topic,)).fetchall()
    db.close()
    return found


def unowned(bucket: Path, state: Path) -> list[str]:
    """What should not be there: objects that no catalog row names, committed rows without all their objects, and
    what a `file:` bucket keeps beside objects (notes, uploads) without the object."""
    named, there = rows(state), stems(bucket)
    wrong = [f"{stem}: {sorted(have)} and no row" for stem, have in there.items() if stem not in named]
    for stem, state_of in named.items():
        have = there.get(stem, set())
        if state_of == _FINISHED and have != set(SUFFIXES) and not _is_empty(state, stem):
            wrong.append(f"{stem}: committed, but only {sorted(have)} are there")
    return [*wrong, *_notes(bucket, named), *_uploads(bucket, named)]


def _is_empty(state: Path, stem: str) -> bool:
    """A range without records has a row and no objects."""
    with sqlite3.connect(f"file:{state / 'catalog.sqlite'}?mode=ro", uri=True) as db:
        (size,) = db.execute("SELECT size_bytes FROM segments WHERE stem = ?", (stem,)).fetchone()
    db.close()
    return bool(size == 0)


def _notes(bucket: Path, named: dict[str, int]) -> list[str]:
    objects = bucket / META / "objects"
    wrong = []
    for path in objects.rglob("*"):
        if path.is_dir() or path.relative_to(objects).parts[0] == "tierd":
            continue  # claims, heads, topics: a note before its object is overwritten when the key is written again
        key = str(path.relative_to(objects)).removesuffix(".json")
        if not (bucket / key).exists() and key.rpartition(".")[0] not in named:
            wrong.append(f"{path.relative_to(bucket)}: a note without an object")
    return wrong


def _uploads(bucket: Path, named: dict[str, int]) -> list[str]:
    wrong = []
    for folder in (bucket / META / "uploads").glob("*"):
        info = folder / "info.json"
        key = json.loads(info.read_bytes())["key"] if info.exists() else "nobody knows what"
        if key.rpartition(".")[0] not in named:
            wrong.append(f"{folder.relative_to(bucket)}: an upload of {key}, which no row names")
    return wrong


def left_of(prefix: str, bucket: Path, data: Path, state: Path) -> list[str]:
    """All that is still there of deleted topics whose names begin with *prefix*, in the bucket, on the disk and in
    the catalog; their tombstones in `tierd/topics/` stay for ever and are not counted."""
    found = [str(p.relative_to(bucket)) for p in bucket.rglob(f"{prefix}*") if "topics" not in p.parts]
    found += [str(p) for p in data.glob(f"{prefix}*")]
    with sqlite3.connect(f"file:{state / 'catalog.sqlite'}?mode=ro", uri=True) as db:
        for table in ("segments", "partitions"):
            count = db.execute(f"SELECT count(*) FROM {table} WHERE topic LIKE ?", (prefix + "%",)).fetchone()[0]
            found += [f"{count} rows of {table}"] if count else []
    db.close()
    with sqlite3.connect(f"file:{state / 'registry.sqlite'}?mode=ro", uri=True) as db:
        count = db.execute("SELECT count(*) FROM topics WHERE name LIKE ?", (prefix + "%",)).fetchone()[0]
        found += [f"{count} rows of the registry"] if count else []
    db.close()
    return found
