"""Common parts of the long-running programs: signals, servers, and the error of a program that cannot start."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol, TypeVar

import structlog

from tfjob_controller.httpserver.server import HttpServer, ListenAddress
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.telemetry import endpoints
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

_T = TypeVar("_T")


class StartError(Exception):
    """The program cannot start with its options or environment; one line that names what to correct."""


def on_signals(stop: threading.Event) -> None:
    """The first SIGTERM or SIGINT starts an orderly stop, the second ends the process.

    A handler runs between any two steps of the main thread, which may hold the lock that `stop.set` needs. So the
    interpreter writes a byte to a socket, and a thread that reads it sets `stop`.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    received: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)

    def wait() -> None:
        reader.recv(1)
        stop.set()

    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    threading.Thread(target=wait, name="signals", daemon=True).start()


def run_until(stop: threading.Event, start: Callable[[], None], shut_down: Callable[[], bool]) -> int:
    """Start, wait for `stop`, shut down. Returns the exit code, which is 0 if everything ended in time."""
    try:
        start()
        stop.wait()
    finally:
        ended = shut_down()
    return 0 if ended else 1


def answer_of(
    problem: str, ask: Callable[[], _T], note: Callable[[str], None], clock: Clock, stop: threading.Event
) -> _T | None:
    """Returns what the API server answers once it does; None if `stop` is set first.

    While it does not, `note` is called with the problem and the last error, and each new error is logged.
    """
    backoff, last = DecorrelatedBackoff(clock, random.Random()), ""  # noqa: S311 -- spreads load, guards nothing
    while not stop.is_set():
        try:
            return ask()
        except ApiError as error:
            reason = f"{problem}: {error}"
            if reason != last:
                log.warning("cannot start yet", problem=reason)
            last = reason
            note(reason)
            clock.sleep(backoff.next_seconds(error.retry_after_seconds or 0.0), stop)
    return None


class Part(Protocol):
    """What runs until it is stopped."""

    def stop(self, timeout_seconds: float, /) -> bool:
        """Returns False if it has not ended in time."""


class Addresses(Protocol):
    """The addresses on which a program listens; None disables a server."""

    @property
    def health_probe_bind_address(self) -> ListenAddress | None: ...
    @property
    def metrics_bind_address(self) -> ListenAddress | None: ...
    @property
    def debug_bind_address(self) -> ListenAddress | None: ...


def servers(
    addresses: Addresses,
    problems: Callable[[], list[str]],
    exposition: Callable[[str], tuple[str, bytes]],
    pages: Mapping[str, Callable[[], Any]],
    clock: Clock,
) -> list[HttpServer]:
    """Returns the servers of probes, metrics and debug pages (`pages`). Raises ListenError."""
    return endpoints.servers_for(
        [
            (
                addresses.health_probe_bind_address,
                {"/healthz": endpoints.healthz, "/readyz": endpoints.readyz(problems)},
            ),
            (addresses.metrics_bind_address, {"/metrics": endpoints.MetricsRoute(exposition)}),
            (addresses.debug_bind_address, endpoints.debug_routes(pages)),
        ],
        clock,
    )
