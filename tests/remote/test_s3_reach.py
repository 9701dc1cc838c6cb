"""How a bucket is reached: its name in host or path, by a proxy, with a certificate of one's own authority."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kit.certificates import Authority
from tierd.base.clock import SystemClock
from tierd.config.model import S3
from tierd.remote.errors import RemoteUnavailable
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Options, S3Store

QUICK = RetryPolicy(tries=1)
BODY = b"found"


class Server(ThreadingHTTPServer):
    """Answers every GET, and keeps what it was asked: a proxy is asked for whole URLs."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.hosts: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.hosts.append(self.headers["Host"])
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.send_header("ETag", '"e"')
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with serving() as made:
        yield made


def url(server: Server, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{server.server_address[1]}"


def get(endpoint: str | None, **changes: Any) -> bytes:
    options = S3Options(
        endpoint=endpoint,
        region="eu-x",
        access_key_id="a",
        secret_access_key="s",
        timeout_ms=5_000,
        **changes,
    )
    store = S3Store("bucket", options, clock=SystemClock(), policy=QUICK)
    try:
        return store.get("p/key")
    finally:
        store.close()


def test_the_bucket_in_the_path_or_in_the_host(server: Server) -> None:
    for path_style in (True, False):
        assert get("http://s3.example", path_style=path_style, proxy=url(server)) == BODY
    assert server.asked == ["http://s3.example/bucket/p/key", "http://bucket.s3.example/p/key"]
    assert server.hosts == ["s3.example", "bucket.s3.example"]


@pytest.mark.parametrize(
    ("s3", "in_path"),
    [(S3(), False), (S3(endpoint="http://x"), True), (S3(endpoint="http://x", path_style=False), False)],
)
def test_which_it_is(s3: S3, in_path: bool) -> None:
    assert s3.use_path_style is in_path


def test_a_proxy_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", url(server))
    assert get("http://s3.example", path_style=True) == BODY
    assert server.asked == ["http://s3.example/bucket/p/key"]
    assert get(url(server), path_style=True, proxy="none") == BODY
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert get(url(server), path_style=True) == BODY
    assert server.asked[1:] == ["/bucket/p/key"] * 2, "asked of the server itself"


def test_an_authority_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    signed = authority.sign("s3")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(str(signed.certificate), str(signed.key))
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    with serving(context) as secured:
        place = url(secured, "https")
        assert get(place, path_style=True, proxy="none", ca_bundle=authority.file) == BODY
        with pytest.raises(RemoteUnavailable, match="certificate verify failed"):
            get(place, path_style=True, proxy="none")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.file))
        assert get(place, path_style=True, proxy="none") == BODY
