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
from tierd.remote.limits import Limits
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


def limits_of(settings: Remote, clock: Clock) -> Limits:
    """Of one store, as the settings have them."""
    return Limits(
        clock,
        upload=settings.upload_per_second,
        download=settings.download_per_second,
        requests=settings.requests_per_second,
    )


def open_store(
    url: str,
    settings: Remote,
    *,
    disk: Disk,
    clock: Clock,
    meter: Meter | None = None,
    limits: Limits | None = None,
) -> Bucket:
    """Without *limits* those of the settings. Nothing is asked of the bucket yet; the first request shows whether it
    answers. Raises Usage for a bad URL."""
    location = parse_location(url)
    limits = limits or limits_of(settings, clock)
    store: ObjectStore
    if location.scheme == "file":
        store = FileStore(Path(location.bucket), disk=disk, clock=clock)
        if meter is not None or limits.any:
            store = MeteredStore(store, meter or Meter(), limits)
    else:
        from tierd.remote.s3 import S3Options, S3Store  # boto3: a third of a second, for those who need it

        store = S3Store(location.bucket, S3Options.of(settings), clock=clock, meter=meter, limits=limits)
    return Bucket(store, Keys(location.prefix), url)
