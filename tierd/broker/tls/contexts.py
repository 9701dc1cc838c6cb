"""What a listener shows to TLS clients and asks of them; taken from its files again when they change."""

import ssl
from pathlib import Path
from typing import Final

from tierd.base.errors import StartRefused, TierdError
from tierd.base.session import ANONYMOUS, Principal
from tierd.config.listeners import Tls
from tierd.config.principal_rules import parse_rules

_VERIFY: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class BadCertificates(TierdError):
    """The files do not make a certificate with its key, or a CA."""


class TlsSide:
    """`context` is for connections that come now; those that are open keep theirs."""

    def __init__(self, settings: Tls, *, names: bool = True) -> None:
        """*names*: certificates of clients say who they are. Raises StartRefused when the files are of no use."""
        self._names = names
        self._settings = settings
        self.context: ssl.SSLContext
        self.expires_ms: int
        """Wall clock until which the certificate is good."""
        self._rules = parse_rules(settings.mapping_rules)
        try:
            self.renew()
        except BadCertificates as error:
            raise StartRefused(f"no TLS: {error}") from error

    @property
    def files(self) -> list[Path]:
        """Everything that it is made of."""
        named = (self._settings.certificate, self._settings.key, self._settings.ca)
        return [path for path in named if path is not None]

    def renew(self) -> None:
        """Any thread. Raises BadCertificates; then nothing has changed."""
        try:
            self.context, self.expires_ms = make_context(self._settings), _expires_ms(self._settings)
        except (OSError, ValueError) as error:  # a file went or changed while it was looked at
            raise BadCertificates(f"{self._settings.certificate}: {error}") from error

    def principal(self, sock: ssl.SSLSocket) -> Principal:
        """Whose certificate the client has shown. Raises NoName."""
        shown = sock.getpeercert(binary_form=True) if self._names else None
        if shown is None:
            return ANONYMOUS
        from tierd.broker.tls.identity import principal_of  # heavy, and only for certificates of clients

        return principal_of(shown, self._rules)


def make_context(settings: Tls) -> ssl.SSLContext:
    """TLS 1.2 or newer, nothing renegotiated. Raises BadCertificates."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        _show(context, settings)
        context.verify_mode = _VERIFY[settings.client_auth]
        if settings.ca is not None:
            context.load_verify_locations(cafile=str(settings.ca))
    except ssl.SSLError as error:
        raise BadCertificates(_fault(settings)) from error
    except OSError as error:
        files = f"{settings.certificate}, {settings.key} or {settings.ca}"
        raise BadCertificates(f"{error.filename or files}: {error.strerror}") from error
    return context


def _show(context: ssl.SSLContext, settings: Tls) -> None:
    assert settings.certificate is not None
    password = _password(settings) or ""
    key = None if settings.key is None else str(settings.key)
    # OpenSSL would ask a terminal for a password that it is not given.
    context.load_cert_chain(str(settings.certificate), key, lambda: password)


def _expires_ms(settings: Tls) -> int:
    from cryptography import x509  # heavy, and only for listeners with TLS

    assert settings.certificate is not None
    shown = x509.load_pem_x509_certificates(settings.certificate.read_bytes())[0]
    return int(shown.not_valid_after_utc.timestamp() * 1000)


def _password(settings: Tls) -> str | None:
    return None if settings.key_password is None else settings.key_password.get_secret_value()


def _fault(settings: Tls) -> str:
    """OpenSSL says little of what is wrong with a file. Raises OSError."""
    from cryptography import x509  # heavy, and only for who has a fault to find
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    assert settings.certificate is not None
    key = settings.key or settings.certificate
    password = _password(settings)
    try:
        shown = x509.load_pem_x509_certificates(settings.certificate.read_bytes())
    except ValueError:
        return f"{settings.certificate}: no certificate in PEM, or a broken one"
    try:
        its = load_pem_private_key(key.read_bytes(), None if password is None else password.encode()).public_key()
    except TypeError:
        return f"{key}: the key is encrypted: say ssl.key.password, or it is not: do not say it"
    except ValueError:
        return f"{key}: no key in PEM, or ssl.key.password is wrong"
    if its != shown[0].public_key():
        return f"{key}: the key is not that of the first certificate in {settings.certificate}"
    return f"{settings.ca}: no certificates of a CA in PEM, or {settings.certificate} is too weak"
