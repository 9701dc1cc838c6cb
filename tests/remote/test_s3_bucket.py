"""What is set on real buckets: lifecycle rules, versions, locks, denied deletes; and that tierd says so."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from kit import weed
from tierd.base.clock import SystemClock
from tierd.remote import crc
from tierd.remote.errors import AccessRefused
from tierd.remote.facts import BucketFacts, Rule, facts_of, warnings
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Store
from tierd.remote.s3_errors import mapped
from tierd.remote.versions import versioned
from tierd.remote.watched import WatchedStore

if TYPE_CHECKING:
    from kit.weed import Weed

_NUMBER = count(1)
QUICK = RetryPolicy(tries=3, first_ms=1, longest_ms=2)


def store_at(endpoint: str, *, lock: bool = False) -> S3Store:
    options = weed.options(endpoint)
    store = S3Store(f"set-{next(_NUMBER)}", options, clock=SystemClock(), policy=QUICK)
    store.client.create_bucket(Bucket=store.bucket, ObjectLockEnabledForBucket=lock)
    return store


@pytest.fixture
def moto(moto_endpoint: str) -> Iterator[S3Store]:
    store = store_at(moto_endpoint)
    yield store
    store.close()


@pytest.fixture(params=["moto", pytest.param("weed", marks=pytest.mark.s3)])
def either(request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """A versioned bucket."""
    if request.param == "moto":
        store = store_at(request.getfixturevalue("moto_endpoint"))
    else:
        server: Weed = request.getfixturevalue("weed_server")
        store = store_at(server.endpoint)
    store.client.put_bucket_versioning(Bucket=store.bucket, VersioningConfiguration={"Status": "Enabled"})
    yield store
    store.close()


def put(store: S3Store, key: str, body: bytes = b"x") -> None:
    store.put(key, body, crc32c=crc.crc32c(body))


def rules(store: S3Store, *made: dict[str, Any]) -> None:
    named = [{"ID": f"r{number}", "Status": "Enabled", **one} for number, one in enumerate(made)]
    wanted: Any = {"Rules": named}
    store.client.put_bucket_lifecycle_configuration(Bucket=store.bucket, LifecycleConfiguration=wanted)


def told(store: S3Store, prefix: str = "tier/") -> list[str]:
    facts = facts_of(WatchedStore(store, SystemClock()))
    assert facts is not None
    return warnings(facts, prefix)


def test_a_bucket_without_any_rule_lacks_one(moto: S3Store) -> None:
    facts = moto.facts()
    assert (facts.versioning, facts.lock, facts.rules, facts.unread) == ("", "", (), ())
    (line,) = told(moto)
    assert "AbortIncompleteMultipartUpload" in line


def test_rules_that_take_objects_away_are_named(moto: S3Store) -> None:
    rules(
        moto,
        {"Filter": {"Prefix": ""}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}},
        {"Filter": {"Prefix": "tier/logs"}, "Expiration": {"Days": 30}},
        {"Filter": {"Prefix": "ti"}, "Transitions": [{"Days": 1, "StorageClass": "DEEP_ARCHIVE"}]},
        {"Filter": {"Prefix": "tier/"}, "Transitions": [{"Days": 1, "StorageClass": "STANDARD_IA"}]},
        {"Filter": {"Prefix": "other/"}, "Expiration": {"Days": 1}},
        {"Filter": {"Prefix": ""}, "Status": "Disabled", "Expiration": {"Days": 1}},
        {"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 1}},
    )
    expires, frozen, moves = told(moto)
    assert "'r1' (prefix 'tier/logs') deletes objects" in expires
    assert "'r2' (prefix 'ti') moves objects" in frozen
    assert "DEEP_ARCHIVE" in frozen
    assert "STANDARD_IA: reads of old data cost more" in moves


def test_versions_and_locks_are_named(moto_endpoint: str) -> None:
    store = store_at(moto_endpoint, lock=True)
    wanted: Any = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 7}}}
    store.client.put_object_lock_configuration(Bucket=store.bucket, ObjectLockConfiguration=wanted)
    versions, lock = [line for line in told(store) if "Abort" not in line]
    assert versions.startswith("versioning is enabled")
    assert "kept for 7 days (governance)" in lock
    store.close()


def test_what_may_not_be_read_is_said(moto: S3Store) -> None:
    def deny(operation: str) -> None:
        def raise_(**_: object) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, operation)

        moto.client.meta.events.register(f"before-call.s3.{operation}", raise_)

    deny("GetBucketLifecycleConfiguration")
    (line,) = told(moto)
    assert line == "not known, for lack of permissions: s3:GetLifecycleConfiguration"
    assert moto.facts().rules is None


def test_rules_of_no_concern() -> None:
    rule = Rule(
        name="x",
        prefix="tier/",
        tagged=False,
        expires=False,
        moves_to=(),
        old_versions_go=True,
        aborts_uploads=True,
    )
    facts = BucketFacts(versioning="Suspended", rules=(rule,))
    assert warnings(facts, "tier/") == [
        "versioning is suspended: what is deleted or replaced stays as an old version, until a lifecycle rule or "
        "`tierd sweep --purge-versions` takes it away"
    ]
    assert "AbortIncomplete" in warnings(facts, "")[0], "the rule does not reach all of it"


def test_versions_are_listed_key_by_key_and_go_for_good(either: S3Store) -> None:
    kept = versioned(WatchedStore(either, SystemClock()))
    assert kept is not None
    assert kept.keeps_versions()
    for body in (b"1", b"22", b"333"):
        put(either, "p/a", body)
    put(either, "p/b")
    put(either, "q/c")
    either.delete(["p/b"])
    a, b = kept.list_versions("p/")
    assert [one.size for one in a] == [3, 2, 1]
    assert [one.current for one in a] == [True, False, False]
    assert [(one.key, one.marker, one.current) for one in b] == [("p/b", True, True), ("p/b", False, False)]
    gone = [(one.key, one.version_id) for one in (*a[1:], *b)]
    assert [one.refused for one in kept.delete_versions(gone)] == [None] * 4
    assert [[one.size for one in versions] for versions in kept.list_versions("p/")] == [[3]]
    assert either.get("p/a") == b"333"


def test_a_key_whose_versions_go_over_several_pages(moto: S3Store) -> None:
    moto.client.put_bucket_versioning(Bucket=moto.bucket, VersioningConfiguration={"Status": "Enabled"})
    for number in range(5):
        put(moto, "a", bytes(number))
    put(moto, "b")
    moto.delete(["a"])

    def small(params: dict[str, Any], **_: object) -> None:
        params["MaxKeys"] = 2

    moto.client.meta.events.register("provide-client-params.s3.ListObjectVersions", small)
    a, b = moto.list_versions("")
    assert [one.key for one in b] == ["b"]
    assert [one.size for one in a] == [0, 4, 3, 2, 1, 0]
    assert [one.marker for one in a] == [True] + [False] * 5


@pytest.mark.s3
def test_a_locked_version_stays_until_its_time(weed_server: "Weed") -> None:
    store = store_at(weed_server.endpoint, lock=True)
    put(store, "k")
    until = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    store.client.put_object_retention(
        Bucket=store.bucket, Key="k", Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until}
    )
    (outcome,) = store.delete(["k"])
    assert outcome.refused is None, "a plain delete leaves a marker"
    ((marker, version),) = store.list_versions("")
    assert marker.marker
    (refused,) = store.delete_versions([("k", version.version_id)])
    assert refused.refused is not None
    assert refused.until_ms == int(until.timestamp() * 1000)
    store.close()


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "by policy"}}, "DeleteObjects")


def test_a_bucket_that_denies_deletes_altogether(moto: S3Store) -> None:
    put(moto, "k")

    def deny(**_: object) -> None:
        raise refusal("AccessDenied")

    moto.client.meta.events.register("before-call.s3.DeleteObjects", deny)
    (outcome,) = moto.delete(["k"])
    assert outcome.refused is not None
    assert "by policy" in outcome.refused


@pytest.mark.parametrize(
    ("code", "denied"), [("AccessDenied", True), ("ExpiredToken", False), ("KMS.DisabledException", False)]
)
def test_who_is_denied_something_needs_no_new_credentials(code: str, denied: bool) -> None:
    error = mapped("k", refusal(code))
    assert isinstance(error, AccessRefused)
    assert error.denied is denied
