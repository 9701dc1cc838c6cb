"""A log and a plain list do the same things, and the power goes in between; afterwards they must say the same."""

import pytest
from hypothesis import settings

from kit.log_machine import BOUNDED, CompactedModel, LogModel

TestLog, TestCompactedLog = LogModel.TestCase, CompactedModel.TestCase
TestLog.settings = TestCompactedLog.settings = BOUNDED


@pytest.mark.full
@pytest.mark.timeout(3600)
class TestLogForLong(LogModel.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(BOUNDED, max_examples=2000, stateful_step_count=80)


@pytest.mark.full
@pytest.mark.timeout(3600)
class TestCompactedLogForLong(CompactedModel.TestCase):  # type: ignore[misc, valid-type]
    settings = settings(BOUNDED, max_examples=2000, stateful_step_count=80)
