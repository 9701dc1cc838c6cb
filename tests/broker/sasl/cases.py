"""Questions about users and SASL, for tierd and for a real Kafka; kafka-users.json has what Kafka 4.3.1 answered.

Kafka ran with sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512, connections.max.reauth.ms=60000 and the PLAIN
users alice (secret) and bob (secret2).
"""

import json
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from broker.client import Client
from broker.sasl.rig import AUTHENTICATE, HANDSHAKE, Scram
from tierd.broker.sasl.scram import Mechanism, salted

RECORDING = Path(__file__).with_name("kafka-users.json")
DESCRIBE, ALTER, METADATA, VERSIONS = 50, 51, 3, 18
Address = tuple[str, int]


def _kept(user: str, mechanism: int = 1, iterations: int = 4096, password: str = "secret") -> dict[str, Any]:
    kind = Mechanism(mechanism) if mechanism in list(Mechanism) else Mechanism.SCRAM_SHA_256
    raw = salted(kind, password, b"a salt of the test", max(iterations, 1))
    facts = {"name": user, "mechanism": mechanism, "iterations": iterations, "salt": b"a salt of the test"}
    return {**facts, "salted_password": raw}


def _gone(user: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


ALTERATIONS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]]]] = {
    "add": ([], [_kept("alice"), _kept("bob", 2, password="secret2")]),
    "add another": ([], [_kept("alice", 2, 8192)]),
    "add again": ([], [_kept("alice")]),
    "twice the same": ([], [_kept("carl"), _kept("carl", iterations=5000)]),
    "delete and add": ([_gone("alice")], [_kept("alice")]),
    "too few": ([], [_kept("carl", iterations=4095)]),
    "too many": ([], [_kept("carl", iterations=16385)]),
    "unknown mechanism": ([], [_kept("carl", 3)]),
    "mechanism 0": ([_gone("alice", 0)], []),
    "no name": ([_gone("")], [_kept("")]),
    "delete what is not there": ([_gone("nobody"), _gone("bob", 1)], []),
    "good and bad of two": ([_gone("nobody")], [_kept("erik")]),
    "nothing": ([], []),
    "delete": ([_gone("erik")], []),
}
DESCRIPTIONS: dict[str, list[str] | None] = {
    "all": None,
    "none named": [],
    "one": ["alice"],
    "unknown": ["nobody"],
    "some": ["bob", "nobody", "alice"],
    "twice": ["alice", "bob", "alice"],
    "no name": [""],
}


def said_by(plain: Address, sasl: Address) -> dict[str, Any]:
    """By name: what is asked in plaintext of *plain*, and of *sasl* what comes of each conversation."""
    found: dict[str, Any] = {}
    with Client(plain) as client:
        for name, (deletions, upsertions) in ALTERATIONS.items():
            answer = client.call(ALTER, 0, deletions=deletions, upsertions=upsertions)
            rows = [[row.user, int(row.error_code), row.error_message] for row in answer.results]
            found[f"alter: {name}"] = sorted(rows)
        for name, users in DESCRIPTIONS.items():
            asked = None if users is None else [{"name": user} for user in users]
            found[f"describe: {name}"] = _described(client.call(DESCRIBE, 0, users=asked))
        found["plaintext: handshake"] = _shown(client.call(HANDSHAKE, 1, mechanism="PLAIN"))
    for name, talk in TALKS.items():
        with Client(sasl) as client:
            found[f"sasl: {name}"] = list(_heard(client, talk))
    return found


def _described(answer: Any) -> list[Any]:
    rows = [
        [
            row.user,
            int(row.error_code),
            row.error_message,
            sorted([info.mechanism, info.iterations] for info in row.credential_infos),
        ]
        for row in answer.results
    ]
    return [int(answer.error_code), answer.error_message, sorted(rows)]


def _shown(answer: Any) -> list[Any]:
    """What is the same each time: no nonce."""
    fields = ("error_code", "error_message", "mechanisms", "auth_bytes", "session_lifetime")
    values = [getattr(answer, field, None) for field in fields]
    code, message, mechanisms, token, lifetime = values
    text = None if not token else bytes(token).decode().split(",")[-1][:2]
    return [int(code), message, sorted(mechanisms or ()), text, None if lifetime is None else lifetime.total_seconds()]


Say = tuple[int, int, dict[str, Any]]
Talk = Callable[[], Generator[Say, Any, None]]
"""What is said next, given the answer."""


