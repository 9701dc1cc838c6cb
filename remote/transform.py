"""What is done to the bytes of a segment before they are stored: zstd, then AES-256-GCM, chunk by chunk (LAYOUT.md)."""

import os
from dataclasses import dataclass, field

import zstandard
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tierd.base.errors import CorruptFile

ZSTD_LEVEL = 1
DATA_KEY_BYTES = 32
AAD_BYTES = 32
_NONCE_BYTES = 12
_TAG_BYTES = 16
Bytes = bytes | bytearray | memoryview
SEAL_BYTES = _NONCE_BYTES + _TAG_BYTES
"""So much larger is what is encrypted: nonce in front, tag behind."""


@dataclass(frozen=True, slots=True)
class Secret:
    """What encrypts the objects of one segment. Never shown."""

    key: bytes = field(repr=False)
    aad: bytes = field(repr=False)

    def seal(self, plain: Bytes) -> bytes:
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self.key).encrypt(nonce, plain, self.aad)

    def unseal(self, sealed: Bytes, where: str, at: int) -> bytes:
        """Raises CorruptFile (*where*, *at*) when a bit of it is another, or the secret is."""
        view = memoryview(sealed)
        try:
            return AESGCM(self.key).decrypt(view[:_NONCE_BYTES], view[_NONCE_BYTES:], self.aad)
        except (InvalidTag, ValueError):  # ValueError: not even a nonce
            raise CorruptFile(where, at, f"{len(view)} bytes that do not decrypt") from None


@dataclass(frozen=True, slots=True)
class Transform:
    """Both off: the objects are the segment's files, byte for byte."""

    compressed: bool = False
    secret: Secret | None = None

    @property
    def nothing(self) -> bool:
        """Nothing is done to any byte."""
        return not self.compressed and self.secret is None

    def store(self, chunk: Bytes) -> bytes:
        """A chunk of `.log` as it is stored. The frame says its content's size and has no checksum, as Aiven's."""
        stored = zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(chunk) if self.compressed else bytes(chunk)
        return stored if self.secret is None else self.secret.seal(stored)

    def restore(self, stored: Bytes, length: int, where: str, at: int) -> bytes:
        """The *length* bytes of a chunk. Raises CorruptFile: *where* is the object, *at* the chunk's place in it."""
        plain: Bytes = stored if self.secret is None else self.secret.unseal(stored, where, at)
        if self.compressed:
            plain = _decompress(plain, length, where, at)
        if len(memoryview(plain)) != length:
            raise CorruptFile(where, at, f"a chunk of {len(memoryview(plain))} bytes, the manifest says {length}")
        return bytes(plain)

    def store_index(self, part: bytes) -> bytes:
        """A part of `.indexes`: never compressed; what is empty stays so."""
        return part if self.secret is None or not part else self.secret.seal(part)

    def restore_index(self, stored: bytes, where: str, at: int) -> bytes:
        return stored if self.secret is None or not stored else self.secret.unseal(stored, where, at)


def _decompress(frame: Bytes, length: int, where: str, at: int) -> bytes:
    """Never makes more than *length* bytes, whatever the frame says."""
    try:
        stated = zstandard.frame_content_size(frame)
        if stated not in (-1, length):
            raise CorruptFile(where, at, f"a zstd frame of {stated} bytes, the manifest says {length}")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=length, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptFile(where, at, f"a chunk that does not decompress: {error}") from error
