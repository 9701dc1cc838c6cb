"""A boto3 client set up for tierd: our own retries and checksums, no second pass over payloads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import boto3
import botocore.exceptions
from botocore.config import Config

from tierd.base.errors import Usage
from tierd.config.model import Remote
from tierd.config.s3 import NONE
from tierd.remote.s3_asked import Asked
from tierd.remote.s3_connections import use_ours

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_CONNECT_TIMEOUT_S = 5.0
_DEFAULT_REGION = "us-east-1"
_SPARE_CONNECTIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """How to reach a bucket; what is None comes from the usual AWS places (environment, profile, instance)."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    profile: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    ca_bundle: Path | None = None
    timeout_ms: int = 30_000
    requester_pays: bool = False
    proxy: str | None = None
    """`none`: no proxy, whatever the environment says."""
    sse: str = NONE
    kms_key_id: str | None = None
    bucket_key: bool = True
    customer_key_file: Path | None = None
    classes: Mapping[str, str] = field(default_factory=dict)
    """Storage class by kind of object: log, indexes, manifest, documents."""
    connections: int = 32
    """Kept open at most; more requests than that at a time open and close their own."""

    @classmethod
    def of(cls, remote: Remote) -> "S3Options":
        """The `[remote]` section's."""
        s3 = remote.s3
        return cls(
            endpoint=s3.endpoint,
            region=s3.region,
            path_style=s3.use_path_style,
            profile=s3.profile,
            access_key_id=s3.access_key_id,
            secret_access_key=s3.secret_access_key.get_secret_value() if s3.secret_access_key else None,
            session_token=s3.session_token.get_secret_value() if s3.session_token else None,
            ca_bundle=s3.ca_bundle,
            requester_pays=s3.requester_pays,
            proxy=s3.proxy,
            sse=s3.sse.mode,
            kms_key_id=s3.sse.kms_key_id,
            bucket_key=s3.sse.bucket_key,
            customer_key_file=s3.sse.customer_key_file,
            classes={kind: name for kind, name in s3.storage_class if name is not None},
            timeout_ms=remote.request_timeout_ms,
            connections=2 * remote.copy_threads + remote.read_threads + _SPARE_CONNECTIONS,
        )


def make_client(options: S3Options) -> "S3Client":
    """Raises Usage when profile, endpoint or the SSE-C key make no sense. Asks nothing of the bucket."""
    asked = Asked(options)
    timeout_s = options.timeout_ms / 1000
    config = Config(
        signature_version="s3v4",
        connect_timeout=min(timeout_s, _CONNECT_TIMEOUT_S),
        read_timeout=timeout_s,
        max_pool_connections=options.connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Our own CRC-32C is sent and compared; botocore's costs a pass more and breaks ranged reads of some servers.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
        proxies=_proxies(options.proxy),
        s3={"addressing_style": _style(options), "payload_signing_enabled": False},
    )
    try:
        session = boto3.session.Session(
            aws_access_key_id=options.access_key_id,
            aws_secret_access_key=options.secret_access_key,
            aws_session_token=options.session_token,
            profile_name=options.profile,
            region_name=options.region,
        )
        client: S3Client = session.client(
            "s3",
            endpoint_url=options.endpoint,
            region_name=session.region_name or _DEFAULT_REGION,
            verify=None if options.ca_bundle is None else str(options.ca_bundle),
            config=config,
        )
    except (botocore.exceptions.BotoCoreError, ValueError) as error:
        raise Usage(f"remote.s3: {error}") from error
    use_ours(client)
    client.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
    client.meta.events.register("provide-client-params.s3", asked)
    return client


def _style(options: S3Options) -> Literal["auto", "virtual", "path"]:
    """botocore's own choice puts the bucket into the path of any endpoint that is not Amazon's."""
    if options.path_style:
        return "path"
    return "auto" if options.endpoint is None else "virtual"


def _proxies(proxy: str | None) -> dict[str, str] | None:
    """None: the environment says; {}: none at all."""
    if proxy is None:
        return None
    return {} if proxy == "none" else {"http": proxy, "https": proxy}


def _ask_for_checksum(params: dict[str, Any], **_: object) -> None:
    """Have the server send the stored checksum without botocore acting on it; `S3Store` compares it itself."""
    params["headers"]["x-amz-checksum-mode"] = "ENABLED"


def http_headers(answer: Mapping[str, Any]) -> Mapping[str, str]:
    """Headers of an answer or of a ClientError's response, names in lower case; empty when there are none."""
    headers: Mapping[str, str] = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return headers
