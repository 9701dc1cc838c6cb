"""What is wrong with the settings of an S3 bucket that are right one by one."""

from collections.abc import Iterator
from urllib.parse import urlsplit

from tierd.config.places import HostPort
from tierd.config.problem import Problem, quoted
from tierd.config.s3 import CUSTOMER, FROZEN, KMS, S3

_HTTP_PORT = 80


def s3_contradictions(s3: S3) -> Iterator[Problem]:
    """Of `remote.s3`."""
    yield from _of_encryption(s3)
    for kind in ("indexes", "manifest", "documents"):
        name = getattr(s3.storage_class, kind)
        if name in FROZEN:
            why = "tierd reads these all the time, and nothing of this class can be read before it is thawed"
            yield Problem(f"remote.s3.storage.class.{kind}", quoted(name), why)
    if s3.proxy is not None and s3.proxy != "none":
        yield from _of_proxy(s3.proxy)


def _of_proxy(proxy: str) -> Iterator[Problem]:
    url = urlsplit(proxy)
    if url.password is not None:
        yield Problem("remote.s3.proxy", None, "settings are shown: a proxy with a password belongs into HTTPS_PROXY")
    elif url.scheme not in ("http", "https"):
        yield Problem("remote.s3.proxy", quoted(proxy), "not the URL of a proxy: http://HOST:PORT")


def _of_encryption(s3: S3) -> Iterator[Problem]:
    sse = s3.sse
    if sse.mode == CUSTOMER and sse.customer_key_file is None:
        yield Problem("remote.s3.sse.customer.key.file", None, "remote.s3.sse.mode=customer needs a key")
    if sse.mode != CUSTOMER and sse.customer_key_file is not None:
        why = "only with remote.s3.sse.mode=customer"
        yield Problem("remote.s3.sse.customer.key.file", quoted(sse.customer_key_file), why)
    if sse.kms_key_id is not None and sse.mode not in KMS:
        why = f"only with remote.s3.sse.mode={' or '.join(KMS)}"
        yield Problem("remote.s3.sse.kms.key.id", quoted(sse.kms_key_id), why)
    if sse.mode == CUSTOMER and s3.endpoint is not None and _in_the_clear(s3.endpoint):
        why = "the key of remote.s3.sse.mode=customer would cross the network readable with each request: use https"
        yield Problem("remote.s3.endpoint", quoted(s3.endpoint), why)


def _in_the_clear(endpoint: str) -> bool:
    url = urlsplit(endpoint)
    return url.scheme == "http" and not HostPort(url.hostname or "", _HTTP_PORT).is_loopback
