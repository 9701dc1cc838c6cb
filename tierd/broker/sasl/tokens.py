"""OAUTHBEARER (RFC 7628): JWTs, checked against keys in a file; nobody is asked over the network."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jwt

from tierd.base.errors import StartRefused, TierdError
from tierd.broker.sasl.exchange import AuthenticationFailed
from tierd.config.listeners import OAuth

_ALGORITHMS: Final = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
}
"""By type of key: a token does not choose what kind of key its key is."""
_REFUSED: Final = b'{"status":"invalid_token"}'
# What has matched is never tried in another way: who sends it has not said who it is, and could keep the loop for long.
_PAIR: Final = rb"[A-Za-z]++=[^\x01]*+\x01"
_TOKEN: Final = rb"auth=[Bb]earer ++([A-Za-z0-9._~+/=-]++)\x01"
_INITIAL: Final = re.compile(
    rb"n,(?:a=([^,\x00\x01]*+))?,\x01(?:(?!auth=)" + _PAIR + b")*+" + _TOKEN + b"(?:" + _PAIR + rb")*+\x01"
)


class BadKeys(TierdError):
    """The file has no key that tokens may be signed with."""


class TokenRefused(ValueError):
    """The token is not to be trusted; the text says why and does not hold it."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a good token speaks for."""

    user: str
    expires_ms: int
    """Wall clock, with the skew that it is granted."""


class Tokens:
    """The keys of one listener, and what its tokens must say."""

    def __init__(self, settings: OAuth) -> None:
        """Raises StartRefused when the file is of no use."""
        assert settings.jwks is not None
        self._settings = settings
        self._file = settings.jwks
        audience = [one.strip() for one in (settings.audience or "").split(",")]
        self._audience = [one for one in audience if one] or None
        try:
            self._keys = read_keys(self._file)
        except BadKeys as error:
            raise StartRefused(f"no OAUTHBEARER: {error}") from error

    @property
    def files(self) -> list[Path]:
        return [self._file]

    def renew(self) -> None:
        """Any thread. Raises BadKeys; then nothing has changed."""
        self._keys = read_keys(self._file)

    def check(self, token: str) -> Bearer:
        """Raises TokenRefused."""
        settings, claim = self._settings, self._settings.sub_claim
        try:
            key = self._key_for(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key.key,
                algorithms=sorted(_ALGORITHMS[str(key.key_type)]),
                audience=self._audience,
                issuer=settings.issuer,
                leeway=settings.clock_skew_s,
                options={"require": ["exp", "iat", *(["iss"] if settings.issuer else [])]},
            )
        except jwt.PyJWTError as error:
            raise TokenRefused(str(error)) from error
        user = claims.get(claim)
        if not isinstance(user, str) or not user or not _is_text(user):
            raise TokenRefused(f"the claim {claim} names nobody")
        return Bearer(user, (int(claims["exp"]) + settings.clock_skew_s) * 1000)

    def _key_for(self, header: dict[str, Any]) -> jwt.PyJWK:
        """By its id; a token without one is signed with the only key."""
        wanted = header.get("kid")
        found = [key for key in self._keys if wanted is None or key.key_id == wanted]
        if len(found) != 1:
            raise TokenRefused("no key in the file is the one that it is signed with")
        # It may be anything that JSON has.
        if str(header.get("alg")) not in _ALGORITHMS[str(found[0].key_type)]:
            raise TokenRefused("it is not signed as its key signs")
        return found[0]


def _is_text(name: str) -> bool:
    """Whether a registry and other clients can be told of it: JSON has halves of characters, too."""
    return all(not "\ud800" <= char <= "\udfff" for char in name)


def read_keys(path: Path) -> list[jwt.PyJWK]:
    """Public keys for signatures. Raises BadKeys."""
    try:
        rows = json.loads(path.read_bytes())["keys"]
    except OSError as error:
        raise BadKeys(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise BadKeys(f"{path}: not a JSON Web Key Set") from error
    keys = [key for row in rows if (key := _key(row)) is not None] if isinstance(rows, list) else []
    if not keys:
        raise BadKeys(f"{path}: no RSA or EC key for signatures is in it")
    return keys


def _key(row: Any) -> jwt.PyJWK | None:
    """None for keys of other kinds, and for those that are not for signatures."""
    if not isinstance(row, dict) or row.get("kty") not in _ALGORITHMS or row.get("use", "sig") != "sig":
        return None
    try:
        return jwt.PyJWK(row)
    except jwt.PyJWTError:
        return None


class TokenExchange:
    """One message, and one more when the token was refused."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._refused: str | None = None
        self.user: str | None = None
        self.expires_ms: int | None = None

    async def step(self, token: bytes) -> bytes:
        if self._refused is not None:
            raise AuthenticationFailed(self._refused, told=_REFUSED.decode())
        found = _INITIAL.fullmatch(token)
        if found is None:
            raise AuthenticationFailed("not a message of OAUTHBEARER")
        try:
            bearer = self._tokens.check(found[2].decode("ascii"))
        except TokenRefused as error:
            self._refused = f"the token is refused: {error}"
            return _REFUSED  # The client must say something before it hears more.
        if found[1] and found[1] != bearer.user.encode():
            told = "Authentication failed: Client requested an authorization id that is different from the token's"
            raise AuthenticationFailed("authorization id is not that of the token", told=told, user=bearer.user)
        self.user, self.expires_ms = bearer.user, bearer.expires_ms
        return b""
