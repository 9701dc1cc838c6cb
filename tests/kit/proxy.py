"""A TCP proxy between tierd and a server, with a switch: cut it, and every connection through it ends at once."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK_BYTES = 65_536


class Proxy:
    """Listens on a free port of the loopback. While it is cut, connections are accepted and reset."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cut = False
        self._left: int | None = None
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Now, and until `join`."""
        with self._lock:
            self._cut, self._left = True, None
            for one in self._open:
                _reset(one)
            self._open.clear()

    def cut_after(self, sent_bytes: int) -> None:
        """As soon as so many more bytes have gone to the server."""
        with self._lock:
            self._left = sent_bytes

    def join(self) -> None:
        """Let connections through again."""
        with self._lock:
            self._cut = False

    @property
    def is_cut(self) -> bool:
        return self._cut

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self._join_up(client)

    def _join_up(self, client: socket.socket) -> None:
        if self._cut:
            _reset(client)
            return
        try:
            server = socket.create_connection(self._target, timeout=10)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        with self._lock:
            self._open |= {client, server}
        for source, sink, counted in ((client, server, True), (server, client, False)):
            threading.Thread(target=self._pump, args=(source, sink, counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if counted and self._spent(len(data)):
                    self.cut()
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
            return
        with self._lock:
            for one in (source, sink):
                if one in self._open:
                    self._open.discard(one)
                    _reset(one)

    def _spent(self, length: int) -> bool:
        with self._lock:
            if self._left is None:
                return False
            self._left -= length
            return self._left < 0


def _reset(one: socket.socket) -> None:
    """The other end gets an error, not an end of file; a thread that waits on it here wakes up."""
    with suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def through(endpoint: str) -> Iterator[Proxy]:
    """A proxy before an `http://HOST:PORT`."""
    host, _, port = endpoint.removeprefix("http://").rpartition(":")
    proxy = Proxy(host, int(port))
    try:
        yield proxy
    finally:
        proxy.close()
