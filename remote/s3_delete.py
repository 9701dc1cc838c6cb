"""DeleteObjects in batches, with an answer for every key."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tierd.base.errors import TierdError
from tierd.remote.errors import AccessRefused, NotFound, RemoteUnavailable, RequestRefused
from tierd.remote.retry import Retrier
from tierd.remote.s3_errors import is_transient
from tierd.remote.store import DeleteOutcome

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store

_BATCH = 1000
_NO_BATCHES = frozenset({"NotImplemented", "MethodNotAllowed", "501", "405"})
_ASKED = 3
"""Of so many keys that a batch must not delete it is asked until when they are locked."""

Target = tuple[str, str | None]
"""A key, and the version that is meant; None: what is current, of which a versioned bucket keeps the version."""


def delete(store: "S3Store", retrier: Retrier, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
    """Outcomes in the order of *keys*. Raises RemoteUnavailable when some key failed in a way that may pass."""
    return delete_versions(store, retrier, [(key, None) for key in keys])


def delete_versions(store: "S3Store", retrier: Retrier, targets: Sequence[Target]) -> tuple[DeleteOutcome, ...]:
    """As `delete`, of versions: these are gone for good then."""
    outcomes: list[DeleteOutcome] = []
    for start in range(0, len(targets), _BATCH):
        batch = targets[start : start + _BATCH]
        refused = _batch(store, retrier, batch)
        until = {one: _locked_until(store, one) for one in list(refused)[:_ASKED]}
        outcomes += [DeleteOutcome(one[0], refused.get(one), until.get(one)) for one in batch]
    return tuple(outcomes)


def _batch(store: "S3Store", retrier: Retrier, targets: Sequence[Target]) -> dict[Target, str]:
    """What stays, and why."""
    try:
        return retrier.run(lambda failures: _send(store, targets))
    except AccessRefused as error:
        if not error.denied:
            raise
        return dict.fromkeys(targets, str(error))
    except RequestRefused as error:
        if error.code not in _NO_BATCHES:
            raise
    return {one: why for one in targets if (why := _one(store, one)) is not None}


def _send(store: "S3Store", targets: Sequence[Target]) -> dict[Target, str]:
    objects = [{"Key": key, **_version(version)} for key, version in targets]
    answer = store.call(targets[0][0], store.client.delete_objects, Delete={"Objects": objects, "Quiet": True})
    refused = {}
    for error in answer.get("Errors", ()):
        code, text = error.get("Code", "?"), f"{error.get('Code', '?')}: {error.get('Message', '')}"
        if is_transient(code):
            raise RemoteUnavailable(f"{error['Key']}: {text}")
        if code not in ("NoSuchKey", "NoSuchVersion"):
            refused[error["Key"], error.get("VersionId")] = text
    return _as_asked(targets, refused)


def _as_asked(targets: Sequence[Target], refused: Mapping[Target, str]) -> dict[Target, str]:
    """Some servers name a version where none was asked for, or none where one was."""
    by_key = {key: why for (key, _), why in refused.items()}
    single = len({key for key, _ in targets}) == len(targets)
    found = {one: refused.get(one, by_key.get(one[0]) if single else None) for one in targets}
    return {one: why for one, why in found.items() if why is not None}


def _one(store: "S3Store", target: Target) -> str | None:
    """For servers without DeleteObjects."""
    key, version = target
    try:
        store.retried(key, store.client.delete_object, Key=key, **_version(version))
    except NotFound:
        return None
    except (AccessRefused, RequestRefused) as error:
        return str(error)
    return None


def _locked_until(store: "S3Store", target: Target) -> int | None:
    """In ms; None when nothing locks it, or nobody says so."""
    key, version = target
    try:
        answer = store.retried(key, store.client.head_object, Key=key, **_version(version))
    except TierdError:
        return None  # the refusal itself is what counts
    until: datetime | None = answer.get("ObjectLockRetainUntilDate")
    return None if until is None else int(until.timestamp() * 1000)


def _version(version: str | None) -> dict[str, Any]:
    return {} if version is None else {"VersionId": version}
