"""Builds the sdist and, out of it, the wheel; installs that in a venv of its own and uses it far from the source."""

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("storage", "remote", "config")
"""Folders beside tierd/ that are installed inside it."""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tierd-package-") as directory:
        work = Path(directory)
        wheel = build(work / "dist")
        compare_modules(wheel)
        use(wheel, work)
    print("the package is whole and works")


def build(dist: Path) -> Path:
    run(sys.executable, "-m", "build", "--outdir", str(dist), str(ROOT))
    (wheel,) = dist.glob("*.whl")
    return wheel


def compare_modules(wheel: Path) -> None:
    """The wheel has each module of the tree and no other."""
    listed = run("git", "-C", str(ROOT), "ls-files", "--", "tierd", *ROOMS).splitlines()
    tree = {name if name.startswith("tierd/") else f"tierd/{name}" for name in listed if name.endswith(".py")}
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")}
    if tree != packed:
        sys.exit(f"only in the tree: {sorted(tree - packed)}; only in the wheel: {sorted(packed - tree)}")


def use(wheel: Path, work: Path) -> None:
    place = work / "venv"
    venv.create(place)
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    there = str(place / "bin" / "python")
    run(
        sys.executable, "-m", "pip", "--python", there, "install", "-q", "--no-compile", f"{wheel}[demo]", cwd=elsewhere
    )
    tierd = str(place / "bin" / "tierd")
    print(run(tierd, "--version", cwd=elsewhere).strip())
    report = json.loads(run(tierd, "demo", "--mib", "32", "--json", cwd=elsewhere))
    print(f"demo: {report['from_bucket']['records']} of {report['records']} records came from the bucket")
    if not report["from_bucket"]["records"]:
        sys.exit("the demo read nothing from the bucket")
    if not (place / "lib" / "systemd" / "system" / "tierd.service").exists():
        sys.exit("the wheel has no systemd unit")


def run(*command: str, cwd: Path | None = None) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it would lead to the source
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=cwd, env=env).stdout  # noqa: S603


if __name__ == "__main__":
    main()
