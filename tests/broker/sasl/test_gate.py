"""The gate of a SASL listener: who gets in by which mechanism, and everything that does not get in."""

import logging
from pathlib import Path

import pytest

from broker.client import Client
from broker.running import Running
from broker.sasl.rig import PASSWORD, Pair, Scram, asking, authenticate, bearer, handshake, log_in
from kit.clock import FakeClock
from tierd.broker.sasl.scram import Mechanism
from tierd.broker.server import UNKNOWN_MS

METADATA, VERSIONS = 3, 18


def principals(broker: Running) -> list[str]:
    return broker.call(lambda: [str(one.session.principal) for one in broker.broker.server._connections])


def works(client: Client) -> bool:
    return bool(client.call(METADATA, 9, topics=None).brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_gets_in_with_the_password(rig: Pair, client: Client, mechanism: str) -> None:
    answer = log_in(client, mechanism)
    assert (answer.error_code, answer.error_message, answer.session_lifetime.total_seconds()) == (0, "", 0)
    assert works(client)
    assert "User:alice" in principals(rig[0])


def test_names_with_commas_and_either_hash(rig: Pair) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512"):
        with Client(rig[0].address) as client:
            assert log_in(client, mechanism, "bob,=").error_code == 0
            assert works(client)
    with Client(rig[0].address) as client:
        assert log_in(client, "SCRAM-SHA-256", "bob,=").error_code == 58


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_a_good_token_gets_in(rig: Pair, client: Client, key: str) -> None:
    broker, issuer = rig
    handshake(client, "OAUTHBEARER")
    exp = broker.clock.now_ms() // 1000 + 10**9
    answer = authenticate(client, bearer(issuer.token(key, exp=exp), "carol"))
    assert answer.error_code == 0
    assert 0 < answer.session_lifetime.total_seconds() <= 10**9
    assert works(client)
    assert "User:carol" in principals(broker)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "nobody", "User:alice", "alice\n"])
def test_a_wrong_password_tells_nothing_of_the_user(
    rig: Pair, client: Client, mechanism: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = log_in(client, mechanism, user, "guess me")
    assert answer.error_code == 58
    assert answer.error_message == (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert client.closed()
    (said,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert said.__dict__["user"] == user.replace("\n", "\\n")
    assert "guess me" not in str(said.__dict__)


def test_an_unknown_user_is_shown_the_same_salt_each_time(rig: Pair) -> None:
    salts = []
    for _ in range(2):
        with Client(rig[0].address) as client:
            handshake(client, "SCRAM-SHA-256")
            answer = authenticate(client, Scram("nobody", "x", "sha256").first()).auth_bytes.decode()
            salts.append(answer.split(",", 1)[1])
    assert salts[0] == salts[1]
    assert salts[0].endswith(",i=4096")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"alice\0x", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0\0x", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0" + PASSWORD.encode(),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"\xff\0\xff\0\xff", "Authentication failed during authentication due to invalid credentials with SASL "),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0" * 300_000, "Invalid SASL/PLAIN response: expected 3 tokens, got 300001"),
    ],
)
def test_what_plain_refuses(client: Client, token: bytes, told: str) -> None:
    handshake(client, "PLAIN")
    answer = authenticate(client, token)
    assert answer.error_code == 58
    assert answer.error_message.startswith(told)
    assert client.closed()


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=alice",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a\x00b",
        b"n,a=bob,n=alice,r=abc",
        b"n,,m=x,n=alice,r=abc",
        b"\xff",
        b"n,,n=" + b"a" * 5000 + b",r=abc",
    ],
)
def test_what_scram_refuses_at_once(client: Client, first: bytes) -> None:
    handshake(client, "SCRAM-SHA-256")
    assert authenticate(client, first).error_code == 58
    assert client.closed()


@pytest.mark.parametrize("change", ["nonce", "binding", "proof", "length", "base64", "twice"])
def test_what_scram_refuses_in_the_end(client: Client, change: str) -> None:
    handshake(client, "SCRAM-SHA-256")
    scram = Scram("alice", PASSWORD, "sha256")
    final = scram.final(authenticate(client, scram.first()).auth_bytes)
    without, proof = final.rsplit(b",p=", 1)
    changed = {
        "nonce": without[:-1] + b"!,p=" + proof,
        "binding": final.replace(b"c=biws", b"c=eSws"),
        "proof": without + b",p=" + bytes([proof[0] ^ 1]) + proof[1:],
        "length": without + b",p=AAAA",
        "base64": without + b",p=A",
        "twice": scram.first(),
    }[change]
    assert authenticate(client, changed).error_code == 58
    assert client.closed()


