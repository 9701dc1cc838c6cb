"""The data directories: which are in use, which are offline and why, and which of them takes the next partition."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tierd.base.errors import TierdError
from tierd.storage.directory import LogDirectory
from tierd.storage.log import Log


@dataclass(slots=True, eq=False)
class Home:
    """One configured data directory. Offline stays offline until a restart."""

    path: Path
    """Absolute."""
    directory: LogDirectory | None
    """None: it could not be opened at this start."""
    id: str | None
    """Its directory.id; None when not even that is known."""
    reason: str | None = None
    """Why it is offline; None while it is in use."""
    moving_in: int = 0
    """Partitions on their way here; they count when the next one is placed, as in Kafka."""

    @property
    def online(self) -> bool:
        """False as soon as its disk has failed, also before the loop has taken its partitions offline."""
        return self.directory is not None and self.reason is None and self.directory.health.reason is None

    def space(self) -> tuple[int, int] | None:
        """(size of the file system, free for us) in bytes; None when it cannot be asked or is offline."""
        if not self.online:
            return None
        try:
            stat = os.statvfs(self.path)
        except OSError as error:
            assert self.directory is not None
            self.directory.health.note(error)
            return None
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def unusable(path: Path, directory_id: str | None, reason: str) -> Home:
    """A directory that this start must do without."""
    return Home(path.absolute(), None, directory_id, reason)


class Homes:
    """All of them, in the order of the settings. Loop thread only."""

    def __init__(self, directories: Iterable[LogDirectory], missing: Iterable[Home] = ()) -> None:
        opened = [Home(one.path.absolute(), one, str(one.directory_id), one.health.reason) for one in directories]
        self._homes = (*opened, *missing)
        self._by_path = {home.path: home for home in self._homes}
        self._by_id = {home.id: home for home in self._homes if home.id is not None}

    def __iter__(self) -> Iterator[Home]:
        return iter(self._homes)

    @property
    def online(self) -> tuple[LogDirectory, ...]:
        return tuple(home.directory for home in self._homes if home.directory is not None and home.online)

    @property
    def offline(self) -> tuple[Home, ...]:
        return tuple(home for home in self._homes if not home.online)

    def of(self, log: Log) -> Home:
        """The directory that *log* lies in."""
        return self._by_path[log.directory.parent.absolute()]

    def at(self, path: Path) -> Home | None:
        return self._by_path.get(path)

    def by_id(self, directory_id: str) -> Home | None:
        return self._by_id.get(directory_id)

    def emptiest_first(self, count: int = 1) -> Iterator[list[Home]]:
        """For each of the next *count* partitions those in use, by the number of partitions: the first one takes it."""
        have = {home: _partitions(home) for home in self._homes if home.online}
        for _ in range(count):
            order = sorted(have, key=have.__getitem__)
            yield order
            if order:
                have[order[0]] += 1


def _partitions(home: Home) -> int:
    assert home.directory is not None
    return len(home.directory.logs) + home.moving_in


@dataclass(frozen=True, slots=True)
class Offline:
    """A partition that nobody gets at, since its directory is offline."""

    home: Home | None
    """None: it was not found, and nobody knows in which of the offline directories it is."""
    log: Log | None
    """Its state when it went offline; None when this start has not seen it."""

    @property
    def reason(self) -> str:
        if self.home is None:
            return "not found; a data directory is offline"
        return f"{self.home.path} is offline: {self.home.reason}"


class NoDirectoryLeft(TierdError):
    """Every data directory is offline: the daemon ends, and a start looks at the disks again."""

    def __init__(self, homes: Iterable[Home]) -> None:
        super().__init__("; ".join(f"{home.path} is offline: {home.reason}" for home in homes))
