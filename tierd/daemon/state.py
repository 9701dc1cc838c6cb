"""The state directory's promises: it belongs to one bucket, for good (directories.py: and to its data directories)."""

import json
from collections.abc import Sequence
from pathlib import Path

from tierd.base.errors import StartRefused
from tierd.base.ids import Uuid
from tierd.broker.registry import Registry
from tierd.config.model import OWN
from tierd.storage.directory import LogDirectory

_REMOTE, _NO_REMOTE = "remote.url", ""
_HOLDER = "holder"
_EPOCH = "tier.epoch"
_ARCHIVE = "archive_id"
_MODE, _KNOWN_DIRECTORIES = "mode", "directory.ids"


def holder(registry: Registry, directories: Sequence[LogDirectory]) -> tuple[Uuid, int]:
    """(directory.id, inode) by which the bucket knows this tierd: those of its first data directory, for good.

    The inode is that of the moment while the directory is in use, so that a copy of it is another holder.
    """
    stored = json.loads(registry.get(_HOLDER) or "null")
    known = str(directories[0].directory_id) if stored is None else stored["directory_id"]
    inode = next((d.path.stat().st_ino for d in directories if str(d.directory_id) == known), None)
    if inode is None:
        return Uuid.parse(known), int(stored["inode"])
    if stored is None or stored["inode"] != inode:
        registry.put(_HOLDER, json.dumps({"directory_id": known, "inode": inode}))
    return Uuid.parse(known), inode


def check_mode(registry: Registry, mode: str, state_dir: Path) -> None:
    """StartRefused when the state directory belongs to a tierd of the other mode; noted at the first start."""
    known = registry.get(_MODE) or (OWN if registry.get(_KNOWN_DIRECTORIES) else None)
    if known is None:
        registry.put(_MODE, mode)
    elif known != mode:
        why = f"belongs to a tierd of mode {known}, this start is of mode {mode}: give another --state"
        raise StartRefused(f"{state_dir} {why}")


def check_remote(registry: Registry, url: str | None, state_dir: Path) -> None:
    """StartRefused, naming both, when the bucket of an earlier start is missing or another one is given."""
    known = registry.get(_REMOTE)
    if known and known != (url or _NO_REMOTE):
        raise StartRefused(
            f"the archive of {state_dir} lies in {known}, but this start was given {url or 'no --remote'}: "
            f"start with --remote {known}"
        )


def remember_remote(registry: Registry, url: str | None) -> None:
    """From here on the data belongs to this bucket; call it once the bucket has taken us, or is silent."""
    if registry.get(_REMOTE) != (url or _NO_REMOTE):
        registry.put(_REMOTE, url or _NO_REMOTE)


def last_epoch(registry: Registry) -> int | None:
    """Of the last run that this registry was part of: what the bucket has of a later one is newer."""
    known = registry.get(_EPOCH)
    return None if known is None else int(known)


def remember_epoch(registry: Registry, epoch: int) -> None:
    """Before a client can change anything in this run."""
    registry.put(_EPOCH, str(epoch))


def archive_id(registry: Registry) -> Uuid | None:
    """Of the archive in its bucket; None before that has answered for the first time."""
    known = registry.get(_ARCHIVE)
    return None if known is None else Uuid.parse(known)


def remember_archive(registry: Registry, found: Uuid | None) -> None:
    """An empty directory where the bucket's file system is not mounted must not be taken for a new bucket."""
    if found is not None and registry.get(_ARCHIVE) != str(found):
        registry.put(_ARCHIVE, str(found))


def stored_remote(registry: Registry) -> str | None:
    return registry.get(_REMOTE) or None
