"""Serves the dashboard: a socket, and uvicorn until it is told to stop."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

import uvicorn

from tfjob_controller.dashboard.app import create_app
from tfjob_controller.dashboard.pages.login import OneTimeLogin
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
        app = create_app(OneTimeLogin(user, token), hosts, RealClock(), is_secure=False)
        config = uvicorn.Config(
            app, access_log=False, log_config=None, server_header=False, timeout_graceful_shutdown=_STOP_SECONDS
        )
        announce(f"http://{_LOOPBACK}:{number}/login?token={token}")
        uvicorn.Server(config).run([listener])
