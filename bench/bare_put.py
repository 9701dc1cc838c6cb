"""The bare upload: boto3 puts files into a bucket in parts of 16 MiB, two in flight, and checks nothing.

`python -m bench.bare_put ENDPOINT FILE...` prints "ready"; for each line on stdin, the name of a bucket, it uploads
all files and prints "done".
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.measure import MIB
from kit import weed
from tierd.remote.s3_client import S3Options, make_client

PART_BYTES = 16 * MIB
IN_FLIGHT = 2


class Uploads:
    """Part by part, over the ends of files."""

    def __init__(self, endpoint: str) -> None:
        self.client = make_client(bare_options(endpoint))
        self._threads = ThreadPoolExecutor(IN_FLIGHT)

    def run(self, bucket: str, files: Sequence[str]) -> None:
        parts = [part for file in files for part in self._begin(bucket, file)]
        done = list(self._threads.map(lambda part: self._send(*part), parts))
        for key, upload_id in dict.fromkeys((key["Key"], key["UploadId"]) for key, _, _ in parts):
            mine = [named for (key, _, _), named in zip(parts, done, strict=True) if key["UploadId"] == upload_id]
            self.client.complete_multipart_upload(
                Bucket=bucket, Key=key, UploadId=upload_id, MultipartUpload={"Parts": mine}
            )

    def _begin(self, bucket: str, file: str) -> list[tuple[dict[str, Any], str, int]]:
        key = Path(file).name
        upload_id = self.client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        where = {"Bucket": bucket, "Key": key, "UploadId": upload_id}
        return [(where, file, position) for position in range(0, os.path.getsize(file), PART_BYTES)]

    def _send(self, where: dict[str, Any], file: str, position: int) -> Any:
        fd = os.open(file, os.O_RDONLY)
        body = os.pread(fd, PART_BYTES, position)
        os.close(fd)
        number = position // PART_BYTES + 1
        return {"PartNumber": number, "ETag": self.client.upload_part(**where, PartNumber=number, Body=body)["ETag"]}


def bare_options(endpoint: str) -> S3Options:
    return S3Options(
        endpoint=endpoint, path_style=True, access_key_id=weed.ACCESS_KEY, secret_access_key=weed.SECRET_KEY
    )


class BarePut:
    """The same in a process of its own."""

    def __init__(self, endpoint: str, files: Sequence[Path]) -> None:
        command = [sys.executable, "-m", "bench.bare_put", endpoint, *map(str, files)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self._process.pid
        self.moved_bytes = sum(file.stat().st_size for file in files)
        self._expect("ready")

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        if (said := self._process.stdout.readline().strip()) != word:
            raise RuntimeError(f"the bare upload said {said!r} instead of {word!r}")

    def run(self, bucket: str) -> int:
        assert self._process.stdin is not None
        print(bucket, file=self._process.stdin, flush=True)
        self._expect("done")
        return self.moved_bytes

    def close(self) -> None:
        self._process.communicate()


def main() -> None:
    endpoint, *files = sys.argv[1:]
    uploads = Uploads(endpoint)
    print("ready", flush=True)
    for line in sys.stdin:
        uploads.run(line.strip(), files)
        print("done", flush=True)


if __name__ == "__main__":
    main()
