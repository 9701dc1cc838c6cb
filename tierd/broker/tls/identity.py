"""Whose certificate it is: its name as Kafka has it (RFC 2253, as Java writes it), made that of a user by rules."""

from collections.abc import Iterable, Sequence
from typing import Final

from cryptography import x509
from cryptography.x509.name import NameAttribute

from tierd.base.session import USER, Principal
from tierd.config.principal_rules import Rule, mapped

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')


class NoName(ValueError):
    """The certificate's name becomes no user's."""


def principal_of(certificate: bytes, rules: Sequence[Rule]) -> Principal:
    """Who shows *certificate* (DER). Raises NoName."""
    name = distinguished_name(x509.load_der_x509_certificate(certificate).subject)
    user = mapped(rules, name)
    if not user:
        raise NoName(f"ssl.principal.mapping.rules give {name} no name")
    return Principal(USER, user)


def distinguished_name(name: x509.Name) -> str:
    """The last part first; types without a keyword as numbers, their values as bytes."""
    return ",".join(_joined(part) for part in reversed(name.rdns))


def _joined(attributes: "Iterable[NameAttribute[str | bytes]]") -> str:
    return "+".join(map(_shown, attributes))


def _shown(attribute: "NameAttribute[str | bytes]") -> str:
    oid = attribute.oid.dotted_string
    keyword, value = _KEYWORDS.get(oid), attribute.value
    if keyword is None or isinstance(value, bytes):
        return f"{keyword or oid}=#{_der(attribute).hex()}"
    text = "".join(f"\\{char}" if char in _ESCAPED else char for char in value)
    trailing = len(text) - len(text.rstrip(" "))
    leading = len(text) - len(text.lstrip(" ")) if trailing < len(text) else 0
    return keyword + "=" + "\\ " * leading + text[leading : len(text) - trailing] + "\\ " * trailing


def _der(attribute: "NameAttribute[str | bytes]") -> bytes:
    """Its value with tag and length: what follows the type in a name of this attribute alone."""
    raw = x509.Name([x509.RelativeDistinguishedName([attribute])]).public_bytes()
    for _ in range(3):  # SEQUENCE of SET of SEQUENCE
        raw = raw[_body(raw) :]
    return raw[_body(raw) + raw[1] :]  # behind the type, which is short


def _body(raw: bytes) -> int:
    """Where the body of a DER value begins."""
    return 2 if raw[1] < 0x80 else 2 + (raw[1] & 0x7F)
