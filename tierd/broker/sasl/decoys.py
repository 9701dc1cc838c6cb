"""What is shown of a name that nobody has: as what is kept of others looks, and the same at each try.

Else iterations, salt or the time that a password takes would tell who exists.
"""

import hashlib
import hmac
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tierd.broker.sasl.scram import LEAST_ITERATIONS, SALT_BYTES, Credential, Mechanism, credential_of

_TEXT: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""Of these are the salts that Kafka's tools make."""


@dataclass(frozen=True, slots=True, order=True)
class Looks:
    """Of a credential, to who does not know the password."""

    mechanism: Mechanism
    iterations: int = LEAST_ITERATIONS
    salt_bytes: int = SALT_BYTES
    text: bool = False
    """The salt is text."""

    @classmethod
    def of(cls, mechanism: Mechanism, one: Credential) -> "Looks":
        return cls(mechanism, one.iterations, len(one.salt), set(one.salt) <= set(_TEXT))


class Decoys:
    """For one state of the users."""

    def __init__(self, kept: Mapping[tuple[str, Mechanism], Credential], secret: bytes) -> None:
        """*secret*: as long as it is the same, so are the decoys for the same kinds of users."""
        self._secret = secret
        of: defaultdict[Mechanism, set[Looks]] = defaultdict(set)
        first: dict[str, Looks] = {}
        for (user, mechanism), one in sorted(kept.items(), key=lambda item: item[0]):
            looks = Looks.of(mechanism, one)
            of[mechanism].add(looks)
            first.setdefault(user, looks)
        self._of = {mechanism: sorted(of[mechanism]) or [Looks(mechanism)] for mechanism in Mechanism}
        self._first = sorted(set(first.values())) or [Looks(Mechanism.SCRAM_SHA_256)]

    def of(self, mechanism: Mechanism, user: str) -> Credential:
        """For SCRAM."""
        return self._made(self._chosen(self._of[mechanism], user), user)

    def first(self, user: str) -> tuple[Mechanism, Credential]:
        """For PLAIN, which tries the first mechanism that a user has."""
        looks = self._chosen(self._first, user)
        return looks.mechanism, self._made(looks, user)

    def _chosen(self, looks: Sequence[Looks], user: str) -> Looks:
        number = int.from_bytes(hmac.digest(self._secret, b"looks" + user.encode(), "sha256"), "big")
        return looks[number % len(looks)]

    def _made(self, looks: Looks, user: str) -> Credential:
        seed = hmac.digest(self._secret, bytes([looks.mechanism]) + user.encode(), "sha256")
        salt = hashlib.shake_256(seed).digest(looks.salt_bytes)
        if looks.text:
            salt = bytes(_TEXT[byte % len(_TEXT)] for byte in salt)
        return credential_of(looks.mechanism, os.urandom(32), salt, looks.iterations)
