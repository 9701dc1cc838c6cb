"""The key ring: RSA key pairs by id, under which the data keys of segments are wrapped (LAYOUT.md, "Chunks").

A wrapped data key is `<key id>:<base64>`; the id of a key is the name of its file without what follows the last dot.
Neither kind of key is ever shown: `repr` names ids only.
"""

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tierd.base.errors import CorruptFile, StartRefused
from tierd.remote import oaep
from tierd.remote.errors import KeyMissing
from tierd.remote.manifest import Encryption
from tierd.remote.transform import AAD_BYTES, DATA_KEY_BYTES, Secret

_LEAST_BITS = 2048


class KeyRing:
    """Any thread."""

    def __init__(self, keys: Mapping[str, RSAPrivateKey], active: str | None = None) -> None:
        """*active*: the key for new segments; None: they are not encrypted."""
        self._keys = {key_id: key.private_numbers() for key_id, key in keys.items()}
        self.active = active

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._keys))})"

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self._keys)

    def open(self, encryption: Encryption, where: str) -> Secret:
        """The secret of a segment. Raises KeyMissing, and CorruptFile when what *where* says does not unwrap."""
        try:
            aad = base64.b64decode(encryption.aad, validate=True)
        except binascii.Error as error:
            raise CorruptFile(where, 0, f"encryption.aad: {error}") from error
        return Secret(self._unwrap(encryption.data_key, where), aad)

    def rewrap(self, data_key: str, key_id: str, where: str) -> str:
        """The same data key, wrapped under key *key_id* of this ring. Raises what `open` does."""
        return self._wrap(self._unwrap(data_key, where), key_id)

    def new_secret(self) -> tuple[Secret, Encryption] | None:
        """For one new segment: its secret, and what its manifest says of it. None without an active key."""
        if self.active is None:
            return None
        secret = Secret(os.urandom(DATA_KEY_BYTES), os.urandom(AAD_BYTES))
        aad = base64.b64encode(secret.aad).decode("ascii")
        return secret, Encryption(self._wrap(secret.key, self.active), aad)

    def _wrap(self, key: bytes, key_id: str) -> str:
        wrapped = oaep.wrap(self._keys[key_id].public_numbers, key)
        return f"{key_id}:{base64.b64encode(wrapped).decode('ascii')}"

    def _unwrap(self, data_key: str, where: str) -> bytes:
        key_id, colon, text = data_key.partition(":")
        if not colon:
            raise CorruptFile(where, 0, "encryption.dataKey is not KEY ID:BASE64")
        if key_id not in self._keys:
            raise KeyMissing(
                f"{where} is encrypted under key {key_id!r}, which remote.encryption.key.files do not name"
            )
        try:
            key = oaep.unwrap(self._keys[key_id], base64.b64decode(text, validate=True))
        except ValueError as error:  # binascii.Error is one
            raise CorruptFile(where, 0, f"encryption.dataKey, of key {key_id!r}: {error}") from error
        if len(key) != DATA_KEY_BYTES:
            raise CorruptFile(where, 0, f"encryption.dataKey is a key of {len(key)} bytes, not {DATA_KEY_BYTES}")
        return key


NO_KEYS = KeyRing({})


def load_ring(files: Sequence[Path], active: str | None = None) -> KeyRing:
    """The ring of these PEM files of private keys. Raises StartRefused, naming the file that is no good."""
    return KeyRing({path.stem: _read(path) for path in files}, active)


def _read(path: Path) -> RSAPrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise StartRefused(f"{path}: the key cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):  # its words may quote the file
        raise StartRefused(f"{path}: not a private key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey) or key.key_size < _LEAST_BITS:
        raise StartRefused(f"{path}: not an RSA key of {_LEAST_BITS} bits or more")
    return key
