"""A broker with a SASL listener, users, and the tokens that a client of each mechanism sends."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.client import Client
from broker.running import Running, settings
from kit.clock import FakeClock
from tierd.broker.sasl.scram import Mechanism, new_credential
from tierd.config.access import Access
from tierd.config.listeners import MECHANISMS, Listener, OAuth, Sasl
from tierd.config.places import HostPort

PASSWORD = "open sesame, ünïcode"
USERS = {
    ("alice", Mechanism.SCRAM_SHA_256): 4096,
    ("alice", Mechanism.SCRAM_SHA_512): 8192,
    ("bob,=", Mechanism.SCRAM_SHA_512): 4096,
}
HANDSHAKE, AUTHENTICATE = 17, 36


class Issuer:
    """Signs tokens; its keys are in *file*."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.keys: dict[str, Any] = {
            "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "ec": ec.generate_private_key(ec.SECP256R1()),
        }
        self.publish(*self.keys)

    def publish(self, *names: str) -> None:
        algorithms = {"rsa": jwt.algorithms.RSAAlgorithm, "ec": jwt.algorithms.ECAlgorithm}
        rows = [json.loads(algorithms[name].to_jwk(self.keys[name].public_key())) | {"kid": name} for name in names]
        self.file.write_text(json.dumps({"keys": rows}))

    def token(self, key: str = "ec", *, header: Mapping[str, Any] | None = None, **claims: Any) -> str:
        now = int(time.time())
        full = {"sub": "carol", "iss": "https://issuer", "aud": "tierd", "iat": now, "exp": now + 300, **claims}
        algorithm = {"rsa": "RS256", "ec": "ES256"}[key]
        given = {name: value for name, value in full.items() if value is not None}
        return jwt.encode(given, self.keys[key], algorithm, headers={"kid": key, **(header or {})})


Pair = tuple[Running, Issuer]


def bearer(token: str, authzid: str = "") -> bytes:
    return f"n,{f'a={authzid}' if authzid else ''},\x01auth=Bearer {token}\x01\x01".encode()


@contextmanager
def asking(
    root: Path, clock: FakeClock | None = None, *, access: Access | None = None, **sasl: Any
) -> Iterator[tuple[Running, Issuer]]:
    """A broker with users; it listens with SASL_PLAINTEXT."""
    issuer = Issuer(root / "jwks.json")
    oauth = OAuth(jwks=issuer.file, issuer="https://issuer", audience="other, tierd")
    asked = {"mechanisms": frozenset(MECHANISMS), "failure_delay_ms": 1, "oauth": oauth, **sasl}
    listener = Listener(address=HostPort("127.0.0.1", 0), security_protocol="SASL_PLAINTEXT", sasl=Sasl(**asked))
    config = settings(root).model_copy(update={"listener": listener, "access": access or Access()})
    broker = Running(config, None, clock or FakeClock())
    broker.start()
    try:
        users = broker.broker.parts.users
        made = {key: new_credential(key[1], PASSWORD, iterations) for key, iterations in USERS.items()}
        broker.run(users.change(made, ()))
        yield broker, issuer
    finally:
        broker.stop()


def handshake(client: Client, mechanism: str, version: int = 1) -> Any:
    return client.call(HANDSHAKE, version, mechanism=mechanism)


def authenticate(client: Client, token: bytes, version: int = 2) -> Any:
    return client.call(AUTHENTICATE, version, auth_bytes=token)


class Scram:
    """The client's side, written from RFC 5802 alone."""

    def __init__(self, user: str, password: str, hash_name: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL") -> None:
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._password = password
        self._hash = hash_name

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, answer: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in answer.decode().split(","))
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), salt, iterations)
        without = f"c={base64.b64encode(b'n,,').decode()},r={fields['r']}"
        signed = f"{self._bare},{answer.decode()},{without}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, client_key).digest()
        proof = bytes(a ^ b for a, b in zip(client_key, hmac.digest(stored, signed, self._hash), strict=True))
        self.expected = b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        )
        return f"{without},p={base64.b64encode(proof).decode()}".encode()


def log_in(client: Client, mechanism: str, user: str = "alice", password: str = PASSWORD) -> Any:
    """The last answer."""
    assert handshake(client, mechanism).error_code == 0
    if mechanism == "PLAIN":
        return authenticate(client, f"\0{user}\0{password}".encode())
    scram = Scram(user, password, f"sha{mechanism[-3:]}")
    answer = authenticate(client, scram.first())
    assert answer.error_code == 0, answer
    last = authenticate(client, scram.final(answer.auth_bytes))
    assert last.error_code or last.auth_bytes == scram.expected
    return last
