"""How a data key is wrapped: RSA-OAEP with SHA3-512 as hash and in MGF1, empty label (LAYOUT.md, "Chunks").

This is what Aiven's plugin does. It is written out because `cryptography` refuses OAEP with this hash.
"""

import hashlib
import hmac
import os
import secrets

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateNumbers, RSAPublicNumbers

HASH_BYTES = 64
_NO_LABEL = hashlib.sha3_512(b"").digest()


def wrap(key: RSAPublicNumbers, message: bytes) -> bytes:
    """Raises ValueError when the modulus is too small for *message*."""
    size = _size(key)
    padding = size - 2 * HASH_BYTES - 2 - len(message)
    if padding < 0:
        raise ValueError(f"an RSA key of {key.n.bit_length()} bits is too small for {len(message)} bytes")
    data = _NO_LABEL + bytes(padding) + b"\x01" + message
    seed = os.urandom(HASH_BYTES)
    masked = _xor(data, _mask(seed, len(data)))
    block = b"\x00" + _xor(seed, _mask(masked, HASH_BYTES)) + masked
    return pow(int.from_bytes(block, "big"), key.e, key.n).to_bytes(size, "big")


def unwrap(key: RSAPrivateNumbers, wrapped: bytes) -> bytes:
    """Raises ValueError, always with the same words: what exactly is wrong is nobody's business."""
    size = _size(key.public_numbers)
    number = int.from_bytes(wrapped, "big")
    if len(wrapped) != size or number >= key.public_numbers.n:
        raise ValueError("it does not unwrap with this key")
    block = _power(key, number).to_bytes(size, "big")
    seed = _xor(block[1 : 1 + HASH_BYTES], _mask(block[1 + HASH_BYTES :], HASH_BYTES))
    data = _xor(block[1 + HASH_BYTES :], _mask(seed, size - 1 - HASH_BYTES))
    padded = data[HASH_BYTES:].lstrip(b"\x00")
    same_label = hmac.compare_digest(data[:HASH_BYTES], _NO_LABEL)
    if block[0] or not same_label or padded[:1] != b"\x01":
        raise ValueError("it does not unwrap with this key")
    return padded[1:]


def _power(key: RSAPrivateNumbers, number: int) -> int:
    """number ** d mod n by the Chinese remainders, blinded: how long it takes says nothing about the key."""
    n, e = key.public_numbers.n, key.public_numbers.e
    blind = secrets.randbelow(n - 2) + 2
    hidden = number * pow(blind, e, n) % n
    of_p, of_q = pow(hidden, key.dmp1, key.p), pow(hidden, key.dmq1, key.q)
    joined = of_q + key.q * ((of_p - of_q) * key.iqmp % key.p)
    return joined * pow(blind, -1, n) % n


def _mask(seed: bytes, length: int) -> bytes:
    """MGF1."""
    blocks = -(-length // HASH_BYTES)
    return b"".join(hashlib.sha3_512(seed + number.to_bytes(4, "big")).digest() for number in range(blocks))[:length]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")


def _size(key: RSAPublicNumbers) -> int:
    return (key.n.bit_length() + 7) // 8
