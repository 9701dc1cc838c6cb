"""The package as its users get it: sdist, the wheel out of it, that wheel at work in a venv of its own, elsewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_wheel_is_whole_and_runs_the_demo_from_another_folder() -> None:
    done = subprocess.run([sys.executable, ROOT / ".ci" / "package.py"], capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
