"""Mutated requests before a client is known: closed or refused, never a fault of the broker's, and others get in."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from broker.client import Client, request_frame
from broker.sasl.rig import PASSWORD, Scram, asking, bearer, log_in
from tierd.broker.sasl.exchange import AuthenticationFailed
from tierd.broker.sasl.tokens import TokenExchange

TRIES = 400
_FIRST = Scram("alice", PASSWORD, "sha256").first()


def _changed(random: Random, raw: bytes) -> bytes:
    data = bytearray(raw)
    for _ in range(random.randrange(1, 4)):
        kind = random.randrange(3)
        at = random.randrange(len(data))
        if kind == 0:
            data[at] = random.randrange(256)
        elif kind == 1:
            del data[at : at + random.randrange(8)]
        else:
            data[at:at] = random.randbytes(random.randrange(40))
        if not data:
            return b""
    return bytes(data)


@pytest.mark.parametrize("seed", range(3))
def test_mutated_conversations(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    with asking(tmp_path) as (broker, issuer):
        tokens = {
            "PLAIN": f"\0alice\0{PASSWORD}".encode(),
            "SCRAM-SHA-256": _FIRST,
            "OAUTHBEARER": bearer(issuer.token()),
        }
        for _ in range(TRIES):
            mechanism, token = random.choice(list(tokens.items()))
            talk = [
                request_frame(18, 3, 1, client_software_name="a", client_software_version="1"),
                request_frame(17, random.choice([0, 1]), 2, mechanism=mechanism),
                request_frame(36, random.choice([0, 1, 2]), 3, auth_bytes=token),
            ]
            spoiled = random.randrange(3)
            # The length word stays right: what is in the frame is what this is about.
            body = _changed(random, talk[spoiled][4:])
            talk[spoiled] = len(body).to_bytes(4, "big") + body
            with Client(broker.address) as client:
                client.send_raw(b"".join(talk))
                client.hear_all()
        with Client(broker.address) as client:
            assert log_in(client, "SCRAM-SHA-256").error_code == 0


def test_mutated_tokens_speak_for_nobody(tmp_path: Path) -> None:
    random = Random(5)
    with asking(tmp_path) as (broker, issuer):
        (entrance,) = broker.broker.listeners._entrances
        assert entrance.sasl is not None
        assert entrance.sasl.tokens is not None
        good = bearer(issuer.token())
        head, middle = good.index(b"eyJ"), good.rindex(b".")
        for _ in range(2_000):
            at = random.randrange(head, middle)  # the signature's last character has bits that mean nothing
            bad = good[:at] + bytes([good[at] ^ 1 << random.randrange(7)]) + good[at + 1 :]
            exchange = TokenExchange(entrance.sasl.tokens)
            with suppress(AuthenticationFailed):  # It may be no message at all any more.
                assert broker.run(exchange.step(bad)) == b'{"status":"invalid_token"}'
            assert exchange.user is None
