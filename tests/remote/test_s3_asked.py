"""What goes with every request: seen in the requests as they are sent, of every kind, multipart included."""

import base64
import hashlib
import logging
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError

from kit import weed
from tierd.base.clock import SystemClock
from tierd.base.errors import Usage
from tierd.config.contradictions import contradictions
from tierd.config.model import S3, Remote, Settings
from tierd.config.s3 import Sse, StorageClass
from tierd.remote import crc
from tierd.remote.probe import probe
from tierd.remote.s3 import S3Options, S3Store
from tierd.remote.s3_asked import read_customer_key

if TYPE_CHECKING:
    from kit.weed import Weed

PART = 5 << 20
KEY = bytes(range(32))
_NUMBER = count(1)
STEM = "t-AAAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-BBBBBBBBBBBBBBBBBBBBBB"
SSE_C = "x-amz-server-side-encryption-customer-"
DATA = {"PutObject", "CreateMultipartUpload", "UploadPart", "GetObject", "HeadObject", "CompleteMultipartUpload"}
STARTS = {"PutObject", "CreateMultipartUpload"}
ALL = DATA | {
    "AbortMultipartUpload",
    "ListObjectsV2",
    "ListMultipartUploads",
    "ListObjectVersions",
    "DeleteObjects",
    "DeleteObject",
}


class Sent:
    """Headers of all requests of a store, by operation."""

    def __init__(self, store: S3Store) -> None:
        self.headers: dict[str, list[dict[str, str]]] = defaultdict(list)
        self.urls: list[str] = []
        store.client.meta.events.register("before-send.s3", self._note)

    def _note(self, request: AWSPreparedRequest, event_name: str, **_: object) -> None:
        texts = {
            name.lower(): text.decode() if isinstance(text, bytes) else str(text)
            for name, text in request.headers.items()
        }
        self.headers[event_name.rpartition(".")[2]].append(texts)
        self.urls.append(request.url)

    def with_(self, header: str) -> set[str]:
        """Operations whose every request had it."""
        for operation, sent in self.headers.items():
            had = [header in one for one in sent]
            assert all(had) or not any(had), f"{operation} had {header} only sometimes"
        return {operation for operation, sent in self.headers.items() if header in sent[0]}


@contextmanager
def opened(endpoint: str, **changes: Any) -> Iterator[S3Store]:
    options = weed.options(endpoint, **changes)
    store = S3Store(f"asked-{next(_NUMBER)}", options, clock=SystemClock())
    store.client.create_bucket(Bucket=store.bucket)
    probe(store, "tierd/")
    yield store
    store.close()


def put(store: S3Store, key: str, body: bytes = b"x") -> None:
    store.put(key, body, crc32c=crc.crc32c(body))


def everything(store: S3Store) -> None:
    """Every kind of request that tierd sends about objects, and that what was written is read back."""
    body = bytes(PART) + b"end"
    upload = store.begin_upload(STEM + ".log", part_bytes=PART)
    for number, part in enumerate((body[:PART], body[PART:]), 1):
        upload.put_part(number, part, crc32c=crc.crc32c(part))
    upload.complete()
    put(store, STEM + ".indexes")
    put(store, STEM + ".rsm-manifest")
    put(store, "tierd/partitions/t/0.json")
    assert store.get(STEM + ".log", PART - 1, PART + 2) == b"\0en"
    assert store.get_with_info(STEM + ".indexes")[1] == b"x"
    assert store.head(STEM + ".log").size == len(body)
    dropped = store.begin_upload("t/dropped.log", part_bytes=PART)
    assert len(list(store.list_uploads("t/"))) <= 1  # moto lists none of a prefix
    dropped.abort()
    assert len(list(store.list(""))) == 4
    assert list(store.list_folders("")) == ["t-AAAAAAAAAAAAAAAAAAAAAA/", "tierd/"]
    list(store.list_versions(""))
    store.retried("none", store.client.delete_object, Key="none")
    store.delete(["none"])


def test_storage_classes_by_kind(moto_endpoint: str) -> None:
    classes = {"log": "GLACIER_IR", "indexes": "STANDARD_IA", "documents": "ONEZONE_IA"}
    with opened(moto_endpoint, classes=classes) as store:
        everything(store)
        found = {one["Key"]: one["StorageClass"] for one in _contents(store)}
    assert found == {
        STEM + ".log": "GLACIER_IR",
        STEM + ".indexes": "STANDARD_IA",
        STEM + ".rsm-manifest": "STANDARD",
        "tierd/partitions/t/0.json": "ONEZONE_IA",
    }


def _contents(store: S3Store) -> list[Any]:
    return list(store.client.list_objects_v2(Bucket=store.bucket)["Contents"])


def test_nothing_is_asked_by_default(moto_endpoint: str) -> None:
    with opened(moto_endpoint) as store:
        sent = Sent(store)
        everything(store)
        assert set(sent.headers) == ALL
        asked = ("x-amz-storage-class", "x-amz-server-side-encryption", SSE_C + "key", "x-amz-request-payer")
        assert [sent.with_(header) for header in asked] == [set()] * 4


def test_requester_pays_is_said_with_every_request(moto_endpoint: str) -> None:
    with opened(moto_endpoint, requester_pays=True) as store:
        sent = Sent(store)
        everything(store)
        assert sent.with_("x-amz-request-payer") == ALL


