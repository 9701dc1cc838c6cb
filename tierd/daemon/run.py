"""One run of the daemon: from settings to a clean stop. Signals only set events; every task has this one owner."""

import asyncio
import logging
import signal
from collections.abc import Sequence
from pathlib import Path

from tierd.base import descriptors
from tierd.base.exits import Exit
from tierd.broker.broker import Broker
from tierd.config.explain import adopted
from tierd.config.model import Settings
from tierd.daemon.parts import Opened, assemble, assemble_archive
from tierd.daemon.standstill import Standstill
from tierd.daemon.starting import Starting
from tierd.daemon.verbs import Verbs
from tierd.daemon.watch import Watch
from tierd.storage import ballast
from tierd.storage.progress import OpeningStopped
from tierd.tiering.link import TierLink
from tierd.web.control import ControlServer
from tierd.web.health import HttpServer
from tierd.web.notify import Notifier

log = logging.getLogger(__name__)

_STATUS_S = 5.0


def run(settings: Settings, *, take_over: bool = False, recover: bool = False, lost: Sequence[Path] = ()) -> int:
    """Serve until SIGTERM or SIGINT; a second one ends without waiting for clients. Gives the exit code.

    *take_over*: from whoever has claimed the bucket. *recover*: nothing is here, all comes from the bucket.
    *lost*: data directories that are gone for good (absolute paths).

    Raises StartRefused, and whatever ended a task that must not end: the service manager starts tierd again.
    """
    descriptors.raise_limit()
    return asyncio.run(_Run(settings, take_over, recover, lost).main())


class _Run:
    def __init__(self, settings: Settings, take_over: bool, recover: bool, lost: Sequence[Path]) -> None:
        self._settings = settings
        self._take_over, self._recover = take_over, recover
        self._notifier = Notifier()
        self._starting = Starting(self._notifier)
        self._opened = Opened(settings, on_progress=self._starting.told, lost=lost)
        self._stop = asyncio.Event()
        self._quick = asyncio.Event()
        self._ballast: asyncio.Future[None] | None = None

    async def main(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        clean = False
        try:
            await self._open()
            clean = True
            await self._serve()
        except OpeningStopped as stopped:
            log.info("%s", stopped)
        finally:
            await loop.run_in_executor(None, lambda: self._opened.close(clean=clean))
            self._notifier.close()
        return Exit.DONE

    async def _open(self) -> None:
        """Raises OpeningStopped when a signal came before all logs were open."""
        opening = asyncio.get_running_loop().run_in_executor(None, self._opened.open)
        try:
            await self._starting.follow(opening)
        finally:
            await opening

    def _signalled(self) -> None:
        self._starting.stop()
        (self._quick if self._stop.is_set() else self._stop).set()

    async def _serve(self) -> None:
        broker: Broker
        link: TierLink | None
        if self._settings.is_archive:
            broker, link = await assemble_archive(self._opened)
        else:
            broker, link = await self._assembled()
        told = None if self._settings.is_archive else adopted(self._settings)
        if told is not None and any(topic.row.adopted for topic in broker.partitions.topics()):
            log.info("%s", told)
        watch = Watch(broker, link)
        control = ControlServer(self._settings.control_socket, Verbs(broker, link, self._settings.state_dir).handlers())
        http = self._http(watch)
        standstill = Standstill(self._opened.clock)
        standstill.start()
        try:
            address = await broker.start()
            await control.start()
            if http is not None:
                host, port = await http.start()
                log.info("health and metrics", extra={"listening": f"{host}:{port}"})
            named = broker.listeners.advertised("")
            log.info("ready", extra={"listening": f"{address[0]}:{address[1]}", "advertised": f"{named[0]}:{named[1]}"})
            print(f"tierd ready on {address[0]}:{address[1]}", flush=True)
            self._notifier.ready(watch.summary())
            await self._until_stopped(broker, watch)
        finally:
            await self._end(broker, link, control, http)
            standstill.stop()

    async def _assembled(self) -> tuple[Broker, TierLink | None]:
        """The look at a large bucket takes its time, and so do many partitions that begin behind what it has."""
        starting = self._starting
        assembling = asyncio.ensure_future(
            assemble(self._opened, take_over=self._take_over, recover=self._recover, going_on=starting.goes_on_with)
        )
        try:
            await starting.follow(assembling)
        finally:
            done = await assembling
        return done

    def _http(self, watch: Watch) -> HttpServer | None:
        address = self._settings.http.address
        if address is None:
            return None
        return HttpServer(address.host, address.port, health=watch.health, samples=watch.samples)

    async def _until_stopped(self, broker: Broker, watch: Watch) -> None:
        """Return on a signal; raise what ended housekeeping. systemd hears of us from the loop that does the work."""
        assert broker.housekeeping_task is not None
        interval_s = min(_STATUS_S, self._notifier.watchdog_interval_s or _STATUS_S)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            while not stopped.done():
                done, _ = await asyncio.wait(
                    {stopped, broker.housekeeping_task}, timeout=interval_s, return_when=asyncio.FIRST_COMPLETED
                )
                if broker.housekeeping_task in done:
                    broker.housekeeping_task.result()
                self._keep_ballast()
                self._notifier.watchdog()
                self._notifier.status(watch.summary())
        finally:
            stopped.cancel()

    def _keep_ballast(self) -> None:
        """In a thread: this loop waits for no disk."""
        if self._ballast is None or self._ballast.done():
            loop, state_dir = asyncio.get_running_loop(), self._settings.state_dir
            self._ballast = loop.run_in_executor(None, ballast.keep, state_dir)

    async def _end(
        self, broker: Broker, link: TierLink | None, control: ControlServer, http: HttpServer | None
    ) -> None:
        """Clients first, then the bucket's side, then what others look at. Never waits for the bucket."""
        self._notifier.stopping("stopping")
        log.info("stopping")
        await self._stop_broker(broker)
        if link is not None:
            await link.close()
        await control.stop()
        if http is not None:
            await http.stop()

    async def _stop_broker(self, broker: Broker) -> None:
        stopping = asyncio.ensure_future(broker.stop(quick=self._quick.is_set()))
        hurried = asyncio.ensure_future(self._quick.wait())
        await asyncio.wait({stopping, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        if not stopping.done():
            await broker.stop(quick=True)
        await stopping
