"""A bad S3 server: a proxy before a good one that does to requests what a plan of faults says.

Clients may use any access key that `rotate` has not yet replaced: the proxy signs anew for the server behind it.
"""

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import BinaryIO

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from kit.faults import ERRORS, Fault, Plan, asked
from kit.http_message import Message, read_answer, read_request
from kit.weed import ACCESS_KEY, SECRET_KEY

_CREDENTIAL = re.compile(r"Credential=([^/]+)/")
_HELD_S = 60.0
"""So long a client that never goes is kept without an answer."""
_PIECES = 8
_DROP_S = 0.2


class BadS3:
    """Listens on a free port of the loopback; a thread for each connection, which serves one request at a time."""

    def __init__(self, endpoint: str, plan: Plan) -> None:
        host, _, port = endpoint.removeprefix("http://").rpartition(":")
        self._server = (host, int(port))
        self.plan = plan
        self._key = ACCESS_KEY
        self._rotations = 0
        self.refused_keys = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._ending = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def rotate(self, file: Path) -> None:
        """A new key: written to the credentials *file*, and from now on the only one that is taken."""
        with self._lock:
            self._rotations += 1
            self._key = f"KEY{self._rotations}"
        new = file.with_suffix(".new")
        new.write_text(f"[default]\naws_access_key_id = {self._key}\naws_secret_access_key = any\n")
        new.replace(file)

    def close(self) -> None:
        self._ending.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join()
        with self._lock:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    # --- connections -------------------------------------------------------------------------------------------------
    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(threading.Thread(target=self._serve, args=(client,)))
            self._threads[-1].start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._server, timeout=_HELD_S)
        except OSError:
            client.close()
            return
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, server}
        with client, server, client.makefile("rb") as from_client, server.makefile("rb") as from_server:
            try:
                going = not self._ending.is_set()
                while going:
                    request = read_request(from_client, client)
                    going = request is not None and self._one(request, client, server, from_server)
            except (OSError, ValueError):
                _hard_end(client)
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _one(self, request: Message, client: socket.socket, server: socket.socket, answers: BinaryIO) -> bool:
        """Serve it, well or badly; False: the connection ends with it."""
        found = _CREDENTIAL.search(request.header("authorization") or "")
        if found is None or found[1] != self._key:
            self.refused_keys += 1
            return _answer(client, request, 403, "InvalidAccessKeyId")
        fault = self.plan.draw(asked(request))
        if fault is Fault.RESET:
            return _hard_end(client)
        if fault is Fault.STALL:
            return self._stall(client)
        if fault is not None and fault in ERRORS and fault is not Fault.DONE_500:
            return _answer(client, request, *ERRORS[fault])
        spoilt = self._spoilt(request) if fault is Fault.WRONG_BYTES else request
        if spoilt is not request or self._key != ACCESS_KEY:
            spoilt = _signed(spoilt, self._server)
        server.sendall(spoilt.head(len(spoilt.body) if spoilt.body or spoilt.first[:3] == b"PUT" else None))
        server.sendall(spoilt.body)
        answer = read_answer(answers, request.first.split(b" ", 1)[0])
        return self._give(fault, request, answer, client)

    def _give(self, fault: Fault | None, request: Message, answer: Message, client: socket.socket) -> bool:
        if fault is Fault.LOST:
            return _hard_end(client)
        if fault is Fault.DONE_500:
            return _answer(client, request, *ERRORS[fault])
        if fault is Fault.SKEWED:
            answer = answer.with_headers(date=self._wrong_date())
        if fault is Fault.WRONG_BYTES and request.first.startswith(b"GET") and answer.body:
            answer = Message(answer.first, answer.headers, self._one_byte_off(answer.body))
        head = answer.head(None if request.first.startswith(b"HEAD") else len(answer.body))
        if fault is Fault.TRUNCATED:
            whole = head + answer.body
            client.sendall(whole[: self.plan.number(len(whole))])
            return False
        if fault is Fault.DRIP:
            return self._drip(client, head + answer.body)
        if fault is Fault.SLOW:
            return self._slowly(client, head + answer.body)
        client.sendall(head)
        client.sendall(answer.body)
        return (answer.header("connection") or "").lower() != "close"

    # --- faults ------------------------------------------------------------------------------------------------------
    def _stall(self, client: socket.socket) -> bool:
        """Until the client goes."""
        client.settimeout(_HELD_S)
        client.recv(1)
        return False

    def _drip(self, client: socket.socket, data: bytes) -> bool:
        """Always something, never enough: a time-out between two bytes does not end it."""
        for at in range(len(data)):
            if self._ending.wait(_DROP_S):
                break
            client.sendall(data[at : at + 1])
        return False

    def _slowly(self, client: socket.socket, data: bytes) -> bool:
        step = max(1, len(data) // _PIECES)
        for at in range(0, len(data), step):
            self._ending.wait(_DROP_S / _PIECES / 2)
            client.sendall(data[at : at + step])
        return True

    def _spoilt(self, request: Message) -> Message:
        if not request.first.startswith(b"PUT"):
            return request
        return Message(request.first, request.headers, self._one_byte_off(request.body))

    def _one_byte_off(self, body: bytes) -> bytes:
        at = self.plan.number(len(body))
        return body[:at] + bytes([body[at] ^ (1 << self.plan.number(8))]) + body[at + 1 :]

    def _wrong_date(self) -> str:
        hours = self.plan.number(48) + 1
        away = timedelta(hours=hours if self.plan.number(2) else -hours)
        return format_datetime(datetime.now(UTC) + away, usegmt=True)


def _signed(request: Message, server: tuple[str, int]) -> Message:
    """With a signature of ours over what is really sent."""
    host = f"{server[0]}:{server[1]}"
    method, path, version = request.first.decode().split(" ", 2)
    plain = request.with_headers(
        host=host, authorization=None, x_amz_date=None, x_amz_content_sha256=None, content_length=None
    )
    anew = AWSRequest(method=method, url=f"http://{host}{path}", data=request.body or None, headers=dict(plain.headers))
    S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(anew)
    return Message(f"{method} {path} {version}".encode(), tuple(anew.headers.items()), request.body)


def _answer(client: socket.socket, request: Message, status: int, code: str) -> bool:
    """An error as S3 says it; a HEAD has no body for it."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the plan</Message></Error>".encode()
    date = format_datetime(datetime.now(UTC), usegmt=True)
    head = f"HTTP/1.1 {status} {code}\r\nDate: {date}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
    client.sendall(f"{head}\r\n\r\n".encode() + (b"" if request.first.startswith(b"HEAD") else body))
    return True


def _hard_end(client: socket.socket) -> bool:
    """The client gets an error, not an end of file."""
    with suppress(OSError):
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return False


@contextmanager
def bad_s3(endpoint: str, plan: Plan) -> Iterator[BadS3]:
    """Before an `http://HOST:PORT`."""
    proxy = BadS3(endpoint, plan)
    try:
        yield proxy
    finally:
        proxy.close()
