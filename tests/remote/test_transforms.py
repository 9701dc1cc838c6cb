"""Compressed and encrypted buckets that Kafka with Aiven's plugin wrote: their source comes back, or a clear error."""

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from kit.aiven import TRANSFORMED, local_segment, manifests, recorded_ring
from tierd.base.errors import CorruptFile, StartRefused
from tierd.remote import oaep
from tierd.remote.body import Body, body_of
from tierd.remote.chunks import ChunkIndex, chunks_over, sealed_chunks, variable_chunks
from tierd.remote.errors import KeyMissing
from tierd.remote.keyring import NO_KEYS, load_ring
from tierd.remote.keys import SegmentName
from tierd.remote.manifest import Encryption, Manifest, parse_manifest
from tierd.remote.ranges import ByteRange
from tierd.remote.transform import SEAL_BYTES, Secret, Transform

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def opened(path: Path) -> tuple[Manifest, Body]:
    manifest = parse_manifest(path.read_bytes(), path.name)
    return manifest, body_of(manifest, recorded_ring(), path.name)


def source_of(variant: str, manifest: Manifest) -> bytes:
    name = SegmentName(manifest.topic, manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
    return local_segment(variant, name, ".log").read_bytes()


# --- what was recorded ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("variant", TRANSFORMED)
def test_every_segment_comes_back_whole_and_in_ranges(variant: str) -> None:
    for path in manifests(variant):
        manifest, body = opened(path)
        stored, source = path.with_suffix(".log").read_bytes(), source_of(variant, manifest)
        size, chunk = len(source), manifest.chunks.original_chunk_bytes
        ends = {0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk, size - 1, size}
        for start in ends:
            for stop in ends:
                if 0 <= start < stop <= size:
                    part = ByteRange(start, stop)
                    of = body.stored_range(part)
                    assert body.restore(stored[of.start : of.stop], part, "x") == source[start:stop]


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_a_range_needs_the_chunks_that_hold_it_and_no_other(variant: str) -> None:
    for path in manifests(variant):
        manifest, body = opened(path)
        chunk = manifest.chunks.original_chunk_bytes
        for number in range(manifest.chunks.count):
            inside = ByteRange(number * chunk, min((number + 1) * chunk, manifest.size_bytes))
            assert body.stored_range(inside) == manifest.chunks.chunk(number).stored
        two = body.stored_range(ByteRange(chunk - 1, chunk + 1))
        assert two == ByteRange(0, manifest.chunks.chunk(1).stored.stop)


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_every_index_comes_back(variant: str) -> None:
    for path in manifests(variant):
        manifest, body = opened(path)
        raw = path.with_suffix(".indexes").read_bytes()
        name = SegmentName(manifest.topic, manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
        after = replace(name, base=manifest.next_base)
        parts = [body.transform.restore_index(raw[p.start : p.stop], "x", p.start) for p in manifest.layout.parts()]
        assert parts[0] == local_segment(variant, name, ".index").read_bytes()
        assert parts[1] == local_segment(variant, name, ".timeindex").read_bytes()
        assert parts[2] == local_segment(variant, after, ".snapshot").read_bytes()
        assert parts[3].startswith(b"0\n")
        if len(parts) > 4:
            assert parts[4] == local_segment(variant, name, ".txnindex").read_bytes()


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_a_changed_byte_of_what_is_encrypted_is_found(variant: str) -> None:
    path = manifests(variant)[0]
    manifest, body = opened(path)
    stored = path.with_suffix(".log").read_bytes()
    chunk = chunks_over(manifest.chunks, 0, 1)[0]
    for at in range(0, chunk.stored.stop, 97):
        raw = bytearray(stored[: chunk.stored.stop])
        raw[at] ^= 0x10
        if manifest.encryption is not None:
            with pytest.raises(CorruptFile, match=r"^the-log: byte 0: "):
                body.restore(raw, chunk.original, "the-log")
            continue
        with suppress(CorruptFile):  # zstd has no checksum here; the batches have theirs
            assert len(body.restore(raw, chunk.original, "the-log")) == chunk.original.length


@pytest.mark.parametrize("variant", TRANSFORMED)
def test_a_chunk_cut_off_anywhere_is_a_clear_error(variant: str) -> None:
    path = manifests(variant)[0]
    manifest, body = opened(path)
    chunk = chunks_over(manifest.chunks, 0, 1)[0]
    stored = path.with_suffix(".log").read_bytes()[: chunk.stored.stop]
    for size in (*range(40), *range(40, len(stored), 501), len(stored) - 1):
        with pytest.raises(CorruptFile, match=r"^the-log: byte 0: "):
            body.restore(stored[:size], chunk.original, "the-log")


def test_a_frame_that_promises_more_is_not_unpacked() -> None:
    """A bomb: 256 MiB of zeros in a few KiB."""
    bomb = Transform(compressed=True).store(bytes(256 * 1024 * 1024))
    body = Body(variable_chunks(1000, 1000, (len(bomb),)), Transform(compressed=True))
    with pytest.raises(CorruptFile, match="268435456 bytes, the manifest says 1000"):
        body.restore(bomb, ByteRange(0, 1000), "x")


@given(
    data=st.binary(min_size=1, max_size=3000),
    chunk_bytes=st.integers(1, 1000),
    compressed=st.booleans(),
    encrypted=st.booleans(),
    cut=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_what_is_stored_in_chunks_comes_back_by_any_range(
    data: bytes, chunk_bytes: int, compressed: bool, encrypted: bool, cut: tuple[float, float]
) -> None:
    transform = Transform(compressed, Secret(bytes(32), b"a" * 32) if encrypted else None)
    stored = [transform.store(data[at : at + chunk_bytes]) for at in range(0, len(data), chunk_bytes)]
    if compressed:
        index: ChunkIndex = variable_chunks(len(data), chunk_bytes, tuple(map(len, stored)))
    else:
        index = sealed_chunks(len(data), chunk_bytes, SEAL_BYTES if encrypted else 0)
    body, whole = Body(index, transform), b"".join(stored)
    assert index.stored_bytes == len(whole)
    start = int(min(cut) * (len(data) - 1))
    part = ByteRange(start, max(start + 1, int(max(cut) * len(data))))
    of = body.stored_range(part)
    assert body.restore(whole[of.start : of.stop], part, "x") == data[part.start : part.stop]
    assert transform.restore_index(transform.store_index(data), "x", 0) == data
    assert transform.store_index(b"") == b""


# --- keys ----------------------------------------------------------------------------------------------------------
def test_data_keys_are_wrapped_as_the_plugin_wraps_them() -> None:
    numbers = KEY.private_numbers()
    for length in (0, 1, 32, 256 - 2 * oaep.HASH_BYTES - 2):
        message = os.urandom(length)
        wrapped = oaep.wrap(numbers.public_numbers, message)
        assert len(wrapped) == 256
        assert oaep.unwrap(numbers, wrapped) == message
        assert oaep.wrap(numbers.public_numbers, message) != wrapped
    with pytest.raises(ValueError, match="too small"):
        oaep.wrap(numbers.public_numbers, bytes(127))


def test_what_is_not_wrapped_so_never_unwraps() -> None:
    numbers = KEY.private_numbers()
    wrapped = oaep.wrap(numbers.public_numbers, bytes(32))
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_numbers()
    wrong = [b"", wrapped[:-1], wrapped + b"\0", bytes(256), b"\xff" * 256, wrapped[:-1] + bytes([wrapped[-1] ^ 1])]
    for raw in wrong:
        with pytest.raises(ValueError, match="does not unwrap"):
            oaep.unwrap(numbers, raw)
    with pytest.raises(ValueError, match="does not unwrap"):
        oaep.unwrap(other, wrapped)


def test_a_key_that_is_not_there_is_named() -> None:
    path = manifests("enc")[0]
    manifest = parse_manifest(path.read_bytes(), path.name)
    with pytest.raises(KeyMissing, match="key 'key1'"):
        body_of(manifest, NO_KEYS, path.name)


@pytest.mark.parametrize("data_key", ["key1", "key1:", "key1:!", "key1:AAAA", "key1:" + "A" * 344])
def test_a_data_key_that_is_none_is_a_clear_error(data_key: str) -> None:
    with pytest.raises(CorruptFile, match=r"^m: byte 0: encryption\.dataKey"):
        recorded_ring().open(Encryption(data_key, "AAAA"), "m")
    with pytest.raises(CorruptFile, match=r"^m: byte 0: encryption\.aad"):
        recorded_ring().open(Encryption(data_key, "A"), "m")


def test_no_secret_is_ever_shown(tmp_path: Path) -> None:
    path = manifests("enc")[0]
    manifest = parse_manifest(path.read_bytes(), path.name)
    assert manifest.encryption is not None
    secret = recorded_ring().open(manifest.encryption, "m")
    assert repr(secret.key) not in repr(secret)
    assert repr(secret) == "Secret()"
    assert repr(recorded_ring()) == "KeyRing(key1)"
    assert repr(secret.key)[2:-1] not in repr(body_of(manifest, recorded_ring(), "m"))


def test_key_files_that_are_none_are_refused_without_a_word_of_them(tmp_path: Path) -> None:
    def written(name: str, raw: bytes) -> Path:
        (tmp_path / name).write_bytes(raw)
        return tmp_path / name

    def pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    cases = {
        tmp_path / "absent.pem": "cannot be read",
        tmp_path: "cannot be read",
        written("empty.pem", b""): "not a private key",
        written("text.pem", b"hunter2 " * 20): "not a private key",
        written("cut.pem", pem(KEY)[:400]): "not a private key",
        written("curve.pem", pem(ec.generate_private_key(ec.SECP256R1()))): "not an RSA key of 2048 bits",
    }
    for path, why in cases.items():
        with pytest.raises(StartRefused, match=why) as caught:
            load_ring([path])
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None or isinstance(caught.value.__cause__, OSError)
    assert load_ring([written("k.pem", pem(KEY))]).ids == {"k"}
