"""One rule for all tests: in CI (CI=true) nothing that needs another program is skipped."""

import os
from collections.abc import Generator

import pytest

NEED_PROGRAMS = {"kafka", "s3", "e2e"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (
        os.environ.get("CI") == "true"
        and report.skipped
        and NEED_PROGRAMS & {mark.name for mark in item.iter_markers()}
    ):
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {report.longrepr}"
    return report
