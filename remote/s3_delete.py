"""DeleteObjects in batches, with an answer for every key."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tierd.remote.errors import AccessRefused, NotFound, RemoteUnavailable, RequestRefused
from tierd.remote.retry import Retrier
from tierd.remote.s3_errors import is_transient
from tierd.remote.store import DeleteOutcome

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store

_BATCH = 1000
_NO_BATCHES = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})


def delete(store: "S3Store", retrier: Retrier, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
    """Outcomes in the order of *keys*. Raises RemoteUnavailable when some key failed in a way that may pass."""
    refused: dict[str, str] = {}
    for start in range(0, len(keys), _BATCH):
        refused |= _batch(store, retrier, keys[start : start + _BATCH])
    return tuple(DeleteOutcome(key, refused.get(key)) for key in keys)


def _batch(store: "S3Store", retrier: Retrier, keys: Sequence[str]) -> dict[str, str]:
    """Key -> why it stays, for those that do."""
    try:
        return retrier.run(lambda failures: _send(store, keys))
    except RequestRefused as error:
        if error.code not in _NO_BATCHES:
            raise
    return {key: why for key in keys if (why := _one(store, key)) is not None}


def _send(store: "S3Store", keys: Sequence[str]) -> dict[str, str]:
    objects = [{"Key": key} for key in keys]
    answer = store.call(keys[0], store.client.delete_objects, Delete={"Objects": objects, "Quiet": True})
    refused = {}
    for error in answer.get("Errors", ()):
        code, text = error.get("Code", "?"), f"{error.get('Code', '?')}: {error.get('Message', '')}"
        if is_transient(code):
            raise RemoteUnavailable(f"{error['Key']}: {text}")
        if code != "NoSuchKey":
            refused[error["Key"]] = text
    return refused


def _one(store: "S3Store", key: str) -> str | None:
    """For servers without DeleteObjects."""
    try:
        store.retried(key, store.client.delete_object, Key=key)
    except NotFound:
        return None
    except (AccessRefused, RequestRefused) as error:
        return str(error)
    return None
