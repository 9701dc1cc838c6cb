"""An archive, too, warns of lifecycle rules that take away what it serves."""

import logging
from pathlib import Path

import pytest

from tierd.base.clock import SystemClock
from tierd.config.model import S3, Remote
from tierd.remote.open import open_store
from tierd.remote.readonly import ReadOnlyStore
from tierd.remote.s3 import S3Store
from tierd.remote.watched import WatchedStore
from tierd.storage.disk import PosixDisk
from tierd.tiering.archive.keeper import Keeper
from tierd.tiering.archive.survey import Survey
from tierd.tiering.catalog import Catalog


def test_a_rule_that_deletes_is_told_and_one_that_only_an_owner_lacks_is_not(
    tmp_path: Path, moto_endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    s3 = S3(endpoint=moto_endpoint, region="us-east-1", access_key_id="a", secret_access_key="s")
    bucket = open_store("s3://trapped/p/", Remote(url="s3://trapped/p/", s3=s3), disk=PosixDisk(), clock=SystemClock())
    plain = bucket.store
    assert isinstance(plain, S3Store)
    plain.client.create_bucket(Bucket="trapped")
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "p/"}, "Expiration": {"Days": 9}}
    plain.client.put_bucket_lifecycle_configuration(Bucket="trapped", LifecycleConfiguration={"Rules": [rule]})  # type: ignore[list-item]
    catalog = Catalog.open(tmp_path / "catalog.sqlite")
    store = WatchedStore(ReadOnlyStore(plain), SystemClock())
    survey = Survey(type(bucket)(store, bucket.keys, bucket.url), catalog)
    keeper = Keeper(survey, 3_600_000, forget=lambda _: None, rearranged=lambda _: None)

    with caplog.at_level(logging.WARNING, "tierd"):
        keeper.tell_traps()
    catalog.close()
    plain.close()
    (line,) = [record.getMessage() for record in caplog.records if record.name.startswith("tierd")]
    assert line.startswith("bucket: lifecycle rule 'old' (prefix 'p/') deletes objects of this archive")
