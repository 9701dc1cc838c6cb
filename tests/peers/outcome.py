"""What became of a suite's tests, and the tables that say so."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from xml.etree import ElementTree

PASSED: Final = "passed"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
_GO: Final = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}
_LONGEST_WHY: Final = 160

Reasons = Mapping[str, str]
"""Regular expressions over names of tests that cannot pass here, and why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test; *why* it did not pass."""

    test: str
    result: str
    why: str = ""
    known: bool = False
    """Whether *why* is a reason given beforehand."""


@dataclass(frozen=True, slots=True)
class Report:
    """One suite's run."""

    suite: str
    version: str
    outcomes: Sequence[Outcome]
    took_s: float

    def count(self, result: str) -> int:
        return Counter(outcome.result for outcome in self.outcomes)[result]

    @property
    def unexplained(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.result == FAILED and not outcome.known]


def of_go(said: str) -> list[Outcome]:
    """What `go test -v` prints: whole tests only; their parts and the seeds of fuzzers are theirs."""
    found = re.findall(r"^--- (PASS|FAIL|SKIP): (\S+) ", said, re.MULTILINE)
    if not found:
        raise RuntimeError(f"no test ran: {said[-2000:]}")
    return [Outcome(test, _GO[result]) for result, test in found]


def of_junit(text: str) -> list[Outcome]:
    """pytest's `--junitxml`."""
    return [_of_case(case) for case in ElementTree.fromstring(text).iter("testcase")]  # pytest's own file


def _of_case(case: ElementTree.Element) -> Outcome:
    test = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
    bad = [part for part in case if part.tag in ("failure", "error")]
    if bad:
        return Outcome(test, FAILED, _first_line(bad[0].get("message") or ""))
    skips = [part.get("message") or "" for part in case if part.tag == "skipped"]
    return Outcome(test, SKIPPED, _first_line(skips[0])) if skips else Outcome(test, PASSED)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[0][:_LONGEST_WHY]


def explained(outcomes: Iterable[Outcome], reasons: Reasons) -> list[Outcome]:
    """With the reasons that are known for those that did not pass."""

    def one(outcome: Outcome) -> Outcome:
        if outcome.result == PASSED:
            return outcome
        why = next((why for test, why in reasons.items() if re.search(test, outcome.test)), None)
        return outcome if why is None else replace(outcome, why=why, known=True)

    return list(map(one, outcomes))


def table(reports: Iterable[Report]) -> str:
    """The counts, and below them each reason with what it keeps from passing."""
    lines = ["| suite | version | passed | failed | skipped | s |", "| --- | --- | --- | --- | --- | --- |"]
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for report in reports:
        counts = [str(report.count(result)) for result in (PASSED, FAILED, SKIPPED)]
        lines.append("| " + " | ".join([report.suite, report.version, *counts, f"{report.took_s:.0f}"]) + " |")
        for outcome in report.outcomes:
            if outcome.result != PASSED:
                reasons.setdefault((report.suite, outcome.result, outcome.why), []).append(outcome.test)
    lines += ["", "| suite | result | tests | why |", "| --- | --- | --- | --- |"]
    for (suite, result, why), tests in reasons.items():
        named = ", ".join(tests) if len(tests) <= _NAMED else f"{len(tests)} tests: {tests[0]}, ..., {tests[-1]}"
        lines.append("| " + " | ".join([suite, result, named, why.replace("|", "\\|") or "?"]) + " |")
    return "\n".join(lines)


_NAMED: Final = 6
