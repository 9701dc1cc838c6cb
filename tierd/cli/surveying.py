"""A bucket as every reader sees it, for verbs that only read: nothing is kept, nothing is written there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tierd.base.clock import SystemClock
from tierd.config.model import Settings
from tierd.config.state_files import CATALOG
from tierd.remote.keyring import load_ring
from tierd.remote.open import open_store
from tierd.remote.readonly import ReadOnlyStore
from tierd.storage.disk import PosixDisk
from tierd.tiering.archive.survey import Survey
from tierd.tiering.catalog import Catalog


@contextmanager
def survey(settings: Settings, url: str) -> Iterator[Survey]:
    """Nothing has been looked at yet; its catalog goes with the block."""
    disk, clock = PosixDisk(), SystemClock()
    ring = load_ring(settings.remote.encryption.key_files)
    plain = open_store(url, settings.remote, disk=disk, clock=clock)
    bucket = replace(plain, store=ReadOnlyStore(plain.store), ring=ring)
    with TemporaryDirectory(prefix="tierd-") as folder:
        catalog = Catalog.open(Path(folder) / CATALOG)
        try:
            yield Survey(bucket, catalog)
        finally:
            catalog.close()
            bucket.store.close()