def _heard(client: Client, talk: "Talk") -> Iterator[Any]:
    said = talk()
    step = next(said, None)
    while step is not None:
        key, version, fields = step
        try:
            client.send(key, version, **fields)
            answer = client.answer(key, version)
        except ConnectionError:
            yield "closed"
            return
        yield _shown(answer) if key in (HANDSHAKE, AUTHENTICATE) else "answered"
        try:
            step = said.send(answer)
        except StopIteration:
            return


def _told(*steps: Say) -> Talk:
    def talk() -> Generator[Say, Any, None]:
        for step in steps:  # noqa: UP028  (`yield from` would send the answers to a tuple)
            yield step

    return talk


def _handshake(mechanism: str, version: int = 1) -> Say:
    return HANDSHAKE, version, {"mechanism": mechanism}


def _token(token: bytes, version: int = 2) -> Say:
    return AUTHENTICATE, version, {"auth_bytes": token}


_ASK: Say = (METADATA, 9, {"topics": (), "allow_auto_topic_creation": False})
_VERSIONS: Say = (VERSIONS, 3, {"client_software_name": "test", "client_software_version": "1"})


def _plain(token: bytes, *more: Say, version: int = 2) -> Talk:
    return _told(_VERSIONS, _handshake("PLAIN"), _token(token, version), *more)


def _scram(user: str, password: str, mechanism: str) -> Talk:
    def talk() -> Generator[Say, Any, None]:
        yield _handshake(mechanism)
        scram = Scram(user, password, f"sha{mechanism[-3:]}")
        answer = yield _token(scram.first())
        if answer.error_code:
            return
        yield _token(scram.final(answer.auth_bytes))
        yield _ASK

    return talk


_GOOD = _token(b"\0alice\0secret")
_AGAIN = (_handshake("PLAIN"), _GOOD)
TALKS: dict[str, Talk] = {
    "plain": _plain(b"\0alice\0secret", _ASK),
    "plain, oldest version": _plain(b"\0alice\0secret", _ASK, version=0),
    "plain, authorization id": _plain(b"alice\0alice\0secret", _ASK),
    "plain, another authorization id": _plain(b"bob\0alice\0secret", _ASK),
    "plain, wrong password": _plain(b"\0alice\0guess", _ASK),
    "plain, unknown user": _plain(b"\0nobody\0guess", _ASK),
    "plain, no password": _plain(b"\0alice\0", _ASK),
    "plain, no user": _plain(b"\0\0secret", _ASK),
    "plain, two parts": _plain(b"alice\0secret", _ASK),
    "plain, empty": _plain(b"", _ASK),
    "scram 256": _scram("alice", "secret", "SCRAM-SHA-256"),
    "scram 512": _scram("alice", "secret", "SCRAM-SHA-512"),
    "scram, wrong password": _scram("alice", "guess", "SCRAM-SHA-256"),
    "scram, nonsense": _told(_handshake("SCRAM-SHA-256"), _token(b"nonsense"), _ASK),
    "unknown mechanism": _told(_VERSIONS, _handshake("GSSAPI"), _GOOD),
    "metadata first": _told(_ASK),
    "metadata after versions": _told(_VERSIONS, _ASK),
    "versions twice": _told(_VERSIONS, _VERSIONS, _handshake("PLAIN")),
    "handshake twice": _told(_handshake("PLAIN"), _handshake("PLAIN"), _GOOD),
    "versions after the handshake": _told(_handshake("PLAIN"), _VERSIONS, _GOOD),
    "token first": _told(_GOOD, _ASK),
    "token again": _told(_handshake("PLAIN"), _GOOD, _GOOD, _ASK),
    "again at once": _told(_handshake("PLAIN"), _GOOD, _handshake("PLAIN"), _token(b"\0bob\0secret2"), _ASK),
    "again at once by another mechanism": _told(
        *_AGAIN, _handshake("SCRAM-SHA-256"), _token(b"n,,n=alice,r=abc"), _ASK
    ),
    "again and again": _told(_handshake("PLAIN"), _GOOD, _handshake("PLAIN"), _GOOD, _handshake("PLAIN"), _ASK),
}


def record(plain: Address, sasl: Address) -> None:
    """Write down what a real Kafka says."""
    RECORDING.write_text(json.dumps(said_by(plain, sasl), indent=1) + "\n")
