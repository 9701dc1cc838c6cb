"""Fetches of very many partitions: what they hold in memory is bounded, whatever they ask to wait."""

import asyncio
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.running import running
from tierd.broker.fetch_room import FetchRoom

PARTS = 120
"""More than are looked at in a turn."""
HOUR_MS = 3_600_000


def test_who_waits_longest_makes_room() -> None:
    async def scenario() -> None:
        room = FetchRoom(100)
        asked: list[str] = []

        async def one(name: str, rows: int) -> None:
            over = asyncio.Event()

            def answer() -> None:
                asked.append(name)
                over.set()

            await room.enter(rows)
            assert room.rows <= 100
            room.idle(answer)
            await over.wait()
            room.busy(answer)
            room.leave(rows)

        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c", "d"):
                group.create_task(one(name, 50))
            while "b" not in asked:
                await asyncio.sleep(0)
            await room.free(100)
        assert list(dict.fromkeys(asked)) == ["a", "b", "c", "d"]
        assert room.rows == 0

    asyncio.run(scenario())


def test_a_request_larger_than_all_comes_in_alone() -> None:
    async def scenario() -> None:
        room = FetchRoom(100)
        await room.enter(70)
        larger = asyncio.create_task(room.enter(1000))
        await asyncio.sleep(0)
        assert room.rows == 70
        room.leave(70)
        await larger
        assert room.rows == 1000

    asyncio.run(scenario())


def test_a_client_that_is_gone_gives_its_room_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.broker.fetch.FetchRoom", lambda: FetchRoom(PARTS + 1))
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", PARTS)
        wanted = [("t", number, 0, 1 << 20) for number in range(PARTS)]
        with Client(broker.address) as first, Client(broker.address) as second:
            room = broker.broker.parts.fetch.room
            first.send_fetch(wanted, max_wait=HOUR_MS)
            while broker.call(lambda: room.rows) == 0:
                pass
            second.send_fetch(wanted, max_wait=HOUR_MS)
            assert len(first.fetched()) == PARTS, "answered long before its time"
            while broker.call(lambda: room.rows) != PARTS:
                pass
            assert not second.has_answer()
        while broker.call(lambda: room.rows):
            pass
        with Client(broker.address) as third:
            third.send_fetch(wanted, max_wait=HOUR_MS)
            client.produce("t", batch())
            assert any(part.records for part in third.fetched())
