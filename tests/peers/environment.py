"""A virtual environment for the suites of Python clients, with the clients as the package index has them."""

import functools
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PLACE: Final = Path.home() / ".cache" / "tierd-tests" / "peers-venv"
REQUIREMENTS: Final = HERE / "requirements.txt"
INSTALL_S: Final = 900


@functools.cache
def python() -> Path:
    """Its interpreter; the first call makes it, which takes a minute."""
    program, stamp = PLACE / "bin" / "python", PLACE / "installed.txt"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        print("installing the Python clients and what their tests need", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", PLACE], check=True)
        install: list[str | Path] = [program, "-m", "pip", "install", "-q", "-r", REQUIREMENTS]
        subprocess.run(install, check=True, timeout=INSTALL_S, env={**os.environ, "PYTHONPATH": ""})
        stamp.write_text(REQUIREMENTS.read_text())
    return program


def version(distribution: str) -> str:
    """Of a client that is installed there."""
    ask = f"import importlib.metadata; print(importlib.metadata.version({distribution!r}))"
    return subprocess.run([python(), "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
