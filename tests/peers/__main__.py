"""`python -m peers [SUITE...]`: run other clients' own tests against tierd, or a real Kafka, and print what passed."""

import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import click

from kit import daemon, kafka
from kit import secured as kit_secured
from kit.franz import go
from kit.secured import Secured
from peers import outcome
from peers.environment import version
from peers.outcome import Report, explained
from peers.suites import FRANZ, SUITES, CannotRun, Job, Suite

MARKS = ("<!-- peers -->", "<!-- /peers -->")


def of_kafka(settings: Mapping[str, str]) -> dict[str, str]:
    """The same for a real Kafka, which gives its own number to its node."""
    same = {name: value for name, value in settings.items() if name not in ("node.id", "authorizer.enable")}
    if "authorizer.enable" in settings:
        same["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return same


@contextmanager
def broker(suite: Suite, work: Path, beside_kafka: bool) -> Iterator[tuple[str, Secured | None]]:
    """The address of a fresh tierd, or Kafka, with the suite's settings; and its other listeners."""
    settings = dict(setting.split("=") for setting in suite.settings)
    if beside_kafka:
        with kafka.running(work / "kafka", of_kafka(settings)) as other:
            yield other.address, None
        return
    words = [word for setting in suite.settings for word in ("--set", setting)]
    with ExitStack() as stack:
        if suite.secured:
            secured = stack.enter_context(kit_secured.running(work, "", *words))
            tierd = secured.daemon
        else:
            secured, tierd = None, stack.enter_context(daemon.running(work / "tierd", None, *words))
        yield tierd.address, secured
        if tierd.stop() != 0:
            raise RuntimeError("tierd did not end well")


def of_version(suite: Suite) -> str:
    if suite.module == FRANZ:
        return go("list", "-m", "-f", "{{.Version}}", FRANZ).strip()
    return version(suite.module)


def run(suite: Suite, checkouts: Path | None, beside_kafka: bool, keep: Path | None) -> Report:
    """Raises CannotRun."""
    with tempfile.TemporaryDirectory(prefix="tierd-peers-") as made:
        work = keep / re.sub(r"\W+", "-", suite.name) if keep else Path(made)
        work.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        with broker(suite, work, beside_kafka) as (address, secured):
            found = suite.run(Job(address, work, checkouts, secured))
        reasons = {} if beside_kafka else suite.reasons
        return Report(suite.name, of_version(suite), explained(found, reasons), time.monotonic() - began)


@click.command()
@click.argument("names", metavar="[SUITE]...", nargs=-1)
@click.option("--checkouts", type=click.Path(path_type=Path, exists=True), help="A folder with the clients' sources.")
@click.option("--kafka", "beside_kafka", is_flag=True, help="Against a real Kafka (Java 17 and Maven) instead.")
@click.option("--keep", type=click.Path(path_type=Path), help="A folder for what the suites print and write.")
@click.option("--page", type=click.Path(path_type=Path, exists=True), help="A page whose table is to be replaced.")
def main(
    names: tuple[str, ...], checkouts: Path | None, beside_kafka: bool, keep: Path | None, page: Path | None
) -> None:
    """Run the SUITEs whose names begin so, or all; ends with 1 when a test failed that has no reason to."""
    chosen = [suite for suite in SUITES if not names or suite.name.startswith(names)]
    reports, missing = [], []
    for suite in chosen:
        print(f"{suite.name} ...", file=sys.stderr, flush=True)
        try:
            reports.append(run(suite, checkouts, beside_kafka, keep))
        except CannotRun as error:
            missing.append(f"{suite.name}: not run: {error}")
    text = outcome.table(reports)
    print("\n".join([text, *missing]))
    if page is not None:
        first, last = MARKS
        before, after = page.read_text().split(first)[0], page.read_text().split(last)[1]
        page.write_text(f"{before}{first}\n{text}\n{last}{after}")
    sys.exit(any(report.unexplained for report in reports))


if __name__ == "__main__":
    main()
