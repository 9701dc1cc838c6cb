"""S3's bad days: lost answers, damage on the way, refusals. Against moto, with faults put between store and server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    NoCredentialsError,
    ParamValidationError,
    ResponseStreamingError,
)

from tierd.base.clock import SystemClock
from tierd.base.errors import TierdError, Usage
from tierd.config.model import S3, Remote
from tierd.remote import crc
from tierd.remote.errors import (
    AccessRefused,
    BucketMissing,
    Damaged,
    NotFound,
    PreconditionFailed,
    RemoteUnavailable,
    RequestRefused,
    Throttled,
)
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Options, S3Store
from tierd.remote.s3_client import make_client
from tierd.remote.s3_errors import MAPPED, mapped
from tierd.remote.store import PIECE_BYTES, ObjectInfo

QUICK = RetryPolicy(tries=4, first_ms=1, longest_ms=2)
PART = 5 * 1024 * 1024


class Faulty(S3Store):
    """`fault(operation)` is called after each request took effect and may raise: the answer is lost."""

    fault: Callable[[str], None] = staticmethod(lambda operation: None)

    def call(self, key: str, method: Callable[..., Any], **params: Any) -> Any:
        answer = super().call(key, method, **params)
        self.fault(method.__name__)
        return answer


def losing(operation: str, times: int = 1) -> Callable[[str], None]:
    left = [times]

    def fault(name: str) -> None:
        if name == operation and left[0]:
            left[0] -= 1
            raise RemoteUnavailable("the answer is lost")

    return fault


def put(store: S3Store, key: str, data: bytes, **wanted: object) -> ObjectInfo:
    return store.put(key, data, crc32c=crc.crc32c(data), **wanted)  # type: ignore[arg-type]


def options(endpoint: str, **changes: Any) -> S3Options:
    facts: dict[str, Any] = {"region": "us-east-1", "path_style": True, "access_key_id": "a", "secret_access_key": "s"}
    return S3Options(endpoint=endpoint, timeout_ms=10_000, **{**facts, **changes})


@pytest.fixture
def store(moto_endpoint: str) -> Iterator[Faulty]:
    made = Faulty("faults", options(moto_endpoint), clock=SystemClock(), policy=QUICK)
    made.client.create_bucket(Bucket="faults")
    yield made
    made.fault = lambda operation: None
    made.delete([info.key for info in made.list("")])
    made.close()


def test_a_create_whose_answer_was_lost_is_ours(store: Faulty) -> None:
    store.fault = losing("put_object")
    info = put(store, "claim", b"mine", if_none_match=True)
    assert info.etag == store.head("claim").etag
    assert store.requests["put_object"] == 2


def test_a_swap_whose_answer_was_lost_is_ours(store: Faulty) -> None:
    old = put(store, "head", b"one")
    store.fault = losing("put_object")
    put(store, "head", b"two", if_match=old.etag)
    with pytest.raises(PreconditionFailed):
        put(store, "head", b"three", if_match=old.etag)


def test_a_create_that_somebody_else_won_is_not_ours(store: Faulty) -> None:
    def meddle(operation: str) -> None:
        store.fault = lambda operation: None
        store.client.put_object(Bucket="faults", Key="claim", Body=b"theirs")
        raise RemoteUnavailable("no answer")

    put(store, "other", b"")
    store.fault = meddle
    with pytest.raises(PreconditionFailed):
        put(store, "claim", b"mine", if_none_match=True)


def test_a_large_view_is_sent_from_its_start_again(store: Faulty) -> None:
    data = memoryview(bytearray(bytes(range(256)) * (PART // 256 + 1000)))
    store.fault = losing("put_object")
    put(store, "k", data)  # type: ignore[arg-type]
    store.fault = losing("upload_part")
    upload = store.begin_upload("parts", part_bytes=PART)
    for number, at in enumerate(range(0, len(data), PART), 1):
        part = data[at : at + PART]
        upload.put_part(number, part, crc32c=crc.crc32c(part))
    upload.complete()
    assert store.get("k") == store.get("parts") == data


def test_a_completion_whose_answer_was_lost(store: Faulty) -> None:
    upload = store.begin_upload("big", part_bytes=PART)
    upload.put_part(1, b"x", crc32c=crc.crc32c(b"x"))
    store.fault = losing("complete_multipart_upload")
    assert upload.complete().size == 1
    assert store.get("big") == b"x"


@pytest.mark.parametrize("operation", ["get_object", "head_object", "list_objects_v2", "delete_objects"])
def test_reads_lists_and_deletes_are_simply_repeated(store: Faulty, operation: str) -> None:
    put(store, "k", b"0123456789")
    store.fault = losing(operation, 2)
    assert store.get("k", 2, 4) == b"23"
    assert store.head("k").size == 10
    assert [info.key for info in store.list("")] == ["k"]
    assert store.delete(["k"])[0].refused is None


class Breaking:
    """A body whose connection breaks, or ends early, after the first piece."""

    def __init__(self, body: Any, error: Exception | None) -> None:
        self._body, self._error = body, error
        self._read = False

    def __enter__(self) -> "Breaking":
        return self

    def __exit__(self, *_: object) -> None:
        self._body.close()

    def read(self, size: int) -> bytes:
        if self._read:
            if self._error is not None:
                raise self._error
            return b""
        self._read = True
        found: bytes = self._body.read(size)
        return found


@pytest.mark.parametrize("error", [ResponseStreamingError(error="broken"), None])
def test_pieces_begin_again_when_a_body_breaks_off(store: Faulty, error: Exception | None) -> None:
    data = bytes(range(256)) * (3 * PIECE_BYTES // 256)
    put(store, "k", data)
    plain: Callable[..., Any] = store.client.get_object
    tries: list[int] = []

    def get_object(**params: Any) -> Any:
        answer = plain(**params)
        if len(tries) < 2:
            answer["Body"] = Breaking(answer["Body"], error)
        tries.append(0)
        return answer

    store.client.get_object = get_object  # type: ignore[method-assign]
    given: list[list[bytes]] = []

    def use(pieces: Iterator[bytes]) -> bytes:
        given.append([])
        for piece in pieces:
            given[-1].append(piece)
        return b"".join(given[-1])

    assert store.pieces("k", 3, len(data), use) == data[3:]
    assert [len(pieces) for pieces in given] == [1, 1, 3]


def test_an_outage_is_reported_after_bounded_tries(store: Faulty) -> None:
    put(store, "k", b"x")
    store.fault = losing("get_object", 99)
    with pytest.raises(RemoteUnavailable):
        store.get("k")
    assert store.requests["get_object"] == QUICK.tries


def test_damage_on_the_way_is_noticed_and_fetched_again(store: Faulty) -> None:
    put(store, "k", b"0123456789")
    broken = [b"01234", b"0123456x89"]
    checksum = crc.to_header(crc.crc32c(b"0123456789"))

    class Body:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def read(self) -> bytes:
            return self.data

        def __enter__(self) -> "Body":
            return self

        def __exit__(self, *_: object) -> None: ...

    def damage(http_response: object, parsed: dict[str, Any], model: object, **_: object) -> None:
        if broken:
            parsed["Body"] = Body(broken.pop(0))
            parsed["ResponseMetadata"]["HTTPHeaders"]["x-amz-checksum-crc32c"] = checksum

    store.client.meta.events.register("after-call.s3.GetObject", damage)
    assert store.get_with_info("k")[1] == b"0123456789"
    assert store.requests["get_object"] == 3


def test_a_server_that_sums_up_other_bytes(store: Faulty) -> None:
    with pytest.raises(Damaged, match="another CRC"):
        store.stored("k", {"ChecksumCRC32C": crc.to_header(1), "ETag": '"e"'}, 1, 2, None)


def test_a_server_that_ignores_ranges(store: Faulty) -> None:
    put(store, "k", b"0123456789")

    def ignore(http_response: object, parsed: dict[str, Any], model: object, **_: object) -> None:
        parsed["ResponseMetadata"]["HTTPStatusCode"] = 200

    store.client.meta.events.register("after-call.s3.GetObject", ignore)
    assert store.get("k") == b"0123456789"
    with pytest.raises(RequestRefused, match="NoRange"):
        store.get("k", 2, 4)


def test_deletes_that_are_refused_or_put_off(store: Faulty) -> None:
    answers = [
        {"Errors": [{"Key": "b", "Code": "InternalError", "Message": "later"}]},
        {"Errors": [{"Key": "b", "Code": "AccessDenied", "Message": "locked"}]},
    ]

    def refuse(http_response: object, parsed: dict[str, Any], model: object, **_: object) -> None:
        parsed.update(answers.pop(0))

    store.client.meta.events.register("after-call.s3.DeleteObjects", refuse)
    outcomes = store.delete(["a", "b"])
    assert [outcome.refused for outcome in outcomes] == [None, "AccessDenied: locked"]


def test_deleting_on_a_server_without_batches(store: Faulty) -> None:
    put(store, "a", b"x")

    def unknown(operation: str) -> None:
        if operation == "delete_objects":
            raise RequestRefused("a", "NotImplemented", "no")

    store.fault = unknown
    assert [outcome.refused for outcome in store.delete(["a", "b"])] == [None, None]
    assert list(store.list("")) == []


def test_a_bucket_that_is_not_there(moto_endpoint: str) -> None:
    store = S3Store("no-such-bucket", options(moto_endpoint), clock=SystemClock(), policy=QUICK)
    for look in (lambda: put(store, "k", b""), lambda: store.get("k"), lambda: list(store.list(""))):
        with pytest.raises(BucketMissing, match="create it"):
            look()
    store.close()


def test_nobody_at_home() -> None:
    store = S3Store("b", options("http://127.0.0.1:9"), clock=SystemClock(), policy=QUICK)
    with pytest.raises(RemoteUnavailable, match=r"127\.0\.0\.1:9"):
        store.get("k")
    assert store.now_ms() is None
    store.close()


def answer(status: int, code: str, message: str = "m") -> ClientError:
    metadata: Any = {"HTTPStatusCode": status}
    return ClientError({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, "Op")


@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (answer(404, "NoSuchKey"), NotFound),
        (answer(404, "404"), NotFound),
        (answer(404, "NoSuchUpload"), NotFound),
        (answer(404, "NoSuchBucket"), BucketMissing),
        (answer(412, "PreconditionFailed"), PreconditionFailed),
        (answer(412, "412"), PreconditionFailed),
        (answer(409, "ConditionalRequestConflict"), RemoteUnavailable),
        (answer(403, "AccessDenied"), AccessRefused),
        (answer(403, "403"), AccessRefused),
        (answer(400, "ExpiredToken"), AccessRefused),
        (answer(400, "BadDigest"), Damaged),
        (answer(400, "RequestTimeout"), RemoteUnavailable),
        (answer(503, "SlowDown"), Throttled),
        (answer(429, "?"), Throttled),
        (answer(500, "InternalError"), RemoteUnavailable),
        (answer(502, "?"), RemoteUnavailable),
        (answer(501, "NotImplemented"), RequestRefused),
        (answer(416, "InvalidRange"), RequestRefused),
        (answer(301, "PermanentRedirect"), RequestRefused),
        (answer(400, "EntityTooSmall"), RequestRefused),
        (NoCredentialsError(), AccessRefused),
        (ParamValidationError(report="r"), RequestRefused),
        (ConnectTimeoutError(endpoint_url="u"), RemoteUnavailable),
        (ResponseStreamingError(error="e"), RemoteUnavailable),
        (ConnectionResetError(104, "reset"), RemoteUnavailable),
    ],
)
def test_every_failure_has_its_class(error: Exception, becomes: type[TierdError]) -> None:
    assert isinstance(error, MAPPED)
    assert type(mapped("the/key", error)) is becomes
    assert "the/key" in str(mapped("the/key", error))


def test_options_from_the_settings() -> None:
    remote = Remote(url="s3://b/p/", s3=S3(endpoint="http://127.0.0.1:1", region="r", access_key_id="k"))
    made = S3Options.of(remote)
    assert (made.endpoint, made.region, made.path_style, made.access_key_id) == ("http://127.0.0.1:1", "r", True, "k")
    assert made.secret_access_key is None


def test_a_profile_that_is_not_there_is_a_wrong_setting() -> None:
    with pytest.raises(Usage, match="no-such-profile"):
        make_client(options("http://127.0.0.1:1", profile="no-such-profile"))
    with pytest.raises(Usage):
        make_client(options("not a url"))