def test_what_was_heard_cannot_be_said_again(rig: Pair) -> None:
    scram = Scram("alice", PASSWORD, "sha256")
    heard = []
    for attempt in range(2):
        with Client(rig[0].address) as client:
            handshake(client, "SCRAM-SHA-256")
            answer = authenticate(client, scram.first())
            heard.append(scram.final(answer.auth_bytes))
            assert authenticate(client, heard[0]).error_code == (58 if attempt else 0)


NOW = 1_900_000_000


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"exp": None},
        {"iat": None},
        {"iat": 4_000_000_000, "exp": 4_000_000_300},
        {"nbf": 4_000_000_000, "exp": 4_000_000_300},
        {"iss": "https://other"},
        {"iss": None},
        {"aud": "others"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"sub": "half a \ud83d"},
        {"header": {"kid": "unknown"}},
        {"header": {"kid": "rsa"}},
    ],
)
def test_tokens_that_are_refused(rig: Pair, client: Client, claims: dict[str, object]) -> None:
    handshake(client, "OAUTHBEARER")
    answer = authenticate(client, bearer(rig[1].token(**claims)))  # type: ignore[arg-type]
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = authenticate(client, b"\x01")
    assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}')
    assert client.closed()


def test_tokens_that_are_no_tokens(rig: Pair) -> None:
    good = rig[1].token()
    head, body, signature = good.split(".")
    for token in (f"{head}.{body}.", f"{head}.{body}.{'A' * len(signature)}", "a.b.c", "x" * 400_000, UNSIGNED):
        with Client(rig[0].address) as client:
            handshake(client, "OAUTHBEARER")
            assert authenticate(client, bearer(token)).auth_bytes == b'{"status":"invalid_token"}'
    for message in (b"", b"\x01", b"n,,", bearer(good)[:-1], bearer(good, "dave"), b"auth=Bearer " + good.encode()):
        with Client(rig[0].address) as client:
            handshake(client, "OAUTHBEARER")
            assert authenticate(client, message).error_code == 58
            assert client.closed()


UNSIGNED = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJjYXJvbCIsImV4cCI6NDAwMDAwMDAwMCwiaWF0IjoxfQ."


def test_keys_that_are_renewed_count_at_once(rig: Pair) -> None:
    broker, issuer = rig
    (listener,) = broker.broker.listeners._entrances
    assert listener.sasl is not None
    assert listener.sasl.tokens is not None
    issuer.publish("rsa")
    listener.sasl.tokens.renew()
    for key, answered in (("ec", b'{"status":"invalid_token"}'), ("rsa", b"")):
        with Client(broker.address) as client:
            handshake(client, "OAUTHBEARER")
            assert authenticate(client, bearer(issuer.token(key))).auth_bytes == answered
    issuer.publish("rsa", "ec")
    listener.sasl.tokens.renew()


def test_nothing_else_gets_through_before(rig: Pair) -> None:
    with Client(rig[0].address) as client:
        assert client.call(VERSIONS, 3, client_software_name="a", client_software_version="1").error_code == 0
        client.send(METADATA, 9, topics=None)
        assert client.closed()
    with Client(rig[0].address) as client:
        handshake(client, "SCRAM-SHA-256")
        client.send(METADATA, 9, topics=None)
        assert client.closed()
    with Client(rig[0].address) as client:
        client.send(36, 2, auth_bytes=b"\0alice\0x")
        assert client.closed()
    with Client(rig[0].address) as client:
        client.call(VERSIONS, 0)
        client.send(VERSIONS, 0)
        assert client.closed()
    with Client(rig[0].address) as client:
        client.send_raw((600_000).to_bytes(4, "big"))  # above sasl.server.max.receive.size
        assert client.closed()


def test_a_mechanism_that_is_not_enabled(rig: Pair, client: Client) -> None:
    answer = handshake(client, "GSSAPI")
    assert answer.error_code == 33
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    assert client.closed()


