"""A daemon with a listener of each kind, users and keys; and how real clients are told to connect."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from kit.certificates import Authority, Signed
from kit.daemon import Daemon

USER, PASSWORD = "alice", "open sesame"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_FILE = """
[listener]
address = "127.0.0.1:0"
ssl.certificate.location = "{folder}/server.pem"
ssl.key.location = "{folder}/server.key"
ssl.ca.location = "{folder}/ca.pem"
ssl.principal.mapping.rules = "RULE:^CN=(.*?),OU=.*$/$1/L,DEFAULT"
sasl.enabled.mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
sasl.oauthbearer.jwks.location = "{folder}/jwks.json"
sasl.oauthbearer.expected.audience = "tierd"
{more}
[listeners.TLS]
address = "127.0.0.1:0"
security.protocol = "SSL"
[listeners.MUTUAL]
address = "127.0.0.1:0"
security.protocol = "SSL"
ssl.client.auth = "required"
[listeners.SASL]
address = "127.0.0.1:0"
security.protocol = "SASL_PLAINTEXT"
[listeners.BOTH]
address = "127.0.0.1:0"
security.protocol = "SASL_SSL"
"""


@dataclass
class Secured:
    """What runs, and who may connect how."""

    daemon: Daemon
    folder: Path
    authority: Authority
    shown: Signed
    """Of client alice."""
    key: Any

    def address(self, listener: str) -> str:
        """As its log says."""
        told = f": listening listener={listener} "
        lines = [line for line in self.daemon.log.read_text().splitlines() if told in line]
        return next(word for word in lines[-1].split() if word.startswith("listening=")).removeprefix("listening=")

    def token(self, seconds: int = 300, **claims: Any) -> str:
        now = int(time.time())
        full = {"sub": USER, "aud": "tierd", "iat": now, "exp": now + seconds, **claims}
        return jwt.encode(full, self.key, "RS256", headers={"kid": "k"})

    def librdkafka(self, listener: str, mechanism: str | None = None) -> dict[str, Any]:
        """Settings of confluent-kafka."""
        conf: dict[str, Any] = {"bootstrap.servers": self.address(listener), "security.protocol": _PROTOCOL[listener]}
        if listener != "SASL":
            conf["ssl.ca.location"] = str(self.authority.file)
        if listener == "MUTUAL":
            conf |= {"ssl.certificate.location": str(self.shown.certificate), "ssl.key.location": str(self.shown.key)}
        if mechanism == "OAUTHBEARER":
            conf["oauth_cb"] = lambda _: (self.token(), time.time() + 300)
        elif mechanism is not None:
            conf |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return conf | ({"sasl.mechanism": mechanism} if mechanism else {})

    def java(self, listener: str, mechanism: str | None = None, password: str = PASSWORD) -> Path:
        """A properties file of Kafka's own tools."""
        lines = {"security.protocol": _PROTOCOL[listener]}
        if listener != "SASL":
            lines |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.authority.file)}
        if listener == "MUTUAL":
            store = self.folder / "alice-store.pem"
            store.write_bytes(self.shown.key.read_bytes() + self.shown.certificate.read_bytes())
            lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
        if mechanism is not None:
            lines |= {"sasl.mechanism": mechanism} | self._jaas(mechanism, password)
        file = self.folder / f"{listener}-{mechanism}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        return file

    def _jaas(self, mechanism: str, password: str) -> dict[str, str]:
        package = "org.apache.kafka.common.security"
        if mechanism == "OAUTHBEARER":
            (self.folder / "token").write_text(self.token())
            return {
                "sasl.jaas.config": f"{package}.oauthbearer.OAuthBearerLoginModule required;",
                "sasl.login.callback.handler.class": f"{package}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": f"file://{self.folder}/token",
            }
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        return {"sasl.jaas.config": f'{package}.{module} required username="{USER}" password="{password}";'}


_PROTOCOL = {"TLS": "SSL", "MUTUAL": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL"}


@contextmanager
def running(root: Path, more: str = "", *words: str) -> Iterator[Secured]:
    """Started, with user alice; *more* goes into `[listener]`, *words* to its command line."""
    folder = root / "security"
    authority = Authority(folder)
    authority.sign("server")
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    row = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    (folder / "jwks.json").write_text(json.dumps({"keys": [{**row, "kid": "k"}]}))
    (root / "tierd.toml").write_text(_FILE.format(folder=folder, more=more))
    (root / "password").write_text(PASSWORD)
    daemon = Daemon(root / "data", extra=("-c", str(root / "tierd.toml"), *words))
    daemon.verb("users", "add", USER, "--password-file", str(root / "password"))
    try:
        yield Secured(daemon.start(), folder, authority, authority.sign(USER.capitalize(), file=USER), key)
    finally:
        daemon.kill()
