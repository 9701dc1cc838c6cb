"""Looks at a `file:` bucket and the catalog beside it, and says which objects nobody owns."""

import sqlite3
from collections import defaultdict
from pathlib import Path

SUFFIXES = (".log", ".indexes", ".rsm-manifest")


def stems(bucket: Path) -> dict[str, set[str]]:
    """Segment objects by stem (`<topic>-<id>/<partition>/<base>-<segment id>`): which of the three are there."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in bucket.rglob("*"):
        if path.is_file() and path.suffix in SUFFIXES and ".tierd-meta" not in path.parts:
            found[str(path.relative_to(bucket).with_suffix(""))].add(path.suffix)
    return dict(found)


def catalog_segment_ids(state: Path) -> set[str]:
    """Ids of every segment that a catalog row names, whatever its state; as 22 characters."""
    from tierd.base.ids import Uuid

    with sqlite3.connect(f"file:{state / 'catalog.sqlite'}?mode=ro", uri=True) as db:
        rows = db.execute("SELECT segment_id FROM segments").fetchall()
    return {raw if isinstance(raw, str) else str(Uuid(bytes(raw))) for (raw,) in rows}


def unowned(bucket: Path, state: Path) -> list[str]:
    """Stems that are neither committed (all three objects there) nor named by a catalog row."""
    named = catalog_segment_ids(state)
    return [s for s, have in stems(bucket).items() if have != set(SUFFIXES) and s[-22:] not in named]
