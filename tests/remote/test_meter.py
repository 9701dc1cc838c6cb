"""What is counted of the bucket's use is what the bucket was asked."""

from pathlib import Path

import pytest

from kit.clock import FakeClock
from tierd.base.ids import Uuid
from tierd.config.model import Remote
from tierd.remote.crc import crc32c
from tierd.remote.keys import Keys
from tierd.remote.meter import ARCHIVE, Meter, Used, price_class, topic_of
from tierd.remote.open import open_store
from tierd.storage.disk import PosixDisk

ID = Uuid(bytes(range(16)))
KEYS = Keys("p/")


@pytest.mark.parametrize("topic", ["orders", "a-b.c_d"])
def test_each_key_belongs_to_its_topic(topic: str) -> None:
    of = topic_of(KEYS)
    for key in (
        f"p/{topic}-{ID}/0/00000000000000000000-{ID}.log",
        f"p/{topic}-{ID}/",
        KEYS.head(topic, ID, 3),
        KEYS.topic_file(topic, ID),
    ):
        assert of(key) == topic, key
    for key in ("p/", KEYS.owner_folder, KEYS.owner(7), "p/stranger", f"p/{ID}/x", "elsewhere"):
        assert of(key) == ARCHIVE, key


def test_a_directory_is_metered_as_the_requests_that_it_would_be(tmp_path: Path) -> None:
    meter = Meter(topic_of(Keys("")))
    store = open_store(f"file:{tmp_path}", Remote(), disk=PosixDisk(), clock=FakeClock(), meter=meter).store
    key = f"t-{ID}/0/x.log"
    store.put(key, b"12345", crc32c=crc32c(b"12345"))
    assert store.get(key, 1, 3) == b"23"
    store.get_with_info(key)
    store.head(key)
    part = bytes(5 * 1024 * 1024)
    upload = store.begin_upload(key + "2", part_bytes=len(part))
    upload.put_part(1, part, crc32c=crc32c(part))
    upload.complete()
    store.begin_upload(key + "3").abort()
    assert len(list(store.list(""))) == 2
    store.delete([key, key + "2"])
    assert {operation: used for (topic, operation), used in meter.totals.items() if topic == "t"} == {
        "PutObject": Used(1, 5, 0),
        "GetObject": Used(2, 0, 7),
        "HeadObject": Used(1),
        "CreateMultipartUpload": Used(2),
        "UploadPart": Used(1, len(part), 0),
        "CompleteMultipartUpload": Used(1),
        "AbortMultipartUpload": Used(1),
        "DeleteObjects": Used(1),
    }
    assert meter.totals[ARCHIVE, "ListObjectsV2"] == Used(1)


def test_what_each_operation_is_billed_as() -> None:
    assert [price_class(name) for name in ("PutObject", "UploadPart", "ListObjectsV2", "CopyObject")] == ["write"] * 4
    assert [price_class(name) for name in ("GetObject", "HeadObject")] == ["read"] * 2
    assert [price_class(name) for name in ("DeleteObjects", "AbortMultipartUpload")] == ["delete"] * 2
