"""From a remote URL to a store and the keys under its prefix."""

from dataclasses import dataclass
from pathlib import Path

from tierd.base.clock import Clock
from tierd.base.disk import Disk
from tierd.base.errors import Usage
from tierd.config.model import Remote
from tierd.remote.file import FileStore
from tierd.remote.keyring import NO_KEYS, KeyRing
from tierd.remote.keys import Keys
from tierd.remote.meter import Meter
from tierd.remote.metered import MeteredStore
from tierd.remote.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Location:
    """A remote URL taken apart."""

    scheme: str
    """`s3` or `file`."""
    bucket: str
    """Bucket name, or directory."""
    prefix: str
    """Put before each key as it is."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """An open store and the keys under the URL's prefix."""

    store: ObjectStore
    keys: Keys
    url: str
    ring: KeyRing = NO_KEYS
    """Of those who read or write segments; see `keyring.load_ring`."""


def parse_location(url: str) -> Location:
    """`s3://BUCKET/PREFIX` or `file:DIR` (absolute: `config.places` has seen to that). Raises Usage."""
    scheme, colon, rest = url.partition(":")
    if scheme == "s3" and rest.startswith("//"):
        bucket, _, prefix = rest[2:].partition("/")
        if bucket:
            return Location("s3", bucket, prefix)
    if scheme == "file" and colon and rest:
        return Location("file", rest, "")
    raise Usage(f"{url!r} is not a bucket: write s3://BUCKET/PREFIX/ or file:DIR")


def open_store(url: str, settings: Remote, *, disk: Disk, clock: Clock, meter: Meter | None = None) -> Bucket:
    """Nothing is asked of the bucket yet; the first request shows whether it answers. Raises Usage for a bad URL."""
    location = parse_location(url)
    store: ObjectStore
    if location.scheme == "file":
        store = FileStore(Path(location.bucket), disk=disk, clock=clock)
        if meter is not None:
            store = MeteredStore(store, meter)
    else:
        from tierd.remote.s3 import S3Options, S3Store  # boto3: a third of a second, for those who need it

        store = S3Store(location.bucket, S3Options.of(settings), clock=clock, meter=meter)
    return Bucket(store, Keys(location.prefix), url)
