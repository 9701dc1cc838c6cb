"""A bucket with versions, a lifecycle rule and data in Glacier, beside a whole tierd; moto has all three."""

from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from kit import tiers
from kit.answers import Asker
from kit.daemon import running

pytestmark = pytest.mark.e2e

KEY = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s"}
STORAGE_ERROR = 56
MIB = 1024 * 1024


def made(endpoint: str, name: str) -> Any:
    """A versioned bucket whose objects go after a year, by somebody's rule."""
    client: Any = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="s",
        config=Config(s3={"addressing_style": "path"}),
    )
    client.create_bucket(Bucket=name)
    client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 365}}
    client.put_bucket_lifecycle_configuration(Bucket=name, LifecycleConfiguration={"Rules": [rule]})
    return client


def test_one_partition_is_frozen_and_thaws_and_the_bucket_s_traps_are_told(tmp_path: Path, moto_endpoint: str) -> None:
    client = made(moto_endpoint, "frozen-e2e")
    sets = (
        *("--set", f"remote.s3.endpoint={moto_endpoint}"),
        *("--set", "remote.s3.region=us-east-1"),
        *("--set", "remote.s3.storage.class.log=DEEP_ARCHIVE"),
    )
    with running(tmp_path / "data", "s3://frozen-e2e/tier/", *sets, env=KEY) as tierd:
        sent = tiers.fill(tierd, "cold", 1)
        tiers.copy(tierd, roll=True)
        tiers.evict(tierd)
        warm = tiers.fill(tierd, "warm", 1)
        with Asker(tierd.address) as asker:
            assert tiers.until("the reader is told", lambda: asker.fetch("cold", 0, MIB).error) == STORAGE_ERROR
        tiers.read_back(tierd, "warm", warm)
        status = tierd.status()
        (problem,) = [one for one in status["problems"] if one["where"] == "cold-0"]
        assert problem["kind"] == "unreadable"
        assert "restore --thaw" in problem["detail"]
        notes = tiers.until("the bucket was looked at", lambda: (tierd.status()["bucket"] or {}).get("notes"))
        assert any("lifecycle rule 'old'" in note and "offsets will be lost" in note for note in notes)
        assert any("versioning is enabled" in note for note in notes)
        assert "bucket: lifecycle rule 'old'" in tierd.verb("status").stdout

        (frozen,) = [one["Key"] for one in _contents(client) if one["StorageClass"] == "DEEP_ARCHIVE"]
        client.restore_object(Bucket="frozen-e2e", Key=frozen, RestoreRequest={"Days": 1})
        tiers.read_back(tierd, "cold", sent)
        assert [one for one in tierd.status()["problems"] if one["where"] == "cold-0"] == []
        assert tierd.stop() == 0
    client.close()


def _contents(client: Any) -> list[Any]:
    found: list[Any] = client.list_objects_v2(Bucket="frozen-e2e")["Contents"]
    return found
