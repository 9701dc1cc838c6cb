"""Recordings of a real Kafka (tests/golden/PROVENANCE.md), unpacked once per test session."""

import atexit
import functools
import shutil
import tarfile
import tempfile
from pathlib import Path

ARCHIVES = Path(__file__).resolve().parent.parent / "golden"


@functools.cache
def golden(name: str) -> Path:
    """The root of archive *name* ("kafka", "wire" or "aiven"). Shared by all tests: copy what you change."""
    root = Path(tempfile.mkdtemp(prefix=f"tierd-golden-{name}-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root


def partitions(*parts: str) -> list[Path]:
    """Every partition directory of one recording: `partitions("kafka", "clean")`."""
    archive, *below = parts
    root = golden(archive).joinpath(*below)
    return sorted(path for path in root.iterdir() if path.is_dir())


def golden_files(suffix: str, *recordings: str) -> list[Path]:
    """Every file of the kafka recordings (all of them when none are named) whose name ends in *suffix*, sorted."""
    root = golden("kafka")
    under = [root / name for name in recordings] or [root]
    return sorted(path for folder in under for path in folder.rglob(f"*{suffix}"))
