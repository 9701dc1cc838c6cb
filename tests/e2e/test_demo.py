"""`tierd demo` as its users run it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def test_the_demo_reads_all_back_from_both_tiers(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tierd", "demo", "--mib", "32", "--dir", str(tmp_path / "demo"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["records"] == 32 * 1024
    assert report["from_bucket"]["records"] + report["from_disk"]["records"] == report["records"]
    assert report["from_bucket"]["records"] > report["from_disk"]["records"] > 0
    assert all(row["copied_to"] == row["log_end"] for row in report["partitions"])
