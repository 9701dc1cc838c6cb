"""Credentials of every origin, refreshed while requests go on: beside services of the loopback that give them out."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit import cloud
from kit.clock import FakeClock
from kit.cloud import BODY, Cloud
from tierd.base.clock import Clock
from tierd.remote.errors import AccessRefused
from tierd.remote.renewal import AGAIN_MS
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Options, S3Store

QUICK = RetryPolicy(tries=2, first_ms=1, longest_ms=2)


@pytest.fixture
def giver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Cloud]:
    """Nothing of this machine's own AWS settings is seen."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with cloud.running() as made:
        yield made


@pytest.fixture
def instance(giver: Cloud, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", giver.url)
    return giver


def store_at(giver: Cloud, clock: Clock, profile: str | None = None) -> S3Store:
    options = S3Options(endpoint=giver.url, region="us-east-1", path_style=True, profile=profile, timeout_ms=10_000)
    return S3Store("b", options, clock=clock, policy=QUICK)


def test_an_instance_s_that_run_out(instance: Cloud) -> None:
    """It gives out the same ones up to minutes before their end; what counts is when the bucket takes them no more."""
    store = store_at(instance, FakeClock())
    assert [store.get("k") for _ in range(4)] == [BODY] * 4
    assert len(set(instance.used)) == 1
    instance.revoke()
    assert [store.get("k") for _ in range(4)] == [BODY] * 4
    assert len(set(instance.used)) == 2
    assert instance.refused == 1
    store.close()


def test_an_instance_that_replaces_them_before_their_time(instance: Cloud) -> None:
    clock = FakeClock()
    instance.ttl_s = 6 * 3600
    store = store_at(instance, clock)
    store.get("k")
    instance.revoke()
    assert store.get("k") == BODY
    assert instance.refused == 1
    instance.revoke()
    with pytest.raises(AccessRefused, match="ExpiredToken"):
        store.get("k")
    clock.advance(AGAIN_MS)
    assert store.get("k") == BODY
    store.close()


def test_an_instance_whose_service_is_away_at_the_start(instance: Cloud) -> None:
    clock = FakeClock()
    instance.away = True
    store = store_at(instance, clock)
    with pytest.raises(AccessRefused, match="credentials"):
        store.get("k")
    instance.away = False
    with pytest.raises(AccessRefused, match="credentials"):
        store.get("k")
    clock.advance(AGAIN_MS)
    assert store.get("k") == BODY
    store.close()


def test_a_web_identity_whose_token_is_replaced(giver: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(giver.token)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", giver.url)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    store = store_at(giver, FakeClock())
    assert store.get("k") == BODY
    giver.token = "second"
    file.write_text("second")
    assert store.get("k") == BODY
    assert len(set(giver.used)) == 2
    assert giver.refused == 0
    store.close()


def test_a_container_s(giver: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(giver.token)
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{giver.url}/container")
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(file))
    store = store_at(giver, FakeClock())
    assert [store.get("k") for _ in range(3)] == [BODY] * 3
    assert len(set(giver.used)) == 3
    store.close()


def test_environment_and_profile(giver: Cloud, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    one = giver.give()
    lines = [
        "[archive]",
        f"aws_access_key_id = {one['AccessKeyId']}",
        f"aws_secret_access_key = {one['SecretAccessKey']}",
        f"aws_session_token = {one['Token']}",
    ]
    (tmp_path / "credentials").write_text("\n".join(lines))
    store = store_at(giver, FakeClock(), profile="archive")
    assert store.get("k") == BODY
    store.close()
    two = giver.give()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", two["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", two["SecretAccessKey"])
    monkeypatch.setenv("AWS_SESSION_TOKEN", two["Token"])
    store = store_at(giver, FakeClock())
    assert store.get("k") == BODY
    assert giver.used == [one["AccessKeyId"], two["AccessKeyId"]]
    store.close()
