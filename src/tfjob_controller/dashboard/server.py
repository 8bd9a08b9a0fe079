"""Serves the dashboard: a socket, and uvicorn until SIGINT or SIGTERM."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Sequence

import uvicorn
from starlette.applications import Starlette

from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.guard import COOKIE
from tfjob_controller.dashboard.pages.login import Logins, OneTimeLink
from tfjob_controller.dashboard.tokens import TokenUsers
from tfjob_controller.dashboard.users import User
from tfjob_controller.util.clock import RealClock

_LOOPBACK = "127.0.0.1"
# Streams of open browsers are cut off after this time.
_STOP_SECONDS = 1


def serve_on_loopback(user: User, port: int, announce: Callable[[str], None]) -> None:
    """Serves one person on loopback until SIGINT or SIGTERM; `announce` is called with the address to open.

    Port 0 is any free one. Raises OSError if the port is taken.
    """
    token = secrets.token_urlsafe(32)
    with socket.create_server((_LOOPBACK, port)) as listener:
        number = listener.getsockname()[1]
        hosts = [f"{host}:{number}" for host in (_LOOPBACK, "localhost")]
        # Browsers send the cookies of a host to all its ports, and a person may have a dashboard of each cluster.
        cookie = f"{COOKIE}-{number}"
        app = create_app(Logins(link=OneTimeLink(user, token)), hosts, RealClock(), is_secure=False, cookie=cookie)
        announce(f"http://{_LOOPBACK}:{number}/login?token={token}")
        _serve(app, listener)


def serve_all_users(
    tokens: TokenUsers,
    address: tuple[str, int],
    hosts: Sequence[str],
    *,
    token_header: str = "",
    certificate: tuple[str, str] | None = None,
) -> None:
    """Serves people who log in with tokens, until SIGINT or SIGTERM. Raises OSError.

    `hosts` are names by which browsers reach the dashboard, `certificate` the files of a certificate and its key;
    without it a proxy in front has to end TLS, since browsers send the cookie only over TLS or to loopback.
    """
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listener:
        number = listener.getsockname()[1]
        accepted = [name.lower() for name in hosts] or [f"{name}:{number}" for name in (_LOOPBACK, "localhost")]
        logins = Logins(tokens=tokens, token_header=token_header.lower())
        _serve(create_app(logins, accepted, RealClock(), is_secure=True), listener, certificate)


def _serve(app: Starlette, listener: socket.socket, certificate: tuple[str, str] | None = None) -> None:
    cert, key = certificate or (None, None)
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    uvicorn.Server(config).run([listener])
