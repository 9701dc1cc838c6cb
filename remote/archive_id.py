"""The archive id: random, made once per prefix, also kept in the catalog. Two that differ mean the wrong bucket."""

from dataclasses import dataclass

from tierd.base.ids import Uuid
from tierd.remote.documents import Document, Id
from tierd.remote.errors import NotFound, PreconditionFailed, WrongBucket
from tierd.remote.keys import Keys
from tierd.remote.store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """`tierd/archive.json`."""

    archive_id: Id
    created_ms: int


ARCHIVE = Document(Archive)


def read_archive(store: ObjectStore, keys: Keys) -> Archive | None:
    """None in a prefix without an archive of tierd's (new, or written by Aiven's plugin)."""
    try:
        return ARCHIVE.get(store, keys.archive)[0]
    except NotFound:
        return None


def create_archive(store: ObjectStore, keys: Keys, archive: Archive) -> Archive:
    """Create it, or give the one that is there (somebody was first)."""
    try:
        ARCHIVE.put(store, keys.archive, archive, if_none_match=True)
    except PreconditionFailed:
        return ARCHIVE.get(store, keys.archive)[0]
    return archive


def check_archive(found: Archive | None, known: Uuid | None, where: str) -> None:
    """Raises WrongBucket unless what the bucket says and what the state directory knows go together.

    *known* is None in a new state directory; an archive that is there is then for the caller to judge.
    """
    if known is None or (found is not None and found.archive_id == known):
        return
    there = "no archive" if found is None else f"archive {found.archive_id}"
    check = "check --remote" if found is not None else "check --remote, and whether what should be there is mounted"
    raise WrongBucket(f"{where} holds {there}, the state directory belongs to archive {known}: {check}")
