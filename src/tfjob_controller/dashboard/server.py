"""Serves the dashboard: a socket, its front, and uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette

from tfjob_controller.client.history.reading import History
from tfjob_controller.client.liveuse.prometheus import Queries
from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.front import KNOWN, KNOWN_EACH, NEW_CONNECTIONS, Connections, accepting, noting_answers
from tfjob_controller.dashboard.guard import COOKIE, HOST_PREFIX
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.tokens import TokenUsers
from tfjob_controller.dashboard.users import User
from tfjob_controller.httpserver.app import RequestRate
from tfjob_controller.httpserver.server import ListenAddress
from tfjob_controller.telemetry import endpoints
from tfjob_controller.util.clock import Clock, RealClock

_LOOPBACK = "127.0.0.1"
# Streams of open browsers are cut off after this time.
_STOP_SECONDS = 1
_BACKLOG = 2048
_BEAT_SECONDS, _HANGS_SECONDS = 1.0, 60.0


def serve_on_loopback(
    user: User,
    port: int,
    announce: Callable[[str], None],
    prometheus: Queries | None = None,
    kept: History | None = None,
) -> None:
    """Serves one person on loopback until SIGINT or SIGTERM; `announce` is called with the address to open.

    Port 0 is any free one. `prometheus` and `kept` are those of `create_app`. Raises OSError if the port is taken.
    """
    token = secrets.token_urlsafe(32)
    with socket.create_server((_LOOPBACK, port)) as listener:
        number = listener.getsockname()[1]
        # Browsers send the cookies of a host to all its ports, and a person may have a dashboard of each cluster.
        cookie = f"{COOKIE}-{number}"
        logins = Logins(link=OneTimeLink(user, token))
        app = create_app(logins, (), RealClock(), is_secure=False, cookie=cookie, prometheus=prometheus, kept=kept)
        announce(f"http://{_LOOPBACK}:{number}/login?token={token}")
        _serve(app, listener, known_each=KNOWN)


def serve_all_users(
    tokens: TokenUsers,
    address: tuple[str, int],
    hosts: Sequence[str],
    *,
    token_header: str = "",
    certificate: tuple[str, str] | None = None,
    is_behind_tls_proxy: bool = False,
    probes: ListenAddress | None = None,
    prometheus: Queries | None = None,
    kept: History | None = None,
) -> None:
    """Serves people who log in with tokens, until SIGINT or SIGTERM. Raises OSError and ListenError.

    `hosts` are names by which browsers reach the dashboard beside those of loopback, `certificate` the files of a
    certificate and its key; without it a proxy in front has to end TLS, since browsers send the cookie only over TLS or
    to loopback. `probes` is where kubelets ask: a thread of its own answers them, so that they wait for no handshake of
    a stranger. `prometheus` knows the use of GPUs.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family, backlog=_BACKLOG) as listener:
        logins = Logins(tokens=tokens, token_header=token_header.lower())
        # Browsers take a cookie of that prefix only over TLS, and from no other host of the domain.
        has_tls = certificate is not None
        cookie = f"{HOST_PREFIX}{COOKIE}" if has_tls or is_behind_tls_proxy else COOKIE
        served = [name.lower() for name in hosts]
        app = create_app(
            logins,
            served,
            RealClock(),
            is_secure=True,
            cookie=cookie,
            has_tls=has_tls,
            prometheus=prometheus,
            kept=kept,
        )
        # All people behind a proxy have its address.
        rate = None if is_behind_tls_proxy or token_header else NEW_CONNECTIONS
        _serve(app, listener, certificate, probes=probes, rate=rate)


def _serve(
    app: Starlette,
    listener: socket.socket,
    certificate: tuple[str, str] | None = None,
    known_each: int = KNOWN_EACH,
    probes: ListenAddress | None = None,
    rate: RequestRate | None = None,
) -> None:
    cert, key = certificate or (None, None)
    config = uvicorn.Config(
        noting_answers(app, lambda: connections),
        http="httptools",
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    config.load()
    server = uvicorn.Server(config)

    def new_protocol() -> asyncio.Protocol:
        return config.http_protocol_class(config=config, server_state=server.server_state, app_state={})  # type: ignore[call-arg]

    connections = Connections(new_protocol, config.ssl, known_each, rate)

    pulse = Pulse(RealClock())

    async def serve() -> None:
        async with accepting(listener, connections):
            beating = asyncio.create_task(pulse.keep())
            await server.serve(sockets=[])
            beating.cancel()

    route = endpoints.readyz(pulse.problems)
    probe_servers = endpoints.servers_for([(probes, {"/healthz": route, "/readyz": route})], RealClock())
    for probe_server in probe_servers:
        probe_server.start()
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(serve())
    finally:
        for probe_server in probe_servers:
            probe_server.stop()


class Pulse:
    """Says to the thread of probes whether the event loop of the dashboard still runs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._beat = clock.monotonic()

    async def keep(self) -> None:
        """Runs in the event loop, until it is cancelled."""
        while True:
            self._beat = self._clock.monotonic()
            await asyncio.sleep(_BEAT_SECONDS)

    def problems(self) -> list[str]:
        seconds = self._clock.monotonic() - self._beat
        return [f"the event loop has not run for {seconds:.0f} s"] if seconds > _HANGS_SECONDS else []
