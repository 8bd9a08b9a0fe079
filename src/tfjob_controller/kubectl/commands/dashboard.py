"""`kubectl tfjob dashboard`: the dashboard on loopback, with the rights of the kubeconfig."""

from __future__ import annotations

import webbrowser
from argparse import Namespace
from typing import TYPE_CHECKING

from tfjob_controller.kubectl.commands.history import history_url, open_history
from tfjob_controller.kubectl.output import print_notice
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError, install_hint
from tfjob_controller.util.terminal import print_line

if TYPE_CHECKING:
    from tfjob_controller.client.liveuse.prometheus import Queries


def serve_dashboard(session: Session, parsed: Namespace) -> int:
    try:
        from tfjob_controller.dashboard.server import serve_on_loopback
        from tfjob_controller.dashboard.users import User
    except ImportError as error:
        raise UsageError(f"the dashboard is not installed ({error}); {install_hint('dashboard')}") from None
    from tfjob_controller.kube.config.kubeconfig import DEFAULT_NAMESPACE
    from tfjob_controller.util.clock import RealClock

    prometheus = _prometheus(parsed)
    namespace = "" if parsed.all_namespaces else session.namespace
    user = User(
        "kubeconfig",
        session.requester,
        namespace,
        session.config.origin,
        RealClock(),
        controller_namespace=parsed.controller_namespace,
        # That of a context which names none is `default`.
        is_namespace_chosen=bool(parsed.all_namespaces or parsed.namespace) or namespace != DEFAULT_NAMESPACE,
    )

    place = history_url(parsed)
    kept = open_history(place) if place else None

    def announce(address: str) -> None:
        print_line(address, flush=True)
        print_notice("Open this address; it can be used once. Ctrl-C stops the dashboard.")
        if parsed.open_browser:
            webbrowser.open(address)

    try:
        serve_on_loopback(user, parsed.port, announce, prometheus, kept)
    except OSError as error:
        raise UsageError(
            f"cannot listen on port {parsed.port}: {error.strerror}: choose another one by --port"
        ) from None
    return 0


def _prometheus(parsed: Namespace) -> Queries | None:
    if not parsed.prometheus_url:
        if parsed.prometheus_ca_file or parsed.prometheus_token_file:
            raise UsageError(
                "--prometheus-url is missing: --prometheus-ca-file and --prometheus-token-file belong to it"
            )
        return None
    from tfjob_controller.client.errors import ClientError
    from tfjob_controller.client.liveuse.prometheus import Prometheus

    try:
        return Prometheus(parsed.prometheus_url, parsed.prometheus_ca_file, parsed.prometheus_token_file)
    except ClientError as error:
        raise UsageError(str(error)) from None
