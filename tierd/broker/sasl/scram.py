"""SCRAM (RFC 5802) as Kafka speaks it: what is kept of a password, and the server's side of the exchange.

Names and passwords are taken as they are (UTF-8, no SASLprep), as Kafka does.
"""

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from tierd.broker.sasl.exchange import AuthenticationFailed

LEAST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""As in Kafka's ScramMechanism."""
SALT_BYTES: Final = 20
_NONCE_BYTES: Final = 18
_NAME_BYTES: Final = 1024
"""No longer name is looked up."""


class Mechanism(IntEnum):
    """Numbers as on the wire."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def text(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        return f"sha{self.text[-3:]}"

    @classmethod
    def named(cls, text: str) -> "Mechanism":
        """Raises KeyError."""
        return cls[text.replace("-", "_")]


@dataclass(frozen=True, slots=True)
class Credential:
    """What suffices to check a password, and to prove that one knows it; the password itself does not come out."""

    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Takes milliseconds: not for the loop."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: Mechanism, salted_password: bytes, salt: bytes, iterations: int) -> Credential:
    """What is kept of a salted password."""
    client_key = _hmac(mechanism, salted_password, b"Client Key")
    stored_key = hashlib.new(mechanism.hash_name, client_key).digest()
    return Credential(salt, iterations, stored_key, _hmac(mechanism, salted_password, b"Server Key"))


def new_credential(mechanism: Mechanism, password: str, iterations: int = LEAST_ITERATIONS) -> Credential:
    """With a salt of its own. Takes milliseconds."""
    salt = os.urandom(SALT_BYTES)
    return credential_of(mechanism, salted(mechanism, password, salt, iterations), salt, iterations)


def matches(mechanism: Mechanism, credential: Credential, password: str) -> bool:
    """Whether *password* is the one. Takes milliseconds."""
    tried = salted(mechanism, password, credential.salt, credential.iterations)
    made = credential_of(mechanism, tried, credential.salt, credential.iterations)
    return hmac.compare_digest(made.stored_key, credential.stored_key)


LookUp = Callable[[str, Mechanism], Awaitable[tuple[Credential, bool]]]
"""What is kept, and whether there is such a user: else it only looks so."""

_TEXT: Final = r"[^\x00,]*"
_NONCE: Final = r"[!-+\--~]+"
_BASE64: Final = "[A-Za-z0-9/+]+=*"
_FIRST: Final = re.compile(
    rf"(?P<gs2>[ny],(a=(?P<authzid>{_TEXT}))?,)(?P<bare>n=(?P<name>{_TEXT}),r=(?P<nonce>{_NONCE})(,.*)?)"
)
_FINAL: Final = re.compile(
    rf"(?P<without>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE})(,.*?)?),p=(?P<proof>{_BASE64})"
)


class ScramExchange:
    """The server's side: two messages each."""

    expires_ms = None

    def __init__(self, mechanism: Mechanism, look_up: LookUp) -> None:
        self._mechanism = mechanism
        self._look_up = look_up
        self.user: str | None = None
        self._begun: _Begun | None = None

    async def step(self, token: bytes) -> bytes:
        message = _text(token)
        if self._begun is None:
            return await self._first(message)
        begun, self._begun = self._begun, None
        return await self._final(message, begun)

    async def _first(self, message: str) -> bytes:
        found = _FIRST.fullmatch(message)
        if self.user is not None or found is None or len(found["name"]) > _NAME_BYTES:
            raise AuthenticationFailed("not the first message of SCRAM")
        name = _unescaped(found["name"])
        if found["authzid"] and _unescaped(found["authzid"]) != name:
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise AuthenticationFailed("authorization id is not the user name", told=told, user=name)
        credential, known = await self._look_up(name, self._mechanism)
        nonce = found["nonce"] + base64.b64encode(os.urandom(_NONCE_BYTES)).decode()
        answer = f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"
        self._begun = _Begun(name, credential, known, found["gs2"], f"{found['bare']},{answer}", nonce)
        return answer.encode()

    async def _final(self, message: str, begun: "_Begun") -> bytes:
        found = _FINAL.fullmatch(message)
        if found is None:
            raise AuthenticationFailed("not the final message of SCRAM", user=begun.name)
        if _decoded(found["binding"]) != begun.gs2.encode() or found["nonce"] != begun.nonce:
            raise AuthenticationFailed("the final message of SCRAM belongs to no first one", user=begun.name)
        signed = f"{begun.signed},{found['without']}".encode()
        signature = _hmac(self._mechanism, begun.credential.stored_key, signed)
        proof = _decoded(found["proof"])
        if len(proof) != len(signature):
            raise AuthenticationFailed("a proof of the wrong length", user=begun.name)
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        tried = hashlib.new(self._mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(tried, begun.credential.stored_key) or not begun.known:
            raise AuthenticationFailed("wrong password" if begun.known else "no such user", user=begun.name)
        if await self._look_up(begun.name, self._mechanism) != (begun.credential, True):
            raise AuthenticationFailed("the password was changed or removed meanwhile", user=begun.name)
        self.user = begun.name
        return b"v=" + base64.b64encode(_hmac(self._mechanism, begun.credential.server_key, signed))


@dataclass(frozen=True, slots=True)
class _Begun:
    """Between the first and the final message."""

    name: str
    credential: Credential
    known: bool
    gs2: str
    signed: str
    nonce: str


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise AuthenticationFailed("a token that is no UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise AuthenticationFailed("a token that is no base64") from None


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise AuthenticationFailed("a name with = that means nothing")
    return name.replace("=2C", ",").replace("=3D", "=")


def _hmac(mechanism: Mechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)
