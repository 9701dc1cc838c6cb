"""The state directory's promises: it belongs to one bucket, for good (directories.py: and to its data directories)."""

import json
from collections.abc import Sequence
from pathlib import Path

from tierd.base.errors import StartRefused
from tierd.base.ids import Uuid
from tierd.broker.registry import Registry
from tierd.storage.directory import LogDirectory

REGISTRY = "registry.sqlite"
_REMOTE, _CLUSTER, _NO_REMOTE = "remote.url", "cluster.id", ""
_HOLDER = "holder"


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


def check_remote(registry: Registry, url: str | None, state_dir: Path) -> None:
    """Remember the bucket at the first start; StartRefused, naming both, when it is missing or another later."""
    known = registry.get(_REMOTE)
    given = url or _NO_REMOTE
    if known is None or (known == _NO_REMOTE and given):
        registry.put(_REMOTE, given)
    elif known != given:
        raise StartRefused(
            f"the archive of {state_dir} lies in {known}, but this start was given {url or 'no --remote'}: "
            f"start with --remote {known}"
        )


def stored_remote(registry: Registry) -> str | None:
    return registry.get(_REMOTE) or None


def cluster_id(registry: Registry) -> str | None:
    return registry.get(_CLUSTER)


def remember_cluster(registry: Registry, cluster: str) -> None:
    if registry.get(_CLUSTER) is None:
        registry.put(_CLUSTER, cluster)
