"""A systemd of our own, PID 1 of new namespaces that cannot write to the machine. Needs root; ended by its pid."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit import tiers

SYSTEMD = "/lib/systemd/systemd"
NAMESPACES = ("--fork", "--kill-child", "--pid", "--mount", "--cgroup", "--uts", "--ipc")

# It must not touch the machine: everything is read-only but layers on a tmpfs, and of the units of the machine it
# knows none. A host's own sysinit.target would empty its /tmp.
TARGETS = ("basic", "network-online", "nothing", "shutdown", "sysinit")
UNITS = "/run/units"
BEGIN = f"""set -eu
mount --make-rprivate /
mount -o remount,bind,ro /
mount -t tmpfs tmpfs /run
for place in etc tmp var/lib var/tmp; do
    mkdir -p /run/layers/$place/up /run/layers/$place/work
    mount -t overlay overlay -o lowerdir=/$place,upperdir=/run/layers/$place/up,workdir=/run/layers/$place/work /$place
done
mount -t proc proc /proc
mkdir {UNITS}
for name in {" ".join(TARGETS)}; do printf '[Unit]\\nDescription=%s\\n' $name > {UNITS}/$name.target; done
exec env -i container=other PATH="$PATH" SYSTEMD_UNIT_PATH={UNITS} {SYSTEMD} \\
    --system --unit=nothing.target --log-target=null
"""


@dataclass(frozen=True)
class Systemd:
    """One that runs; *root* is how this process sees its file system."""

    pid: int

    @property
    def root(self) -> Path:
        return Path(f"/proc/{self.pid}/root")

    def call(self, *command: str, expect: int | None = 0) -> str:
        """Run a command inside; what it printed."""
        done = subprocess.run(
            ["nsenter", "--target", str(self.pid), "--mount", "--pid", "--cgroup", "--uts", "--ipc", *command],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert expect is None or done.returncode == expect, (command, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def said(self, unit: str, name: str) -> str:
        """One property of a unit."""
        return self.call("systemctl", "show", "--value", "--property", name, unit).strip()


def missing() -> str | None:
    """Why none can be started here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if not all(shutil.which(name) for name in ("unshare", "nsenter", "systemctl")) or not Path(SYSTEMD).exists():
        return "needs systemd and util-linux"
    return None


@contextmanager
def running() -> Iterator[Systemd]:
    outer = subprocess.Popen(["unshare", *NAMESPACES, "sh", "-c", BEGIN])
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        first = int(tiers.until("systemd begins", lambda: children.read_text().split() or None)[0])
        systemd = Systemd(first)
        tiers.until("systemd listens", lambda: (systemd.root / "run/systemd/private").exists())
        yield systemd
    finally:
        outer.kill()
        outer.wait(60)


def seen_by_services() -> str:
    """Settings of a unit that show it what this Python is made of, although that may lie in somebody's home."""
    source = Path(__file__).resolve().parents[2]
    return "ProtectHome=tmpfs\nBindReadOnlyPaths=" + " ".join(dict.fromkeys([sys.prefix, sys.base_prefix, str(source)]))
