"""CRC-32C of joined parts, and the header form."""

from hypothesis import given
from hypothesis import strategies as st

from tierd.remote import crc


def test_known_value() -> None:
    assert crc.crc32c(b"123456789") == 0xE3069283
    assert crc.to_header(0xE3069283) == "4waSgw=="


@given(st.lists(st.binary(max_size=300)))
def test_the_crc_of_the_whole_follows_from_the_parts(parts: list[bytes]) -> None:
    assert crc.combine_all((crc.crc32c(p), len(p)) for p in parts) == crc.crc32c(b"".join(parts))


def test_long_parts() -> None:
    a, b = bytes(range(256)) * 65_537, b"\xff" * (16 * 1024 * 1024)
    assert crc.combine(crc.crc32c(a), crc.crc32c(b), len(b)) == crc.crc32c(b, crc.crc32c(a))


@given(st.integers(0, 2**32 - 1))
def test_header_round_trip(value: int) -> None:
    assert crc.from_header(crc.to_header(value)) == value


def test_headers_that_say_nothing_of_the_bytes() -> None:
    assert crc.from_header(None) is None
    assert crc.from_header("4waSgw==-3") is None
    assert crc.from_header("not base64!") is None
    assert crc.from_header("AAAA") is None