def test_the_oldest_way_has_tokens_without_requests(rig: Pair, client: Client) -> None:
    handshake(client, "SCRAM-SHA-512", version=0)
    scram = Scram("alice", PASSWORD, "sha512")
    client.send_raw(len(scram.first()).to_bytes(4, "big") + scram.first())
    final = scram.final(client.frame())
    client.send_raw(len(final).to_bytes(4, "big") + final)
    assert client.frame() == scram.expected
    assert works(client)


def test_once_in_sasl_is_over(client: Client) -> None:
    log_in(client, "PLAIN")
    assert handshake(client, "PLAIN").error_code == 34
    answer = authenticate(client, b"\0alice\0x")
    assert (answer.error_code, answer.error_message) == (
        34,
        "SaslAuthenticate request received after successful authentication",
    )
    assert works(client)


def test_a_large_request_is_for_who_is_known(client: Client) -> None:
    log_in(client, "PLAIN")
    names = [{"name": f"t{number:0100}"} for number in range(8_000)]
    answer = client.call(METADATA, 9, topics=names, allow_auto_topic_creation=False)
    assert len(answer.topics) == len(names)


def test_who_loses_the_last_password_is_closed(rig: Pair) -> None:
    broker, issuer = rig
    users = broker.broker.parts.users
    kept = broker.run(users.credential("alice", Mechanism.SCRAM_SHA_256))
    assert kept is not None
    broker.run(users.change({("eve", mechanism): kept for mechanism in Mechanism}, ()))
    with Client(broker.address) as eve, Client(broker.address) as alice, Client(broker.address) as token:
        log_in(eve, "SCRAM-SHA-256", "eve")
        log_in(alice, "PLAIN")
        handshake(token, "OAUTHBEARER")
        exp = broker.clock.now_ms() // 1000 + 10**9
        assert authenticate(token, bearer(issuer.token(sub="eve", exp=exp))).error_code == 0
        broker.run(users.change({}, [("eve", Mechanism.SCRAM_SHA_512)]))
        assert works(eve)
        broker.run(users.change({}, [("eve", Mechanism.SCRAM_SHA_256)]))
        assert eve.closed()
        assert works(alice)
        assert works(token)


def test_a_failure_is_answered_late(tmp_path: Path) -> None:
    with asking(tmp_path, failure_delay_ms=60_000) as (broker, _), Client(broker.address) as client:
        handshake(client, "PLAIN")
        client.send(36, 2, auth_bytes=b"\0alice\0wrong")
        with Client(broker.address) as other:
            log_in(other, "PLAIN")
            assert works(other)
        assert not client.has_answer()


def test_sessions_end_unless_the_client_authenticates_again(tmp_path: Path) -> None:
    clock = FakeClock()
    with asking(tmp_path, clock, max_reauth_ms=60_000) as (broker, issuer):
        with Client(broker.address) as client, Client(broker.address) as lazy, Client(broker.address) as token:
            for one in (client, lazy):
                assert log_in(one, "SCRAM-SHA-256").session_lifetime.total_seconds() == 60
            handshake(token, "OAUTHBEARER")
            exp = clock.now_ms() // 1000 + 10**9
            assert authenticate(token, bearer(issuer.token(exp=exp))).session_lifetime.total_seconds() == 60
            clock.advance(50_000)
            assert works(lazy)
            assert log_in(client, "SCRAM-SHA-256").error_code == 0
            assert handshake(client, "SCRAM-SHA-256").error_code == 34  # sooner than a second after the last time
            clock.advance(10_001)
            assert works(client)
            lazy.send(METADATA, 9, topics=None)
            assert lazy.closed()
            clock.advance(50_000)
            assert log_in(client, "SCRAM-SHA-256").error_code == 0  # late, but before anything else
            assert works(client)
        assert broker.broker.counters.sessions_expired == 1


def test_who_says_nothing_is_closed(tmp_path: Path) -> None:
    clock = FakeClock()
    with asking(tmp_path, clock) as (broker, _), Client(broker.address) as silent, Client(broker.address) as known:
        log_in(known, "PLAIN")
        silent.call(VERSIONS, 0)
        broker.call(broker.broker.server._sweep)
        clock.advance(UNKNOWN_MS + 1)
        broker.call(broker.broker.server._sweep)
        assert silent.closed()
        assert works(known)
