"""Finds and reads the configuration: where the API server is, and which credentials to use there.

Theory of operation. `load_config` tries, in this order, the file it is given, `KUBECONFIG`, the service account of the
pod it runs in, and `~/.kube/config`. Service accounts, and common kubeconfigs (`plainconfig.py`), are read without the
kubernetes client, which takes 27 MB and half a second of CPU; all other kubeconfigs with it (`libraryconfig.py`).

Nothing is sent here. An unusable configuration is a `KubeconfigError`: one line, with the remedy, without secrets.
Source: client-go tools/clientcmd, rest/config.go.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from tfjob_controller.kube.config.credentials import (
    Credentials,
    CredentialSource,
    KubeconfigError,
    reason_of,
    token_file,
)
from tfjob_controller.kube.config.libraryconfig import behind_proxy, read_with_library
from tfjob_controller.kube.config.overrides import NO_IMPERSONATION, NO_OVERRIDES, ConfigOverrides, Impersonation
from tfjob_controller.kube.config.plainconfig import is_proxied, read_plain
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.util.clock import Clock, RealClock

__all__ = ["Config", "find_config", "load_config", "load_plain_config"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_KUBECONFIG = "~/.kube/config"
DEFAULT_NAMESPACE = "default"

_UNUSABLE_ACCOUNT = "the service account of this pod cannot be used"


@dataclass(frozen=True, slots=True)
class Config:
    """One API server and the identity to use there.

    `namespace` is the context's, `origin` names where all this was read.
    """

    server: ServerConfig
    namespace: str
    origin: str
    credentials: Credentials = field(repr=False)
    impersonation: Impersonation = NO_IMPERSONATION

    @property
    def host(self) -> str:
        """The server's URL, which may have a path."""
        return self.server.url

    @property
    def certificate(self) -> tuple[str, str] | None:
        """The files of the client certificate and its key. They are read for each new connection."""
        return self.credentials.certificate or self.server.certificate

    @property
    def request_prefix(self) -> str:
        """What a request's target begins with: the URL's path, or the whole URL if a proxy forwards plain HTTP."""
        url = urlsplit(self.host)
        return self.host if self.server.proxy and url.scheme == "http" else url.path


def find_config(
    kubeconfig: str | None = None, context: str | None = None, overrides: ConfigOverrides = NO_OVERRIDES
) -> Config:
    """As `load_config`, but without the Kubernetes client if the configuration does not need it."""
    return load_plain_config(kubeconfig, context, overrides) or load_config(kubeconfig, context, overrides)


def load_config(
    kubeconfig: str | None = None,
    context: str | None = None,
    overrides: ConfigOverrides = NO_OVERRIDES,
    *,
    clock: Clock | None = None,
) -> Config:
    """Find and read the configuration, or raise `KubeconfigError`.

    An exec plugin runs once here, so that a broken one is found at the start.
    """
    clock = clock or RealClock()
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    overrides.impersonation.headers()  # raises if it is invalid
    if not (paths or context or overrides.cluster or overrides.user) and _is_pod():
        return _in_cluster(clock, overrides)
    paths = paths or DEFAULT_KUBECONFIG
    try:
        chosen = read_with_library(paths, context, clock, overrides)
        origin = _origin(chosen.context, f"kubeconfig {paths}", overrides)
        namespace = chosen.namespace or DEFAULT_NAMESPACE
        return _finish(chosen.server, namespace, origin, chosen.source, clock, chosen.impersonation)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        # The message of such an error may contain a token.
        raise KubeconfigError(
            f"kubeconfig {paths}: an entry is malformed (see `kubectl config view --kubeconfig {paths}`)"
        ) from None


def load_plain_config(
    kubeconfig: str | None = None, context: str | None = None, overrides: ConfigOverrides = NO_OVERRIDES
) -> Config | None:
    """The configuration if it can be read without the Kubernetes client, else None."""
    paths = kubeconfig or os.environ.get("KUBECONFIG", "")
    if not paths and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    path = paths or os.path.expanduser(DEFAULT_KUBECONFIG)
    has_none = bool(overrides.server) and not kubeconfig and os.pathsep not in path and not os.path.exists(path)
    plain = read_plain("" if has_none else path, context, overrides)
    if plain is None:
        return None
    origin = _origin(plain.context, f"kubeconfig {paths or DEFAULT_KUBECONFIG}", overrides)
    credentials = Credentials(plain.source, RealClock())
    return Config(plain.server, plain.namespace or DEFAULT_NAMESPACE, origin, credentials, plain.impersonation)


def _is_pod() -> bool:
    return "KUBERNETES_SERVICE_HOST" in os.environ and (SERVICE_ACCOUNT / "token").exists()


def _origin(context: str, file: str, overrides: ConfigOverrides) -> str:
    if overrides.server:
        return f"--server {overrides.server}"
    return f"cluster {overrides.cluster!r} of {file}" if overrides.cluster else f"context {context!r} of {file}"


def _in_cluster(clock: Clock, overrides: ConfigOverrides) -> Config:
    """The service account of this pod, without the client unless the environment names a proxy."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "")
    authority, namespace_file = SERVICE_ACCOUNT / "ca.crt", SERVICE_ACCOUNT / "namespace"
    if not (host and port):
        raise KubeconfigError(f"{_UNUSABLE_ACCOUNT}: KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    if not authority.exists():
        raise KubeconfigError(f"{_UNUSABLE_ACCOUNT}: {authority} does not exist")
    url, origin = f"https://{f'[{host}]' if ':' in host else host}:{port}", "the pod's service account"
    if overrides.server:
        url, origin = overrides.server, f"--server {overrides.server}"
    server = ServerConfig(url.rstrip("/"), str(authority))
    if overrides.authority_file or overrides.skips_verification:
        server = replace(server, authority_file=overrides.authority_file, verifies=not overrides.skips_verification)
    if is_proxied(urlsplit(url).hostname or ""):
        server = behind_proxy(server, origin)
    namespace = namespace_file.read_text("utf-8").strip() if namespace_file.exists() else DEFAULT_NAMESPACE
    source = overrides.token_source or token_file(str(SERVICE_ACCOUNT / "token"))
    return _finish(server, namespace, origin, source, clock, overrides.impersonation)


def _finish(
    server: ServerConfig,
    namespace: str,
    origin: str,
    source: CredentialSource,
    clock: Clock,
    impersonation: Impersonation,
) -> Config:
    impersonation.headers()  # raises if it is invalid
    credentials = Credentials(source, clock)
    _check_files(server, credentials, origin)
    return Config(server, namespace, origin, credentials, impersonation)


def _check_files(server: ServerConfig, credentials: Credentials, origin: str) -> None:
    """Report invalid certificates now, with their names, rather than in a TLS handshake."""
    certificate = credentials.certificate or server.certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    what = "the certificate authority"
    try:
        if server.authority_file:
            context.load_verify_locations(server.authority_file)
        what = "the client certificate or its key"
        if certificate:
            # Without a password OpenSSL would ask for one on the terminal.
            context.load_cert_chain(*certificate, password="")
    except (OSError, ValueError) as error:
        why = (
            reason_of(error) if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) else "not valid PEM"
        )
        raise KubeconfigError(f"{origin}: {what} cannot be used ({why}): correct its entry") from None
