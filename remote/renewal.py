"""Takes renewed credentials and certificates up while requests go on: watches the files that they come from.

Directories are watched, not files: a file that is replaced by renaming another one over it is a new file. Events only
wake; whether something changed is seen by looking. Own threads.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from tierd.base.clock import Clock, SystemClock
from tierd.base.errors import TierdError

if TYPE_CHECKING:
    from tierd.remote.s3_client import S3Options  # slow to import, and the broker needs none

log = logging.getLogger(__name__)

QUIET_S = 0.3
"""After the last event; a program may write its file in several steps."""

AGAIN_MS = 60_000
"""Credentials that are refused are asked for anew at most so often."""

Signature = tuple[tuple[int, int, int] | None, ...]


def files_of(options: "S3Options", environment: Mapping[str, str]) -> list[Path]:
    """The files that credentials and certificates come from. Those that are not there yet count, too."""
    found: list[Path] = []
    if options.access_key_id is None and not ("AWS_ACCESS_KEY_ID" in environment and options.profile is None):
        found += [
            Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser(),
            Path(environment.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser(),
        ]
        found += [Path(environment[name]) for name in _TOKEN_FILES if environment.get(name)]
    if options.ca_bundle is not None:
        found.append(options.ca_bundle)
    else:
        found += [Path(environment[name]) for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE") if environment.get(name)]
    return found


_TOKEN_FILES = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")


class Renewal(FileSystemEventHandler):
    """Calls *renew* after a change of *files*, once it is quiet. Any thread may call `look`."""

    def __init__(
        self,
        files: Iterable[Path],
        renew: Callable[[], None],
        *,
        quiet_s: float = QUIET_S,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._renewed_ms: int | None = None
        self._files = tuple(files)
        self._renew = renew
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._seen = self._signature()
        self._timer: threading.Timer | None = None
        self._observer: BaseObserver | None = None

    def start(self) -> None:
        """Watch every directory that is there; without inotify nothing is watched, and it is said."""
        places = [place for file in self._files for place in (file.parent, file.resolve().parent)]
        folders = {place for place in places if place.is_dir()}
        if not folders:
            return
        try:
            observer = Observer()  # Only where there is something to watch: each takes one of the user's few instances.
            for folder in sorted(folders):
                observer.schedule(self, str(folder))
            observer.start()
            self._observer = observer
        except OSError as error:
            log.warning("renewed credentials are taken up at the next start only: %s", error)

    def on_any_event(self, event: FileSystemEvent) -> None:
        """In the observer's thread: look once nothing has happened for a while."""
        if event.event_type in ("opened", "closed_no_write"):
            return  # that is us
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = threading.Timer(self._quiet_s, self.look)
            self._timer.daemon = True
            self._timer.start()

    def look(self) -> bool:
        """Renew when a file is another one than before; True then. What makes no sense is said and left."""
        with self._lock:
            now = self._signature()
            if now == self._seen:
                return False
            self._seen = now
            if not self._renews():
                return False
            log.info("credentials or certificates were renewed", extra={"files": " ".join(map(str, self._files))})
            return True

    def refused(self) -> bool:
        """As `look`, after a refusal; and once in AGAIN_MS also without any new file.

        Who gives out credentials over the network (instance, token service) was perhaps away when they were first
        asked for, or has replaced them before their time.
        """
        if self.look():
            return True
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if self._renewed_ms is not None and now_ms - self._renewed_ms < AGAIN_MS:
                return False
            self._renewed_ms = now_ms
            return self._renews()

    def _renews(self) -> bool:
        try:
            self._renew()
        except TierdError as error:
            log.error("renewed credentials cannot be used, the old ones stay: %s", error)
            return False
        return True

    def _signature(self) -> Signature:
        return tuple(_mark(file) for file in self._files)

    def close(self) -> None:
        """Watch no more."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
        if self._observer is not None:
            self._observer.stop()
            self._observer.join()


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        facts = os.stat(file)
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns, facts.st_size
