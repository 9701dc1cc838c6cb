"""A client connection through TLS."""

from tierd.broker.connection import Connection
from tierd.broker.tls.channel import TlsIncoming, TlsOutgoing, TlsSocket


class TlsConnection(Connection):
    """Its handshake is done."""

    __slots__ = ()

    def _sides(self, sock: TlsSocket, max_frame_bytes: int) -> "tuple[TlsIncoming[Connection], TlsOutgoing]":
        return TlsIncoming(sock.tls, max_frame_bytes, self._host.room, self), TlsOutgoing(sock)
