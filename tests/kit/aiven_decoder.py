"""Reads segments that Aiven's plugin could have written: a decoder of its own, sharing no code with tierd.

It is the one that the recordings in tests/golden/ were checked with when they were made.
"""

import base64
import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")
_FIELDS = ["version", "chunkIndex", "segmentIndexes", "compression", "encryption", "remoteLogSegmentMetadata"]


@dataclass(frozen=True)
class Decoded:
    log: bytes
    indexes: dict[str, bytes | None]
    manifest: dict[str, Any]


def private_key(path: Path) -> RSAPrivateKey:
    key = load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, RSAPrivateKey)
    return key


def decode(manifest: bytes, log: bytes, indexes: bytes, keys: dict[str, RSAPrivateKey]) -> Decoded:
    """Fails by an assertion where the plugin's own reader would refuse, or read something else."""
    document = json.loads(manifest)
    assert json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() == manifest
    assert list(document) == [name for name in _FIELDS if name in document]
    encryption = document.get("encryption")
    key = aad = b""
    if encryption:
        key_id, text = encryption["dataKey"].split(":")
        key = _oaep_unwrap(keys[key_id], base64.b64decode(text, validate=True))
        aad = base64.b64decode(encryption["aad"], validate=True)
        assert (len(key), len(aad)) == (32, 32)
    whole = b""
    chunks = _chunks(document["chunkIndex"])
    assert sum(stored for _, stored in chunks) == len(log)
    at = 0
    for original, stored in chunks:
        body = log[at : at + stored]
        at += stored
        if encryption:
            body = _open(body, key, aad)
        if document["compression"]:
            frame = zstandard.get_frame_parameters(body)
            assert (frame.content_size, frame.has_checksum, frame.dict_id) == (original, False, 0)
            body = zstandard.ZstdDecompressor().decompress(body)
        assert len(body) == original
        whole += body
    found: dict[str, bytes | None] = {}
    position = 0
    for name in INDEXES:
        entry = document["segmentIndexes"][name]
        if entry is None:
            assert name == "transaction"
            found[name] = None
            continue
        assert entry["position"] == position
        position += entry["size"]
        part = indexes[entry["position"] : position]
        found[name] = _open(part, key, aad) if encryption and part else part
    assert position == len(indexes)
    assert document["remoteLogSegmentMetadata"]["txnIdxEmpty"] is (found["transaction"] is None)
    return Decoded(whole, found, document)


def _open(sealed: bytes, key: bytes, aad: bytes) -> bytes:
    return AESGCM(key).decrypt(sealed[:12], sealed[12:], aad)


def _chunks(index: dict[str, Any]) -> list[tuple[int, int]]:
    """(original size, stored size) of each."""
    size, chunk = index["originalFileSize"], index["originalChunkSize"]
    common = {"type", "originalChunkSize", "originalFileSize"}
    if index["type"] == "fixed":
        assert set(index) == {*common, "transformedChunkSize", "finalTransformedChunkSize"}
        count = -(-size // chunk)
        stored = [index["transformedChunkSize"]] * (count - 1) + [index["finalTransformedChunkSize"]]
    else:
        assert set(index) == {*common, "transformedChunks"}
        raw = base64.b64decode(index["transformedChunks"], validate=True)
        assert zstandard.frame_content_size(raw) >= 0
        stored = _sizes(zstandard.ZstdDecompressor().decompress(raw))
    last = len(stored) - 1
    return [(chunk if number < last else size - chunk * last, one) for number, one in enumerate(stored)]


def _sizes(raw: bytes) -> list[int]:
    (count,) = struct.unpack_from(">i", raw, 0)
    if count == 0:
        assert len(raw) == 4
        return []
    if count == 1:
        assert len(raw) == 8
        return [struct.unpack_from(">i", raw, 4)[0]]
    base, width = struct.unpack_from(">ib", raw, 4)
    at, found = 9, []
    for _ in range(count - 1):
        found.append(base + int.from_bytes(raw[at : at + width], "big"))
        at += width
    found.append(struct.unpack_from(">i", raw, at)[0])
    assert at + 4 == len(raw)
    return found


def _oaep_unwrap(key: RSAPrivateKey, wrapped: bytes) -> bytes:
    numbers = key.private_numbers()
    modulus = numbers.public_numbers.n
    size = (modulus.bit_length() + 7) // 8
    assert len(wrapped) == size
    block = pow(int.from_bytes(wrapped, "big"), numbers.d, modulus).to_bytes(size, "big")
    length = hashlib.sha3_512().digest_size
    assert block[0] == 0
    masked_seed, masked = block[1 : 1 + length], block[1 + length :]
    seed = bytes(a ^ b for a, b in zip(masked_seed, _mgf1(masked, length), strict=True))
    data = bytes(a ^ b for a, b in zip(masked, _mgf1(seed, len(masked)), strict=True))
    assert data[:length] == hashlib.sha3_512(b"").digest()
    end = data.index(b"\x01", length)
    assert not any(data[length:end])
    return data[end + 1 :]


def _mgf1(seed: bytes, length: int) -> bytes:
    out = b""
    for number in range(length):
        if len(out) >= length:
            break
        out += hashlib.sha3_512(seed + struct.pack(">I", number)).digest()
    return out[:length]
