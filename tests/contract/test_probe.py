"""What the probe finds on each store, and on servers that lack something."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from kit import weed
from tierd.base.clock import SystemClock
from tierd.remote import crc
from tierd.remote.errors import AccessRefused, RemoteUnavailable
from tierd.remote.probe import ProbeReport, probe
from tierd.remote.s3 import S3Options, S3Store
from tierd.remote.store import ObjectStore


def test_all_that_tierd_needs_is_there(store: ObjectStore, request: pytest.FixtureRequest) -> None:
    report = probe(store, "p/")
    missing = {field.name for field in fields(report) if not getattr(report, field.name)}
    assert missing == ({"checksum_stored", "checksum_verified"} if "moto" in request.node.name else set())
    assert report.one_writer
    assert report.usable
    assert len([what for what, there, _ in report.table() if not there]) == len(missing)
    assert list(store.list("p/")) == []
    assert list(store.list_uploads("p/")) == []


class Older(S3Store):
    """A server without conditional writes, ranges under a condition, or checksums of parts."""

    lacks: tuple[str, ...] = ()

    def call(self, key: str, method: Callable[..., Any], **params: Any) -> Any:
        if "parts" in self.lacks and ("ChecksumAlgorithm" in params or "ChecksumType" in params):
            raise RemoteUnavailable("500")
        if "conditions" in self.lacks:
            params = {name: value for name, value in params.items() if name not in ("IfMatch", "IfNoneMatch")}
        return super().call(key, method, **params)


def older(endpoint: str, *lacks: str) -> Older:
    options = S3Options(
        endpoint=endpoint, region="us-east-1", path_style=True, access_key_id="a", secret_access_key="s", timeout_ms=200
    )
    made = Older("older", options, clock=SystemClock())
    made.lacks = lacks
    made.client.create_bucket(Bucket="older")
    return made


@pytest.mark.parametrize("lacks", ["conditions", "parts"])
def test_what_a_server_lacks_is_found_and_worked_around(moto_endpoint: str, lacks: str) -> None:
    store = older(moto_endpoint, lacks)
    report = probe(store, "p/")
    assert report.one_writer == (lacks != "conditions")
    assert report.multipart
    assert report.part_checksums == store.features.part_checksums == (lacks != "parts")
    upload = store.begin_upload("k")
    upload.put_part(1, b"x", crc32c=crc.crc32c(b"x"))
    assert upload.complete().size == 1
    store.close()


@pytest.mark.s3
def test_wrong_credentials(weed_server: weed.Weed) -> None:
    name = weed_server.bucket("locked-bucket")
    options = S3Options(
        endpoint=weed_server.endpoint,
        region="us-east-1",
        path_style=True,
        access_key_id=weed.ACCESS_KEY,
        secret_access_key="wrong",
    )
    store = S3Store(name, options, clock=SystemClock())
    with pytest.raises(AccessRefused, match="check credentials"):
        probe(store, "p/")
    store.close()


def test_the_table_covers_every_finding() -> None:
    report = ProbeReport(**dict.fromkeys([field.name for field in fields(ProbeReport)], False))
    assert len(report.table()) == len(fields(ProbeReport))
    assert not report.usable
