"""Opening several data directories: what cannot be used is left out and named, unless nothing else is left.

The registry knows which directories belong to this tierd and where each was. A path that is empty now but was one of
them is most likely a disk that is not mounted: nothing is written there.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tierd.base.errors import CorruptFile, DiskFull, StartRefused
from tierd.broker.homes import Home, unusable
from tierd.broker.outages import NOWHERE
from tierd.broker.registry import Registry
from tierd.storage.directory import LogDirectory
from tierd.storage.metadata import MetaProperties, parse_meta_properties
from tierd.storage.names import META_PROPERTIES

log = logging.getLogger(__name__)

_DIRECTORIES, _PATHS = "directory.ids", "directory.paths"

Lock = Callable[[Path, str | None], LogDirectory]
"""Locks the directory at a path; the cluster it must belong to, if that is known."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a path shows before anything there is touched."""

    meta: MetaProperties | None
    """Whose it is; None when it is new, or when its file is broken, which locking it says."""
    problem: str | None = None


def _look(path: Path) -> _Seen:
    file = path / META_PROPERTIES
    try:
        return _Seen(parse_meta_properties(file.read_bytes(), str(file)))
    except (FileNotFoundError, CorruptFile):
        return _Seen(None)
    except OSError as error:
        return _Seen(None, str(error))


@dataclass(slots=True)
class DataDirectories:
    """Those of one start: `lock`, then `check`, then `load`."""

    paths: Sequence[Path]
    lost: frozenset[Path] = frozenset()
    """Gone for good, says the operator: their partitions begin anew from the bucket, or empty."""
    usable: list[LogDirectory] = field(default_factory=list)
    unusable: list[Home] = field(default_factory=list)
    _full: bool = False
    """One of them has no room: another try may find some."""
    _known: dict[str, Path | None] = field(default_factory=dict)

    def lock(self, lock: Lock, registry: Registry | None) -> None:
        """Lock what can be used. *registry* is None at the very first start. Raises StartRefused, DiskFull."""
        self._known = {} if registry is None else known_directories(registry)
        found = {path: _look(path) for path in self.paths}
        there = {str(seen.meta.directory_id) for seen in found.values() if seen.meta is not None}
        clusters = [seen.meta.cluster_id for seen in found.values() if seen.meta is not None]
        cluster = next((known for known in clusters if known is not None), None)
        for path, seen in found.items():
            was = self._id_at(path, there)
            why = seen.problem
            if why is None and seen.meta is None and was is not None and path not in self.lost:
                why = f"it was the data directory {was}, but has no {META_PROPERTIES} now: is its disk mounted?"
            if why is None:
                try:
                    opened = lock(path, cluster)
                except (OSError, DiskFull) as error:
                    why = str(error)
                    self._full |= isinstance(error, DiskFull)
                else:
                    self.usable.append(opened)
                    cluster = opened.cluster_id
                    continue
            known = None if seen.meta is None or seen.meta.directory_id is None else str(seen.meta.directory_id)
            self._leave(path, known or was, why)
        self._refuse_none()

    def _id_at(self, path: Path, there: Iterable[str]) -> str | None:
        """The id of the known directory that was at *path* and is in none of the places given."""
        return next((known for known, place in self._known.items() if place == path and known not in there), None)

    def _leave(self, path: Path, directory_id: str | None, why: str) -> None:
        log.error("data directory cannot be used", extra={"path": str(path), "why": why})
        if path not in self.lost:
            self.unusable.append(unusable(path, directory_id, why))

    def _refuse_none(self) -> None:
        if not self.usable:
            reasons = "; ".join(f"{home.path}: {home.reason}" for home in self.unusable)
            why = f"no data directory can be used: {reasons}"
            raise DiskFull(why) if self._full else StartRefused(why)

    def check(self, registry: Registry, state_dir: Path) -> None:
        """See that all of this state directory's data directories are accounted for. Raises StartRefused."""
        ids = {str(one.directory_id) for one in self.usable}
        if not self._known:
            registry.put(_DIRECTORIES, json.dumps(sorted(ids)))
            return
        if not ids & self._known.keys():
            raise StartRefused(
                f"{state_dir} belongs to {self._named(self._known)}, not to {', '.join(sorted(ids))}: "
                "give the --state that belongs to this --data"
            )
        missing = [known for known in self._known if known not in ids | {home.id for home in self.unusable}]
        for known in missing:
            if self._known[known] in self.lost:
                self._forget(registry, known)
            elif self._known[known] is None or known in registry.placements().values():
                self._refuse_missing(state_dir, known)

    def _refuse_missing(self, state_dir: Path, known: str) -> None:
        if any(home.id is None for home in self.unusable):
            return  # it may be that one
        raise StartRefused(
            f"{state_dir} was last used with {self._named(self._known)}: {self._named([known])} is missing; "
            "give every --data, or --lost DIR when it is gone for good"
        )

    def _forget(self, registry: Registry, known: str) -> None:
        gone = [part for part, place in registry.placements().items() if place == known]
        log.warning("data directory is lost", extra={"path": str(self._known[known]), "partitions": len(gone)})
        registry.place(dict.fromkeys(gone, NOWHERE))
        del self._known[known]

    def _named(self, ids: Iterable[str]) -> str:
        return ", ".join(f"{self._known.get(one) or 'directory.id'} ({one})" for one in sorted(ids))

    def load(self, load: Callable[[LogDirectory], None]) -> None:
        """Recover all of them side by side. Raises StartRefused, DiskFull when none is left, and what *load* raises but
        OSError."""
        with ThreadPoolExecutor(len(self.usable), thread_name_prefix="directory") as threads:
            loading = [(directory, threads.submit(load, directory)) for directory in self.usable]
        for directory, done in loading:
            error = done.exception()
            if isinstance(error, (OSError, DiskFull)):
                self._full |= isinstance(error, DiskFull)
                self.usable.remove(directory)
                directory.close(clean=False)
                self._leave(directory.path, str(directory.directory_id), directory.health.reason or str(error))
            elif error is not None:
                raise error
        self._refuse_none()

    def remember(self, registry: Registry) -> None:
        """All that was found is in the registry now; note the directories, too. Empty ones may be left out later."""
        paths = {str(one.directory_id): str(one.path) for one in self.usable}
        away = {home.id: str(home.path) for home in self.unusable if home.id is not None}
        nameless = any(home.id is None for home in self.unusable)
        kept = {known: str(place) for known, place in self._known.items() if nameless and place is not None}
        all_paths = {**kept, **away, **paths}
        registry.put(_DIRECTORIES, json.dumps(sorted(all_paths)))
        registry.put(_PATHS, json.dumps(all_paths))


def known_directories(registry: Registry) -> dict[str, Path | None]:
    """Id and last path of every data directory of this state directory; None where an older tierd noted none."""
    ids, paths = registry.get(_DIRECTORIES), json.loads(registry.get(_PATHS) or "{}")
    return {one: Path(paths[one]) if one in paths else None for one in json.loads(ids or "[]")}


def open_registry(path: Path) -> Registry | None:
    """The registry of an earlier start; None at the first one."""
    return Registry.open(path) if path.exists() else None
