"""A certificate authority of the test's own, and what it signs."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Signed:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Authority:
    """Makes files below *folder*."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key, x509.BasicConstraints(True, 0)).sign(self._key, hashes.SHA256())
        self.file = folder / "ca.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def sign(
        self, name: str, *, file: str | None = None, password: str | None = None, days: int = 2, unit: str = "tests"
    ) -> Signed:
        """`CN=name,OU=unit` for localhost; a second one with the same *file* takes the first one's place."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [(NameOID.ORGANIZATIONAL_UNIT_NAME, unit), (NameOID.COMMON_NAME, name)]
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(subject, key, x509.BasicConstraints(False, None), days)
        made = builder.add_extension(x509.SubjectAlternativeName(addresses), False).sign(self._key, hashes.SHA256())
        signed = Signed(self._folder / f"{file or name}.pem", self._folder / f"{file or name}.key")
        locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        pem = serialization.Encoding.PEM
        signed.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
        signed.certificate.write_bytes(made.public_bytes(pem))
        return signed

    def client(self, shown: Signed | None = None) -> ssl.SSLContext:
        """How somebody connects who trusts this authority."""
        context = ssl.create_default_context(cafile=str(self.file))
        if shown is not None:
            context.load_cert_chain(str(shown.certificate), str(shown.key))
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, basic: x509.BasicConstraints, days: int = 2
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 4 * _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(basic, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )
