"""What botocore raises, mapped once to what tierd does about it."""

import botocore.exceptions as boto
import urllib3.exceptions

from tierd.base.errors import TierdError
from tierd.remote.errors import (
    AccessRefused,
    BucketMissing,
    Damaged,
    NotFound,
    ObjectArchived,
    PreconditionFailed,
    RemoteUnavailable,
    RequestRefused,
    Throttled,
)

MAPPED = (boto.BotoCoreError, boto.ClientError, urllib3.exceptions.HTTPError, OSError)
"""Every exception that a call or the reading of a body can raise."""

_NO_ACCESS = frozenset(
    {
        "AccessDenied",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidToken",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
    }
)
_BARE_400 = "400"
"""A refused HEAD has no body to say why: S3 answers it so when credentials have expired."""
_THROTTLED = frozenset({"SlowDown", "ServiceUnavailable", "Throttling", "ThrottlingException", "TooManyRequests"})
_DAMAGED = frozenset(
    {"BadDigest", "IncompleteBody", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"}
)
_LATER = frozenset({"RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "InternalError"})
_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.NoAuthTokenError,
    boto.TokenRetrievalError,
    boto.UnauthorizedSSOTokenError,
)


def mapped(key: str, error: Exception) -> TierdError:
    """The error to raise instead of *error* (one of MAPPED)."""
    if isinstance(error, boto.ClientError):
        return _answer(key, error)
    if isinstance(error, _NO_CREDENTIALS):
        return AccessRefused(f"{key}: {error}")
    if isinstance(error, boto.ParamValidationError):
        return RequestRefused(key, "ParamValidation", str(error))
    return RemoteUnavailable(f"{key}: {error}")


def is_transient(code: str) -> bool:
    """True when a key's error inside a DeleteObjects answer is worth another try."""
    return code in _THROTTLED or code in _LATER


def _answer(key: str, error: boto.ClientError) -> TierdError:
    facts = error.response.get("Error", {})
    code = facts.get("Code", "?")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    message = facts.get("Message") or f"HTTP {status}"
    return _by_code(key, code, message) or _by_status(key, code, message, status)


def _by_code(key: str, code: str, message: str) -> TierdError | None:
    if code == "NoSuchBucket":
        return BucketMissing(f"{key}: the bucket does not exist: create it, or correct the URL")
    if code == "InvalidObjectState":
        return ObjectArchived(key, code, f"{message}; `tierd restore --thaw` has it thawed")
    if code in ("PreconditionFailed", "412"):
        return PreconditionFailed(key, f"the condition does not hold: {message}")
    text = f"{key}: {code}: {message}"
    if code in _NO_ACCESS:
        refused = AccessRefused(f"{text}; check credentials, permissions and the clock")
        refused.denied = code == "AccessDenied"
        return refused
    if code.startswith("KMS."):
        return AccessRefused(f"{text}; check the KMS key of the bucket and who may use it")
    if code in _THROTTLED:
        return Throttled(text)
    if code in _DAMAGED:
        return Damaged(text)
    return RemoteUnavailable(text) if code in _LATER else None


def _by_status(key: str, code: str, message: str, status: int) -> TierdError:
    text = f"{key}: {code}: {message}"
    if status == 404:
        return NotFound(key)
    if status == 412:
        return PreconditionFailed(key, f"the condition does not hold: {message}")
    if status in (401, 403) or code == _BARE_400:
        return AccessRefused(f"{text}; check credentials and permissions")
    if status in (429, 503):
        return Throttled(text)
    if status >= 500 and status != 501:
        return RemoteUnavailable(text)
    return RequestRefused(key, code, message)
