"""HTTP/1.1 messages off a socket, whole: enough for a proxy between a client and an S3 server."""

from dataclasses import dataclass
from socket import socket
from typing import BinaryIO

LINE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Message:
    """A request or an answer. Its body is plain, however it came."""

    first: bytes
    """Request line or status line, without its end."""
    headers: tuple[tuple[str, str], ...]
    """Names as they came."""
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers if found.lower() == name.lower()), None)

    def with_headers(self, **changes: str | None) -> "Message":
        """With headers (`_` for `-`) replaced, or left out where the value is None."""
        wanted = {name.replace("_", "-").lower(): value for name, value in changes.items()}
        kept = [(name, value) for name, value in self.headers if name.lower() not in wanted]
        kept += [(name, value) for name, value in wanted.items() if value is not None]
        return Message(self.first, tuple(kept), self.body)

    def head(self, length: int | None) -> bytes:
        """All before the body, which has *length* bytes (None: nothing is said of it)."""
        lines = [self.first]
        lines += [
            f"{name}: {value}".encode("latin-1")
            for name, value in self.headers
            if length is None or name.lower() not in ("content-length", "transfer-encoding")
        ]
        lines += [] if length is None else [b"Content-Length: %d" % length]
        return b"\r\n".join([*lines, b"", b""])


def read_request(stream: BinaryIO, connection: socket) -> Message | None:
    """The next one; None at the end. One that waits for a `100 Continue` is told to go on."""
    head = _head(stream)
    if head is None:
        return None
    message = Message(*head, b"")
    if (message.header("expect") or "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = _body(stream, message) if message.header("content-length") or message.header("transfer-encoding") else b""
    return Message(message.first, message.headers, body).with_headers(expect=None)


def read_answer(stream: BinaryIO, method: bytes) -> Message:
    """Raises ConnectionError when the server ends before it."""
    head = _head(stream)
    if head is None:
        raise ConnectionError("the server ended")
    message = Message(*head, b"")
    status = int(message.first.split(b" ", 2)[1])
    if 100 <= status < 200:
        return read_answer(stream, method)
    bare = method == b"HEAD" or status in (204, 304)
    return message if bare else Message(message.first, message.headers, _body(stream, message))


def _head(stream: BinaryIO) -> tuple[bytes, tuple[tuple[str, str], ...]] | None:
    first = stream.readline(LINE_BYTES)
    if not first.endswith(b"\r\n"):
        return None
    headers = []
    while (line := stream.readline(LINE_BYTES)) not in (b"\r\n", b""):
        name, _, value = line.decode("latin-1").partition(":")
        headers.append((name.strip(), value.strip()))
    return first.rstrip(b"\r\n"), tuple(headers)


def _body(stream: BinaryIO, message: Message) -> bytes:
    if (message.header("transfer-encoding") or "").lower() == "chunked":
        pieces = []
        while size := int(stream.readline(LINE_BYTES).partition(b";")[0], 16):
            pieces.append(_exactly(stream, size))
            stream.readline(LINE_BYTES)
        while stream.readline(LINE_BYTES) not in (b"\r\n", b""):
            continue  # trailers
        return b"".join(pieces)
    length = message.header("content-length")
    return stream.read() if length is None else _exactly(stream, int(length))


def _exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ConnectionError(f"{len(data)} of {size} bytes came")
    return data
