"""What boto3 is given as the body of a PUT: any buffer, sent in large pieces and never copied.

urllib3 asks a body for 16 KiB at a time (65,536 calls a GiB); it takes more, so `read` gives it more.
"""

import io

from typing_extensions import Buffer

from tierd.remote.limits import Limits

PIECE_BYTES = 1024 * 1024
"""Sent by one call, which the request's time-out bounds as a whole: small enough for a slow line."""
SMALL_BYTES = 256 * 1024
"""Up to here no `Expect: 100-continue` is asked for: the bytes cost less than the round trip."""


class S3Body:
    """A read-only file of *data*, which must not change before the request has ended; read as fast as *limits* let."""

    def __init__(self, data: Buffer, limits: Limits | None = None) -> None:
        self._limits = limits
        self._piece_bytes = PIECE_BYTES if limits is None else limits.upload_piece(PIECE_BYTES)
        self._view = memoryview(data).cast("B")
        self._at = 0

    @property
    def size_bytes(self) -> int:
        return len(self._view)

    def read(self, size: int = -1) -> memoryview | bytes:
        """The next piece, whatever *size* is; b"" at the end."""
        piece = self._view[self._at : self._at + self._piece_bytes]
        if self._limits is not None:
            self._limits.upload(len(piece))
        self._at += len(piece)
        return piece or b""

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """botocore looks for the end, and rewinds for another try."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: len(self._view)}[whence]
        self._at = start + offset
        return self._at


def body_of(data: Buffer, limits: Limits | None = None) -> S3Body | bytearray:
    """What to give boto3 as Body. A small one is sent at once: its limit is for who sends the request."""
    view = memoryview(data)
    return bytearray(view) if view.nbytes <= SMALL_BYTES else S3Body(view, limits)


def size_of(body: S3Body | bytearray | None) -> int:
    """Bytes of what `body_of` gave; 0 of a request without a body."""
    if body is None:
        return 0
    return body.size_bytes if isinstance(body, S3Body) else len(body)
