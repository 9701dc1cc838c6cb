"""Asks a bucket what it can do: conditional writes, CRC-32C, ranges, multipart. Run at each start, leaves nothing.

Servers differ (LAYOUT.md); what is missing is printed, worked around where that is safe, and refused where it is not.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace

from tierd.base.clock import SystemClock
from tierd.base.errors import RemoteUnavailable, TierdError
from tierd.remote import crc
from tierd.remote.errors import AccessRefused, Damaged, NotFound, PreconditionFailed, RequestRefused
from tierd.remote.keys import PROBE
from tierd.remote.retry import Retrier, RetryPolicy
from tierd.remote.s3 import S3Features, S3Store
from tierd.remote.store import ObjectStore

_BODY = b"tierd asks what this bucket can do\n"
_OTHER = b"this must not get there\n"
"""Of PUTs whose condition does not hold: a retry that met its own bytes would count as done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What the bucket can do."""

    create_if_absent: bool
    """PUT with If-None-Match: * is refused when the key is taken."""
    compare_and_swap: bool
    """PUT with If-Match is refused when the ETag is another."""
    checksum_stored: bool
    """CRC-32C of an object is kept and told."""
    checksum_verified: bool
    """An object whose bytes do not have the CRC-32C sent with it is refused."""
    ranges: bool
    range_if_match: bool
    """A range of an object that changed is refused."""
    multipart: bool
    part_checksums: bool
    """CRC-32C of parts and of the whole multipart object."""
    deletes: bool = True
    """What was written may be deleted."""

    @property
    def one_writer(self) -> bool:
        """True when claims hold: without conditional writes two owners cannot be told apart."""
        return self.create_if_absent and self.compare_and_swap

    @property
    def usable(self) -> bool:
        """False: tierd cannot read from this bucket."""
        return self.ranges

    def table(self) -> list[tuple[str, bool, str]]:
        """(what, there?, what it means when missing), for printing."""
        return [
            ("create if absent", self.create_if_absent, "two owners of one prefix are not noticed"),
            ("compare and swap", self.compare_and_swap, "two owners may overwrite each other's heads"),
            ("CRC-32C stored", self.checksum_stored, "checks of remote objects read them whole"),
            ("CRC-32C verified", self.checksum_verified, "damage on the way in is noticed only when read"),
            ("ranges", self.ranges, "tierd cannot read from this bucket"),
            ("ranges with If-Match", self.range_if_match, "a replaced object is noticed only by its batches' CRCs"),
            ("multipart", self.multipart, "segments above the part size cannot be copied"),
            ("deletes", self.deletes, "what retention releases stays, and is tried again once a day"),
            ("CRC-32C of parts", self.part_checksums, "parts are guarded by MD5 instead, at more CPU"),
        ]


def probe(store: ObjectStore, folder: str) -> ProbeReport:
    """Try each on keys of its own below *folder* (with its "/"); an S3Store is told what its server lacks.

    Raises RemoteUnavailable (or a subclass) when the bucket does not answer or refuses access.
    """
    key = f"{folder}{PROBE}{secrets.token_hex(8)}"
    try:
        report = _run(store, key)
    finally:
        outcomes = store.delete([key, key + "-parts", key + "-bad"])
    report = replace(report, deletes=all(one.refused is None for one in outcomes))
    if isinstance(store, S3Store):
        store.features = S3Features(part_checksums=report.part_checksums)
    return report


def _run(store: ObjectStore, key: str) -> ProbeReport:
    checksum = crc.crc32c(_BODY)
    etag = store.put(key, _BODY, crc32c=checksum).etag
    other = crc.crc32c(_OTHER)
    return ProbeReport(
        create_if_absent=_refuses(lambda: store.put(key, _OTHER, crc32c=other, if_none_match=True)),
        compare_and_swap=_refuses(lambda: store.put(key, _OTHER, crc32c=other, if_match='"0"')),
        checksum_stored=store.head(key).crc32c == checksum,
        checksum_verified=_verifies(store, key + "-bad"),
        ranges=_ranges(store, key),
        range_if_match=_refuses(lambda: store.get(key, 0, 4, if_match='"0"')) and bool(etag),
        **_multipart(store, key + "-parts"),
    )


def _refuses(request: Callable[[], object]) -> bool:
    """True when the condition is seen to fail; a server that refuses conditions altogether has none."""
    try:
        request()
    except PreconditionFailed:
        return True
    except (RequestRefused, NotFound):
        return False
    return False


def _verifies(store: ObjectStore, key: str) -> bool:
    wrong = crc.crc32c(_BODY) ^ 1

    def send(failures: int) -> bool:
        try:
            if isinstance(store, S3Store):  # a single try: Damaged is worth more of them elsewhere
                store.call(key, store.client.put_object, Key=key, Body=_BODY, ChecksumCRC32C=crc.to_header(wrong))
            else:
                store.put(key, _BODY, crc32c=wrong)
        except (Damaged, RequestRefused):
            return True
        return False

    return Retrier(RetryPolicy(), SystemClock()).run(send)


def _ranges(store: ObjectStore, key: str) -> bool:
    try:
        return store.get(key, 6, 10) == _BODY[6:10]
    except RequestRefused:
        return False


def _multipart(store: ObjectStore, key: str) -> dict[str, bool]:
    """First with the checksums of parts, as an S3Store begins; then without."""
    if _upload(store, key, check=True):
        return {"multipart": True, "part_checksums": True}
    if not isinstance(store, S3Store):
        return {"multipart": False, "part_checksums": False}
    store.features = S3Features(part_checksums=False)
    return {"multipart": _upload(store, key, check=False), "part_checksums": False}


def _upload(store: ObjectStore, key: str, *, check: bool) -> bool:
    """True when one part became an object, with the right CRC of the whole if *check*."""
    checksum = crc.crc32c(_BODY)
    try:
        upload = store.begin_upload(key)
        try:
            upload.put_part(1, _BODY, crc32c=checksum)
            upload.complete()
        except TierdError:
            upload.abort()
            raise
        return store.head(key).crc32c == checksum or not check
    except AccessRefused:
        raise
    except (RequestRefused, NotFound, Damaged):
        return False
    except RemoteUnavailable:
        if check:
            return False  # some servers answer 500 to checksums that they do not know
        raise