@pytest.mark.parametrize(("mode", "bucket_key"), [("AES256", False), ("aws:kms", True), ("aws:kms:dsse", False)])
def test_encryption_by_the_server(moto_endpoint: str, mode: str, bucket_key: bool) -> None:
    key_id = None if mode == "AES256" else "arn:aws:kms:eu-1:1:key/k"
    with opened(moto_endpoint, sse=mode, kms_key_id=key_id) as store:
        sent = Sent(store)
        everything(store)
        assert sent.with_("x-amz-server-side-encryption") == STARTS
        assert sent.headers["PutObject"][0]["x-amz-server-side-encryption"] == mode
        assert sent.with_("x-amz-server-side-encryption-aws-kms-key-id") == (STARTS if key_id else set())
        assert sent.with_("x-amz-server-side-encryption-bucket-key-enabled") == (STARTS if bucket_key else set())
        answer = store.client.head_object(Bucket=store.bucket, Key=STEM + ".log")
        assert answer["ServerSideEncryption"] == mode


@pytest.mark.s3
def test_our_own_key_goes_with_all_that_touches_data_and_into_no_log(
    weed_server: "Weed", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "sse-c"
    file.write_bytes(KEY)
    text, digest = (base64.b64encode(raw).decode() for raw in (KEY, hashlib.md5(KEY).digest()))
    with (
        caplog.at_level(logging.DEBUG, "tierd"),
        opened(weed_server.endpoint, sse="customer", customer_key_file=file) as store,
    ):
        sent = Sent(store)
        everything(store)
        assert sent.with_(SSE_C + "key") == sent.with_(SSE_C + "key-md5") == sent.with_(SSE_C + "algorithm") == DATA
        assert {one[SSE_C + "key"] for operation in DATA for one in sent.headers[operation]} == {text}
        assert {one[SSE_C + "key-md5"] for operation in DATA for one in sent.headers[operation]} == {digest}
        with opened(weed_server.endpoint) as other, pytest.raises(ClientError):
            other.client.get_object(Bucket=store.bucket, Key=STEM + ".indexes")
        shown = repr(store) + repr(store._options) + "".join(sent.urls) + caplog.text
        assert text not in shown
        assert weed.SECRET_KEY not in shown


def test_the_key_of_ours_is_32_bytes_or_their_base64(tmp_path: Path) -> None:
    file = tmp_path / "k"
    for content in (KEY, base64.b64encode(KEY) + b"\n"):
        file.write_bytes(content)
        assert read_customer_key(file) == KEY
    for wrong in (b"", KEY[:31], b"secret secret", base64.b64encode(KEY[:16])):
        file.write_bytes(wrong)
        with pytest.raises(Usage, match="holds neither 32 bytes nor") as caught:
            read_customer_key(file)
        assert not wrong or repr(wrong) not in str(caught.value)
    with pytest.raises(Usage, match="No such file"):
        read_customer_key(tmp_path / "none")


def test_settings_become_options(tmp_path: Path) -> None:
    sse = Sse(mode="aws:kms", kms_key_id="k", bucket_key=False)
    s3 = S3(sse=sse, storage_class=StorageClass(log="GLACIER_IR"), requester_pays=True, proxy="http://p:1")
    options = S3Options.of(Remote(url="s3://b/", s3=s3))
    assert (options.sse, options.kms_key_id, options.bucket_key) == ("aws:kms", "k", False)
    assert options.classes == {"log": "GLACIER_IR"}
    assert (options.requester_pays, options.proxy) == (True, "http://p:1")


@pytest.mark.parametrize(
    ("s3", "path"),
    [
        (S3(sse=Sse(mode="customer")), "remote.s3.sse.customer.key.file"),
        (S3(sse=Sse(customer_key_file=Path("/k"))), "remote.s3.sse.customer.key.file"),
        (S3(sse=Sse(kms_key_id="k")), "remote.s3.sse.kms.key.id"),
        (S3(storage_class=StorageClass(manifest="GLACIER")), "remote.s3.storage.class.manifest"),
        (S3(proxy="proxy:3128"), "remote.s3.proxy"),
        (S3(proxy="http://me:hidden@proxy:3128"), "remote.s3.proxy"),
        (S3(endpoint="http://s3.lan", sse=Sse(mode="customer", customer_key_file=Path("/k"))), "remote.s3.endpoint"),
    ],
)
def test_what_makes_no_sense(tmp_path: Path, s3: S3, path: str) -> None:
    settings = Settings(data_dirs=(tmp_path / "d",), state_dir=tmp_path / "s", remote=Remote(url="s3://b/", s3=s3))
    (problem,) = contradictions(settings)
    assert problem.path == path
    assert "hidden" not in str(problem)


def test_our_key_may_go_to_this_machine_in_the_clear(tmp_path: Path) -> None:
    sse = Sse(mode="customer", customer_key_file=tmp_path / "k")
    for endpoint in ("http://127.0.0.1:9", "https://s3.lan", None):
        remote = Remote(url="s3://b/", s3=S3(endpoint=endpoint, sse=sse))
        settings = Settings(data_dirs=(tmp_path / "d",), state_dir=tmp_path / "s", remote=remote)
        assert list(contradictions(settings)) == []
