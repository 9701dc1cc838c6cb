"""A start that takes longer than systemd waits asks for more time, in every part of it that goes on."""

import asyncio
import socket
from pathlib import Path

import pytest

from tierd.daemon import starting
from tierd.daemon.starting import Starting
from tierd.web.notify import Notifier


def test_each_part_says_how_far_it_is_and_asks_for_time_only_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_LOOK_S", "LOOK_S"):
        monkeypatch.setattr(starting, name, 0.001)
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(path))
        systemd.settimeout(60)
        notifier = Notifier({"NOTIFY_SOCKET": str(path)})
        start = Starting(notifier)
        said = iter(("looking at the bucket", "looking at the bucket", "partitions begun: 1 of 2"))

        async def run() -> None:
            work: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def text() -> str:
                now = next(said, None)
                if now is None:
                    work.set_result(None)
                return now or "partitions begun: 2 of 2"

            start.goes_on_with(text)
            await start.follow(work)

        asyncio.run(run())
        got = [systemd.recv(1000).decode() for _ in range(4)]
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):
            systemd.recv(1000)
        notifier.close()
    more = f"EXTEND_TIMEOUT_USEC={starting.EXTEND_MS * 1000}"
    assert got == ["STATUS=looking at the bucket", more, "STATUS=partitions begun: 1 of 2", more]
