"""Answers GET /health and /metrics over HTTP; in the broker process, so that they are there when the tierer is not."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aiohttp import web

from tierd.web.metrics import Sample, render


class HealthState(StrEnum):
    OK = "ok"
    DEGRADED = "degraded"
    """Clients are served, but something needs a look: the bucket is away, the tierer restarts."""
    FAILING = "failing"
    """Produce is refused (claim lost, disk full) or tierd is stopping; answered with status 503."""


@dataclass(frozen=True, slots=True)
class Health:
    state: HealthState
    reasons: tuple[str, ...] = ()
    """Why it is not ok, one sentence each."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """JSON values beside it: version, epoch, claim."""


HealthSource = Callable[[], Health]
SampleSource = Callable[[], Awaitable[Iterable[Sample]]]


class HttpServer:
    """Loop thread only. Both sources are asked at each request and must be quick."""

    def __init__(self, host: str, port: int, *, health: HealthSource, samples: SampleSource) -> None:
        self._health = health
        self._samples = samples
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Listen; give the real address. OSError when it is taken."""
        app = web.Application(client_max_size=1024)
        app.router.add_get("/health", self._answer_health)
        app.router.add_get("/metrics", self._answer_metrics)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError:
            await self.stop()
            raise
        host, port, *_ = self._runner.addresses[0]
        return host, port

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer_health(self, _request: web.Request) -> web.Response:
        health = self._health()
        body = {"status": health.state.value, "reasons": list(health.reasons), **health.facts}
        return web.json_response(body, status=503 if health.state is HealthState.FAILING else 200)

    async def _answer_metrics(self, _request: web.Request) -> web.Response:
        body = render(await self._samples())
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
