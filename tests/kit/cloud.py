"""Who gives out credentials in a cloud, on the loopback: an instance's metadata service (IMDSv2), a token service (STS)
and a container's; and a bucket that takes only what they gave out last.
"""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

BODY = b"what is in the bucket"
_SESSION = "imds-session"
_KEY = re.compile(r"Credential=([^/]+)/")


class Cloud:
    """Settings for a test: how long credentials are good for, and which services are away."""

    def __init__(self) -> None:
        self.ttl_s = 300
        self.away = False
        self.token = "first"
        """What a web identity, or a container, has to show."""
        self.given: list[str] = []
        """Access keys, in the order in which they were given out."""
        self.used: list[str] = []
        """Those that the bucket has seen, of good requests."""
        self.refused = 0
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def revoke(self) -> None:
        """What was given out so far is worth nothing from now on."""
        with self._lock:
            self.given.append("revoked")

    def give(self) -> dict[str, str]:
        with self._lock:
            name = f"KEY{len(self.given)}"
            self.given.append(name)
        until = datetime.now(UTC) + timedelta(seconds=self.ttl_s)
        return {
            "AccessKeyId": name,
            "SecretAccessKey": f"secret-{name}",
            "Token": f"session-{name}",
            "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def takes(self, authorization: str, session: str | None) -> bool:
        """Whether a request is signed with what was given out last."""
        found = _KEY.search(authorization)
        with self._lock:
            good = bool(found and self.given and found[1] == self.given[-1] and session == f"session-{found[1]}")
            if good and found:
                self.used.append(found[1])
            else:
                self.refused += 1
        return good


@contextmanager
def running() -> Iterator[Cloud]:
    cloud = Cloud()
    try:
        yield cloud
    finally:
        cloud.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_PUT(self) -> None:
        good = self.path == "/latest/api/token" and self.headers["x-aws-ec2-metadata-token-ttl-seconds"]
        self._answer(200 if good and not self.server.cloud.away else 503, _SESSION.encode())

    def do_POST(self) -> None:
        asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        good = asked["Action"] == ["AssumeRoleWithWebIdentity"] and asked["WebIdentityToken"] == [
            self.server.cloud.token
        ]
        if self.server.cloud.away or not good:
            self._answer(400, _error("InvalidIdentityToken", sts=True))
            return
        self._answer(200, _assumed(self.server.cloud.give()))

    def do_GET(self) -> None:
        if self.path.startswith("/latest/"):
            self._metadata()
        elif self.path == "/container":
            good = self.headers["Authorization"] == self.server.cloud.token and not self.server.cloud.away
            self._answer(200 if good else 401, json.dumps(self.server.cloud.give()).encode() if good else b"")
        elif self.server.cloud.takes(self.headers.get("Authorization", ""), self.headers.get("X-Amz-Security-Token")):
            self._answer(200, BODY)
        else:
            self._answer(400, _error("ExpiredToken"))

    def _metadata(self) -> None:
        if self.server.cloud.away or self.headers["x-aws-ec2-metadata-token"] != _SESSION:
            self._answer(401, b"")
        elif self.path.endswith("/security-credentials/"):
            self._answer(200, b"the-role")
        else:
            self._answer(200, json.dumps({"Code": "Success", "Type": "AWS-HMAC", **self.server.cloud.give()}).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"e"')
        self.send_header("Last-Modified", "Tue, 01 Dec 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


def _assumed(given: dict[str, str]) -> bytes:
    """What STS answers."""
    named = {"SessionToken" if name == "Token" else name: text for name, text in given.items()}
    facts = "".join(f"<{name}>{text}</{name}>" for name, text in named.items())
    arn = "<Arn>arn:aws:sts::1:assumed-role/r/s</Arn>"
    who = f"<AssumedRoleUser>{arn}<AssumedRoleId>a</AssumedRoleId></AssumedRoleUser>"
    verb, space = "AssumeRoleWithWebIdentity", "https://sts.amazonaws.com/doc/2011-06-15/"
    result = f"<{verb}Result><Credentials>{facts}</Credentials>{who}</{verb}Result>"
    return f'<{verb}Response xmlns="{space}">{result}</{verb}Response>'.encode()


def _error(code: str, *, sts: bool = False) -> bytes:
    inner = f"<Error><Code>{code}</Code><Message>no</Message></Error>"
    return (f"<ErrorResponse>{inner}</ErrorResponse>" if sts else inner).encode()
