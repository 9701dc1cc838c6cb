"""Glacier: which objects must be thawed, how far that is, and RestoreObject."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tierd.config.s3 import FROZEN
from tierd.remote.errors import RemoteUnavailable, RequestRefused
from tierd.remote.frozen import Cold, Thaw, Thawing

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store

_TIERING = "INTELLIGENT_TIERING"
"""Its archive tiers do not show in listings, and what is thawed there stays."""


def list_cold(store: "S3Store", prefix: str) -> Iterator[Cold]:
    """See `frozen.FreezingStore`, as of the others."""
    for page in store.pages(prefix):
        for found in page.get("Contents", ()):
            storage_class = found.get("StorageClass", "STANDARD")
            if storage_class in FROZEN or storage_class == _TIERING:
                yield Cold(key=found["Key"], size=found["Size"], storage_class=storage_class)


def thawing(store: "S3Store", key: str) -> Thawing:
    answer = store.retried(key, store.client.head_object, Key=key)
    storage_class = answer.get("StorageClass", "STANDARD")
    if storage_class not in FROZEN and "ArchiveStatus" not in answer:
        return Thawing(Thaw.READABLE, storage_class)
    said = answer.get("Restore", "")
    if 'ongoing-request="true"' in said:
        return Thawing(Thaw.UNDER_WAY, storage_class)
    return Thawing(Thaw.READABLE if 'ongoing-request="false"' in said else Thaw.FROZEN, storage_class)


def thaw(store: "S3Store", key: str, storage_class: str, days: int, tier: str) -> None:
    wanted: dict[str, Any] = {"GlacierJobParameters": {"Tier": tier}}
    if storage_class != _TIERING:
        wanted["Days"] = days
    try:
        store.retried(key, store.client.restore_object, Key=key, RestoreRequest=wanted)
    except (RequestRefused, RemoteUnavailable) as error:
        cause = error.__cause__
        code = cause.response.get("Error", {}).get("Code") if isinstance(cause, ClientError) else None
        if code != "RestoreAlreadyInProgress":
            raise
