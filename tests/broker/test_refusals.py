"""Connections that are refused or closed: how many one address may have, what they may hold, what lines they cause."""

import asyncio
import logging
import socket

import pytest

from broker.serving import READERS, answer_of, client, echo, framed, limited, run, serving, until
from kit.clock import FakeClock
from tierd.broker.connection import Answer, Connection
from tierd.broker.refusals import Addresses, Refusals
from tierd.broker.server import Server

LINES = 600
"""In a minute."""


def test_an_address_has_so_many_connections_and_others_have_theirs() -> None:
    addresses = Addresses(2)
    assert [addresses.enter("a") for _ in range(3)] == [True, True, False]
    assert addresses.enter("b")
    addresses.leave("a")
    assert addresses.enter("a")
    assert not addresses.enter("a")


def test_one_connection_too_many_of_an_address_is_closed_and_counted() -> None:
    async def scenario() -> None:
        async with serving(echo, max_connections_per_ip=1) as (served, host, port), client(host, port) as (one, writer):
            writer.write(framed(b"here"))
            assert await answer_of(one) == b"here"
            async with client(host, port) as (second, _):
                assert await second.read() == b""
            assert served.refused == 1
            elsewhere, away = await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0))
            away.write(framed(b"me too"))
            assert await answer_of(elsewhere) == b"me too"
            away.transport.abort()
            writer.transport.abort()
            await until(lambda: not served.connections)
            async with client(host, port) as (again, writer):
                writer.write(framed(b"again"))
                assert await answer_of(again) == b"again"

    run(scenario())


def test_requests_that_make_no_sense_are_all_counted_and_some_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        served = Server(echo, limited(max_frame_bytes=1000), clock, READERS)
        at = served.listen("127.0.0.1", 0)
        try:
            for _ in range(LINES + 50):
                async with client(*at) as (reader, writer):
                    writer.write(b"GET / HTTP/1.1\r\n")
                    assert await reader.read() == b""
        finally:
            await served.stop(0)
        assert served.counters.bad_requests == LINES + 50

    caplog.set_level(logging.INFO, "tierd.broker")
    run(scenario())
    told = [record for record in caplog.records if "bad request" in record.message]
    assert len(told) == LINES
    assert all("frame" in record.why for record in told)  # type: ignore[attr-defined]


def test_what_was_left_out_is_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    refusals = Refusals(clock)
    for _ in range(LINES + 7):
        refusals.say(logging.WARNING, "refused", peer="x")
    refusals.sum_up()
    refusals.sum_up()
    assert [record.left_out for record in caplog.records if hasattr(record, "left_out")] == [7]
    clock.advance(60_000)
    refusals.say(logging.WARNING, "refused", peer="y")
    assert caplog.records[-1].peer == "y"  # type: ignore[attr-defined]


def test_answers_that_nobody_takes_are_bounded_and_who_holds_most_goes_first() -> None:
    async def scenario() -> None:
        def answers(frame: memoryview, connection: Connection) -> Answer:
            return framed(bytes(int(bytes(frame)) << 20))

        limits = {"max_in_flight_bytes": 80 << 20, "max_frame_bytes": 1 << 20}
        async with serving(answers, **limits) as (served, host, port):
            socks = [socket.create_connection((host, port)) for _ in range(3)]
            try:
                for sock, mib in zip(socks, (30, 40, 30), strict=True):
                    sock.sendall(framed(b"%d" % mib))
                await until(lambda: sum(one.outgoing.held_bytes > 0 for one in served._connections) == 3)
                served._sweep()
                assert served.connections == 2
                served._sweep()
                assert served.connections == 2, "what is left is below the limit"
                assert sum(one.outgoing.held_bytes for one in served._connections) < 70 << 20
            finally:
                for sock in socks:
                    sock.close()

    run(scenario())
