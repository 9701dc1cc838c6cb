"""The four stores that the contract is held against."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import weed
from kit.clock import FakeClock
from tierd.base.clock import SystemClock
from tierd.remote.file import FileStore
from tierd.remote.memory import MemoryStore
from tierd.remote.probe import probe
from tierd.remote.s3 import S3Store
from tierd.remote.store import ObjectStore
from tierd.storage.disk import PosixDisk

_NUMBER = itertools.count(1)


def s3_store(endpoint: str, key: str = weed.ACCESS_KEY, secret: str = weed.SECRET_KEY) -> S3Store:
    """A store on a new bucket of its own, its features as the probe found them."""
    options = weed.options(endpoint, access_key_id=key, secret_access_key=secret)
    store = S3Store(f"contract-{next(_NUMBER)}", options, clock=SystemClock())
    store.client.create_bucket(Bucket=store.bucket)
    return store


@pytest.fixture(params=["memory", "file", "moto", pytest.param("weed", marks=pytest.mark.s3)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ObjectStore]:
    made: ObjectStore
    if request.param == "memory":
        made = MemoryStore(FakeClock())
    elif request.param == "file":
        made = FileStore(tmp_path / "bucket", disk=PosixDisk(), clock=SystemClock())
    elif request.param == "moto":
        made = s3_store(request.getfixturevalue("moto_endpoint"))
        probe(made, "probe/")
    else:
        made = s3_store(request.getfixturevalue("weed_server").endpoint)
        probe(made, "probe/")
    yield made
    made.close()
