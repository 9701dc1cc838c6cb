"""Strangers at a SASL listener: what they cost, and who is removed while logging in."""

import asyncio
import base64
import json
import threading
from pathlib import Path

import pytest

from broker.client import Client
from broker.sasl.rig import PASSWORD, Pair, Scram, asking, authenticate, bearer, handshake, log_in
from kit.clock import FakeClock
from kit.tiers import until
from tierd.broker.sasl.scram import Mechanism, new_credential
from tierd.broker.sasl.users import Users
from tierd.broker.security import audit


def test_the_first_token_counts_and_what_it_costs_grows_with_its_length(rig: Pair) -> None:
    good = rig[1].token()
    for rest, answered in ((b"", b""), (b"auth=Bearer x\x01", b"")):
        with Client(rig[0].address) as client:
            handshake(client, "OAUTHBEARER")
            message = b"n,,\x01more=1\x01auth=Bearer " + good.encode() + b"\x01" + rest + b"\x01"
            assert authenticate(client, message).auth_bytes == answered
    with Client(rig[0].address) as client:
        handshake(client, "OAUTHBEARER")
        # As large as it may be: tried from each of its pairs on it would keep everybody waiting for many minutes.
        assert authenticate(client, b"n,,\x01" + b"auth=Bearer x\x01" * 35_000).error_code == 58


@pytest.mark.parametrize("algorithm", [[], {}, None, 1, ["ES256"]])
def test_a_token_may_say_anything_of_how_it_is_signed(rig: Pair, client: Client, algorithm: object) -> None:
    header = base64.urlsafe_b64encode(json.dumps({"alg": algorithm, "kid": "ec"}).encode()).decode().rstrip("=")
    handshake(client, "OAUTHBEARER")
    answer = authenticate(client, bearer(f"{header}.{rig[1].token().partition('.')[2]}"))
    assert answer.auth_bytes == b'{"status":"invalid_token"}'


@pytest.fixture
def eve(rig: Pair) -> Users:
    """The users, one of whom is about to go."""
    users = rig[0].broker.parts.users
    kept = new_credential(Mechanism.SCRAM_SHA_256, PASSWORD)
    rig[0].run(users.change({("eve", Mechanism.SCRAM_SHA_256): kept}, ()))
    return users


EVE = [("eve", Mechanism.SCRAM_SHA_256)]


def test_who_is_removed_half_way_through_scram_does_not_get_in(rig: Pair, client: Client, eve: Users) -> None:
    handshake(client, "SCRAM-SHA-256")
    scram = Scram("eve", PASSWORD, "sha256")
    final = scram.final(authenticate(client, scram.first()).auth_bytes)
    rig[0].run(eve.change({}, EVE))
    assert authenticate(client, final).error_code == 58
    assert client.closed()


def test_who_is_removed_while_the_password_is_hashed_does_not_get_in(rig: Pair, client: Client, eve: Users) -> None:
    handshake(client, "PLAIN")
    hashes = threading.Event()
    eve._hashing.submit(hashes.wait, 60)
    client.send(36, 2, auth_bytes=b"\0eve\0" + PASSWORD.encode())
    until("the password waits to be hashed", lambda: eve._hashing._work_queue.qsize() or None)
    rig[0].run(eve.change({}, EVE))
    hashes.set()
    assert client.answer(36, 2).error_code == 58
    assert client.closed()


def test_who_is_removed_is_closed_though_the_remover_has_left(rig: Pair, client: Client, eve: Users) -> None:
    log_in(client, "SCRAM-SHA-256", "eve")

    async def begun() -> None:
        task = asyncio.create_task(eve.change({}, EVE))
        await asyncio.sleep(0)
        task.cancel()

    rig[0].run(begun())
    assert client.closed()


def test_who_tries_one_name_after_the_other_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_LINES", 3)
    clock = FakeClock()
    with asking(tmp_path, clock) as (broker, _):
        for number in range(10):
            if number == 9:
                clock.advance(60_000)
            with Client(broker.address) as client:
                assert log_in(client, "PLAIN", f"nobody-{number}", "guess").error_code == 58
    said = [record.__dict__ for record in caplog.records if record.msg.startswith("authentication failed")]
    assert [one["user"] for one in said] == ["nobody-0", "nobody-1", "nobody-2", "nobody-9"]
    assert said[-1]["left_out"] == 6
