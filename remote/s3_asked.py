"""What goes with every request beside what the caller says: storage class, encryption at rest, who pays.

Put in at one place, by what an operation can take: no request (part, HEAD, probe, listing) can be without it.
"""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tierd.base.errors import Usage
from tierd.config.s3 import CUSTOMER, KMS, NONE
from tierd.remote.keys import ObjectKind

if TYPE_CHECKING:
    from tierd.remote.s3_client import S3Options

_KEY_BYTES = 32
_KINDS = {ObjectKind.LOG: "log", ObjectKind.INDEXES: "indexes", ObjectKind.MANIFEST: "manifest"}


class _Shape(Protocol):
    members: Mapping[str, Any]


class _Operation(Protocol):
    name: str
    input_shape: _Shape


class Asked:
    """A handler of botocore's `provide-client-params`. Any thread. Raises Usage for a key that is none."""

    def __init__(self, options: "S3Options") -> None:
        self._always = {**_encryption(options), **({"RequestPayer": "requester"} if options.requester_pays else {})}
        self._classes = dict(options.classes)
        self._taken: dict[str, Mapping[str, Any]] = {}
        """By operation, what of it that one can take."""

    def __call__(self, params: dict[str, Any], model: _Operation, **_: object) -> None:
        """Put into *params* what they lack."""
        members = model.input_shape.members
        more = self._taken.get(model.name)
        if more is None:
            more = self._taken[model.name] = {name: what for name, what in self._always.items() if name in members}
        for name, what in more.items():
            params.setdefault(name, what)
        if self._classes and "StorageClass" in members and (chosen := self._classes.get(kind_of(params["Key"]))):
            params.setdefault("StorageClass", chosen)


def kind_of(key: str) -> str:
    """Of the object, as storage classes are set: log, indexes, manifest, documents."""
    return next((kind for suffix, kind in _KINDS.items() if key.endswith(suffix)), "documents")


def _encryption(options: "S3Options") -> dict[str, Any]:
    """Members of requests; each of them goes with those that know it."""
    if options.sse == NONE:
        return {}
    if options.sse == CUSTOMER:
        if options.customer_key_file is None:
            raise Usage("remote.s3.sse.customer.key.file: SSE-C needs a key")
        key = read_customer_key(options.customer_key_file)
        digest = hashlib.md5(key, usedforsecurity=False).digest()
        return {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": _text(key), "SSECustomerKeyMD5": _text(digest)}
    asked: dict[str, Any] = {"ServerSideEncryption": options.sse}
    if options.kms_key_id is not None:
        asked["SSEKMSKeyId"] = options.kms_key_id
    if options.sse == KMS[0]:
        asked["BucketKeyEnabled"] = options.bucket_key
    return asked


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def read_customer_key(path: Path) -> bytes:
    """32 bytes, as they are or as base64. Raises Usage, without a word of what is in the file."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise Usage(f"remote.s3.sse.customer.key.file: {path}: {error.strerror}") from error
    if len(raw) != _KEY_BYTES:
        try:
            raw = base64.b64decode(raw.strip(), validate=True)
        except binascii.Error:
            raw = b""
    if len(raw) != _KEY_BYTES:
        raise Usage(f"remote.s3.sse.customer.key.file: {path} holds neither 32 bytes nor the base64 of 32")
    return raw
