"""The systemd unit, as systemd itself reads it."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "tierd.service"


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("needs systemd-analyze")
        pytest.skip("needs systemd-analyze")
    unit = tmp_path / "tierd.service"
    # the program must exist where it is checked
    unit.write_text(UNIT.read_text().replace("/usr/bin/tierd", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_says_what_the_daemon_keeps() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(UNIT.read_text())
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"].endswith("tierd serve -c /etc/tierd/tierd.toml")
    assert service["RestartPreventExitStatus"].split() == ["2", "4"]
