"""The program `tfjob-controller dashboard`: one dashboard for many people, without credentials for the API server."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path

import structlog

from tfjob_controller.client.errors import ClientError
from tfjob_controller.client.history.reading import History
from tfjob_controller.client.history.record import HistoryError
from tfjob_controller.client.liveuse.prometheus import Prometheus
from tfjob_controller.dashboard.server import serve_all_users
from tfjob_controller.dashboard.tokens import TokenUsers
from tfjob_controller.httpserver.server import ListenError
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.options import DashboardOptions
from tfjob_controller.util.clock import RealClock
from tfjob_controller.util.heaps import share_heaps

log = structlog.get_logger(__name__)
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


class DashboardStartError(Exception):
    """The dashboard cannot start; the message is one line."""


def run(options: DashboardOptions, environ: Mapping[str, str]) -> int:
    """Serves until SIGTERM or SIGINT; returns the exit code. Raises `DashboardStartError`."""
    address = options.dashboard_bind_address
    assert address is not None  # noqa: S101 -- `resolve_dashboard` refuses it
    server = ServerConfig(_url(options, environ), authority_file=_authority(options))
    hosts = [name.strip() for name in options.hosts.split(",") if name.strip()]
    files = (options.dashboard_tls_cert_file, options.dashboard_tls_key_file)
    # uvicorn stops at these signals, and raises them again afterwards; the exit code marks this stop as orderly.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    prometheus = _prometheus(options)
    try:
        kept = History.open(options.history, environ) if options.history else None
    except HistoryError as error:
        raise DashboardStartError(f"--history: {error}") from None
    share_heaps()
    log.info("serving the dashboard", address=str(address), hosts=hosts, server=server.url)
    try:
        serve_all_users(
            TokenUsers(server, RealClock(), options.controller_namespace),
            (address.host, address.port),
            hosts,
            token_header=options.token_header,
            certificate=files if all(files) else None,
            is_behind_tls_proxy=options.behind_tls_proxy,
            probes=options.health_probe_bind_address,
            prometheus=prometheus,
            kept=kept,
        )
    except ListenError as error:
        raise DashboardStartError(str(error)) from None
    except OSError as error:
        raise DashboardStartError(f"cannot serve on {address}: {error.strerror or error}") from None
    return 0


def _url(options: DashboardOptions, environ: Mapping[str, str]) -> str:
    if options.api_server:
        return options.api_server.rstrip("/")
    host, port = environ.get(_HOST, ""), environ.get(_PORT, "443")
    if not host:
        raise DashboardStartError(
            "not in a pod: give the URL of the API server by --api-server, or use kubectl tfjob dashboard"
        )
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _prometheus(options: DashboardOptions) -> Prometheus | None:
    if not options.prometheus_url:
        return None
    try:
        return Prometheus(options.prometheus_url, options.prometheus_ca_file, options.prometheus_token_file)
    except ClientError as error:
        raise DashboardStartError(str(error)) from None


def _authority(options: DashboardOptions) -> str:
    if not Path(options.api_server_ca_file).is_file():
        raise DashboardStartError(
            f"there is no CA of the API server at {options.api_server_ca_file}: see --api-server-ca-file"
        )
    return options.api_server_ca_file
