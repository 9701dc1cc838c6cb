"""Settings of how an S3 bucket is reached, and of how objects lie in it."""

from pathlib import Path
from typing import Annotated

from pydantic import SecretStr

from tierd.config.kinds import Choice, Switch, Text
from tierd.config.places import Place, Secret
from tierd.config.section import Section, Setting

NONE, CUSTOMER = "none", "customer"
KMS = ("aws:kms", "aws:kms:dsse")
FROZEN = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes of objects that have to be restored before they can be read."""


class Sse(Section):
    """Encryption at rest by the server; tierd's own is `remote.encryption`."""

    mode: Annotated[
        str,
        Setting(
            "remote.s3.sse.mode",
            Choice((NONE, "AES256", *KMS, CUSTOMER)),
            "Encryption at rest that the server is asked for with each object: none (the bucket's default), AES256 "
            "(SSE-S3), aws:kms or aws:kms:dsse (SSE-KMS), customer (SSE-C: with our key, which every read needs).",
        ),
    ] = NONE
    kms_key_id: Annotated[
        str | None,
        Setting("remote.s3.sse.kms.key.id", Text(), "Id or ARN of the KMS key; not set: the account's own for S3."),
    ] = None
    bucket_key: Annotated[
        bool,
        Setting(
            "remote.s3.sse.kms.bucket.key",
            Switch(),
            "With SSE-KMS: an S3 Bucket Key, which saves most of the requests to KMS.",
        ),
    ] = True
    customer_key_file: Annotated[
        Path | None,
        Setting(
            "remote.s3.sse.customer.key.file",
            Place(),
            "The key of SSE-C: a file of 32 bytes, or of their base64. Without it nothing in the bucket can be read.",
        ),
    ] = None


def _class(kind: str, what: str) -> Setting:
    return Setting(f"remote.s3.storage.class.{kind}", Text(), f"Storage class of {what}; not set: the bucket's own.")


class StorageClass(Section):
    """By kind of object."""

    log: Annotated[str | None, _class("log", "the `.log` objects, which are nearly all bytes")] = None
    indexes: Annotated[str | None, _class("indexes", "the `.indexes` objects")] = None
    manifest: Annotated[str | None, _class("manifest", "the manifests")] = None
    documents: Annotated[
        str | None, _class("documents", "what lies under `tierd/`: small, and written again and again")
    ] = None


class S3(Section):
    """How to reach the bucket; whatever is not set comes from the usual AWS places (environment, profile, instance)."""

    endpoint: Annotated[
        str | None, Setting("remote.s3.endpoint", Text(), "URL of an S3-compatible server; not set: AWS.")
    ] = None
    region: Annotated[str | None, Setting("remote.s3.region", Text(), "Region that requests are signed for.")] = None
    path_style: Annotated[
        bool | None,
        Setting(
            "remote.s3.path.style",
            Switch(),
            "Put the bucket in the path instead of the host name; not set: on with an endpoint, off without.",
        ),
    ] = None
    profile: Annotated[str | None, Setting("remote.s3.profile", Text(), "Profile in the AWS configuration files.")] = (
        None
    )
    access_key_id: Annotated[str | None, Setting("remote.s3.access.key.id", Text(), "Access key.")] = None
    secret_access_key: Annotated[
        SecretStr | None,
        Setting(
            "remote.s3.secret.access.key",
            Secret(),
            "Its secret. Only in tierd.toml or the environment, never with --set.",
        ),
    ] = None
    session_token: Annotated[
        SecretStr | None,
        Setting(
            "remote.s3.session.token",
            Secret(),
            "Session token. Only in tierd.toml or the environment, never with --set.",
        ),
    ] = None
    ca_bundle: Annotated[Path | None, Setting("remote.s3.ca.bundle", Place(), "Certificates to trust, in PEM.")] = None

    requester_pays: Annotated[
        bool,
        Setting(
            "remote.s3.requester.pays",
            Switch(),
            "Say with every request that we pay for it, as a bucket of somebody else may demand.",
        ),
    ] = False
    proxy: Annotated[
        str | None,
        Setting(
            "remote.s3.proxy",
            Text(),
            "URL of a proxy for requests to the bucket; not set: HTTPS_PROXY, HTTP_PROXY and NO_PROXY count. none: no "
            "proxy, whatever they say.",
        ),
    ] = None
    sse: Sse = Sse()
    storage_class: StorageClass = StorageClass()

    @property
    def use_path_style(self) -> bool:
        return self.endpoint is not None if self.path_style is None else self.path_style
