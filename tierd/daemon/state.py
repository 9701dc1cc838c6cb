"""The state directory's promises: it belongs to these data directories and to one bucket, for good."""

import json
from collections.abc import Sequence
from pathlib import Path

from tierd.base.errors import StartRefused
from tierd.broker.registry import Registry

REGISTRY = "registry.sqlite"
_DIRECTORIES, _REMOTE, _CLUSTER, _NO_REMOTE = "directory.ids", "remote.url", "cluster.id", ""


def check_directories(registry: Registry, ids: Sequence[str], state_dir: Path) -> None:
    """Remember the data directories' ids at the first start; StartRefused when others are given later."""
    known = registry.get(_DIRECTORIES)
    if known is None:
        registry.put(_DIRECTORIES, json.dumps(sorted(ids)))
        return
    stored = set(json.loads(known))
    if not stored & set(ids):
        raise StartRefused(
            f"{state_dir} belongs to the data directory with directory.id {', '.join(sorted(stored))}, not to "
            f"{', '.join(sorted(ids))}: give the --state that belongs to this --data"
        )
    if stored != set(ids):
        raise StartRefused(
            f"{state_dir} was last used with the directories {', '.join(sorted(stored))}, now with "
            f"{', '.join(sorted(ids))}: give every --data of this tierd"
        )


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
