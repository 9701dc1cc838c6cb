"""What suites print is read as what it says, and the table tells it again."""

import pytest

from peers.outcome import FAILED, PASSED, SKIPPED, Outcome, Report, explained, of_go, of_junit, table

GO = """=== RUN   TestOne
--- PASS: TestOne (0.10s)
    --- PASS: TestOne/part (0.00s)
--- SKIP: TestTwo (0.00s)
--- FAIL: TestThree (1.00s)
FAIL
"""
JUNIT = """<testsuites><testsuite name="pytest">
<testcase classname="tests.test_a.TestA" name="test_one" />
<testcase classname="tests.test_a" name="test_two"><failure message="E: no&#10;more">long</failure></testcase>
<testcase classname="tests.test_a" name="test_three"><skipped message="not here" /></testcase>
<testcase classname="tests.test_a" name="test_four"><error message="at setup">long</error></testcase>
</testsuite></testsuites>"""


def test_whole_tests_of_go_are_counted() -> None:
    assert of_go(GO) == [Outcome("TestOne", PASSED), Outcome("TestTwo", SKIPPED), Outcome("TestThree", FAILED)]
    with pytest.raises(RuntimeError, match="no test ran"):
        of_go("cannot find package")


def test_what_pytest_reports_is_read() -> None:
    assert of_junit(JUNIT) == [
        Outcome("TestA.test_one", PASSED),
        Outcome("test_a.test_two", FAILED, "E: no"),
        Outcome("test_a.test_three", SKIPPED, "not here"),
        Outcome("test_a.test_four", FAILED, "at setup"),
    ]


def test_reasons_explain_only_what_did_not_pass() -> None:
    found = explained(of_go(GO), {"One|Three": "not served"})
    assert found == [
        Outcome("TestOne", PASSED),
        Outcome("TestTwo", SKIPPED),
        Outcome("TestThree", FAILED, "not served", known=True),
    ]
    report = Report("go", "v1", found, 2.4)
    assert report.unexplained == []
    assert Report("go", "v1", of_go(GO), 2.4).unexplained == [Outcome("TestThree", FAILED)]
    text = table([report])
    assert "| go | v1 | 1 | 1 | 1 | 2 |" in text
    assert "| go | failed | TestThree | not served |" in text
