"""Whose certificate it is, which are refused, which files are of no use, and renewal."""

import asyncio
import ssl
from pathlib import Path

import pytest

from broker.serving import answer_of, echo, framed, run, until
from broker.tls.secure import refused, secured, serving, side
from kit.certificates import Authority, Signed
from tierd.base.errors import StartRefused
from tierd.broker.connection import Answer, Connection
from tierd.broker.tls.contexts import BadCertificates, TlsSide
from tierd.config.listeners import Tls


@pytest.mark.parametrize("least", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_whose_certificate_it_is(authority: Authority, own: Signed, least: ssl.TLSVersion) -> None:
    async def scenario() -> None:
        seen = []

        def handler(frame: memoryview, connection: Connection) -> Answer:
            seen.append(connection.session)
            return framed(b"")

        rules = "RULE:^CN=(.*?),OU=tests$/$1/U"
        tls = side(own, ca=authority.file, client_auth="requested", mapping_rules=rules)
        async with serving(handler, tls) as (served, _, port):
            for shown in (authority.sign("alice"), None):
                context = authority.client(shown)
                context.maximum_version = least
                async with secured(port, context) as (reader, writer):
                    writer.write(framed(b""))
                    await answer_of(reader)
            other = authority.client(authority.sign("bob", unit="others"))
            async with secured(port, other) as (reader, writer):
                assert await reader.read() == b""
            assert served.counters.handshakes_failed == 1
        assert [str(session.principal) for session in seen] == ["User:ALICE", "User:ANONYMOUS"]
        assert all(session.tls and session.listener == "SSL" and session.host == "127.0.0.1" for session in seen)

    run(scenario())


def test_who_shows_no_certificate_or_a_foreign_one_is_refused(
    authority: Authority, own: Signed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        tls = side(own, ca=authority.file, client_auth="required")
        foreign = Authority(tmp_path / "other").sign("eve")
        async with serving(echo, tls) as (served, _, port):
            for shown in (None, foreign, authority.sign("old", days=-1)):
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):  # noqa: PT012
                    async with secured(port, authority.client(shown)) as (reader, writer):
                        writer.write(framed(b"x"))
                        await answer_of(reader)
            await until(lambda: served.counters.handshakes_failed == 3)
            assert served.connections == 0

    run(scenario())
    said = refused(caplog)
    assert "shows no certificate" in said
    assert "the client's certificate is refused: unable to get local issuer certificate" in said
    assert "the client's certificate is refused: certificate has expired" in said


def test_renewed_files_are_for_the_next_connection(authority: Authority, tmp_path: Path) -> None:
    async def scenario() -> None:
        own = authority.sign("first", file="renewed")
        tls = side(own)
        async with serving(echo, tls) as (_, _, port), secured(port, authority.client()) as (reader, writer):
            authority.sign("second", file="renewed")
            tls.renew()
            async with secured(port, authority.client()) as (_, later):
                assert subject(writer) == "first"
                assert subject(later) == "second"
            own.key.write_text("nothing")
            with pytest.raises(BadCertificates, match=r"renewed\.key: no key in PEM"):
                tls.renew()
            async with secured(port, authority.client()) as (_, later):
                assert subject(later) == "second"
            writer.write(framed(b"still there"))
            assert await answer_of(reader) == b"still there"

    run(scenario())


def test_names_of_certificates_do_not_matter_where_sasl_says_who_it_is(authority: Authority, own: Signed) -> None:
    async def scenario() -> None:
        settings = Tls(
            certificate=own.certificate,
            key=own.key,
            ca=authority.file,
            client_auth="required",
            mapping_rules="RULE:^nobody$/x/",
        )
        for names, failed in ((True, 1), (False, 0)):
            async with serving(echo, TlsSide(settings, names=names)) as (served, _, port):
                async with secured(port, authority.client(authority.sign("alice"))) as (reader, writer):
                    if not names:
                        writer.write(framed(b"a"))
                    assert await reader.read(5) == (b"" if names else framed(b"a"))
                assert served.counters.handshakes_failed == failed

    run(scenario())


def subject(writer: asyncio.StreamWriter) -> str:
    rows = writer.get_extra_info("peercert")["subject"]
    return str(dict(pair for row in rows for pair in row)["commonName"])


def test_files_that_are_of_no_use_are_named(authority: Authority, own: Signed, tmp_path: Path) -> None:
    locked = authority.sign("locked", password="secret")
    (tmp_path / "empty.pem").touch()
    for files, reason in (
        (Signed(own.certificate, locked.key), "the key is encrypted"),
        (Signed(own.certificate, authority.sign("third").key), "the key is not that of the first certificate"),
        (Signed(tmp_path / "none.pem", own.key), "No such file"),
        (Signed(tmp_path / "empty.pem", own.key), "empty.pem: no certificate in PEM"),
        (Signed(own.key, own.key), "no certificate in PEM"),
        (Signed(own.certificate, own.certificate), "no key in PEM"),
    ):
        with pytest.raises(StartRefused, match=reason):
            side(files)
    with pytest.raises(StartRefused, match=r"ssl\.key\.password is wrong"):
        side(locked, key_password="wrong")
    side(locked, key_password="secret")
    with pytest.raises(StartRefused, match="no certificates of a CA"):
        side(own, ca=own.key)
