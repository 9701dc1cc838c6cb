"""Asks S3 what is set on the bucket; what a server does not have, or does not tell us, is left out."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tierd.remote.errors import AccessRefused, NotFound, RemoteUnavailable, RequestRefused
from tierd.remote.facts import BucketFacts, Rule

if TYPE_CHECKING:
    from tierd.remote.s3 import S3Store

_NONE_SET = frozenset({"NoSuchLifecycleConfiguration", "ObjectLockConfigurationNotFoundError"})


def facts(store: "S3Store") -> BucketFacts:
    """Raises AccessRefused when we have no good credentials."""
    unread: list[str] = []
    client = store.client
    versioning = _ask(store, client.get_bucket_versioning, "s3:GetBucketVersioning", unread)
    lock = _ask(store, client.get_object_lock_configuration, "s3:GetBucketObjectLockConfiguration", unread)
    rules = _ask(store, client.get_bucket_lifecycle_configuration, "s3:GetLifecycleConfiguration", unread)
    return BucketFacts(
        versioning=None if versioning is None else versioning.get("Status", ""),
        lock=None if lock is None else _retention(lock),
        rules=None if rules is None else tuple(map(_rule, _enabled(rules))),
        unread=tuple(unread),
    )


def _ask(store: "S3Store", method: Any, permission: str, unread: list[str]) -> Mapping[str, Any] | None:
    """The answer; {} when nothing is set; None when it is not known."""
    try:
        answer: Mapping[str, Any] = store.retried("the bucket", method)
    except AccessRefused as error:
        if not error.denied:
            raise
        unread.append(permission)
        return None
    except RemoteUnavailable:
        return None  # some servers answer 500 to what they do not know
    except (RequestRefused, NotFound) as error:
        cause = error.__cause__
        code = cause.response.get("Error", {}).get("Code") if isinstance(cause, ClientError) else None
        return {} if code in _NONE_SET else None
    return answer


def _retention(answer: Mapping[str, Any]) -> str:
    rule = answer.get("ObjectLockConfiguration", {}).get("Rule", {}).get("DefaultRetention")
    if not rule:
        return ""
    span = f"{rule['Days']} days" if "Days" in rule else f"{rule.get('Years', '?')} years"
    return f"each version is kept for {span} ({rule.get('Mode', '?').lower()})"


def _enabled(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [rule for rule in answer.get("Rules", ()) if rule.get("Status") == "Enabled"]


def _rule(rule: Mapping[str, Any]) -> Rule:
    chosen = rule.get("Filter") or {}
    both = chosen.get("And") or {}
    transitions = rule.get("Transitions") or ([rule["Transition"]] if rule.get("Transition") else [])
    return Rule(
        name=rule.get("ID") or "without a name",
        prefix=rule.get("Prefix") or chosen.get("Prefix") or both.get("Prefix") or "",
        tagged=bool(chosen.get("Tag") or both.get("Tags")),
        expires=bool({"Days", "Date"} & set(rule.get("Expiration") or {})),
        moves_to=tuple(one["StorageClass"] for one in transitions),
        old_versions_go="NoncurrentVersionExpiration" in rule,
        aborts_uploads="AbortIncompleteMultipartUpload" in rule,
    )
