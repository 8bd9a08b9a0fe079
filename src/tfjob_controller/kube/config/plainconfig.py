"""The everyday kubeconfig, read without the Kubernetes client, whose import takes 0.3 s and 25 MB.

Plain is: one file, a server that is not behind a proxy, and a user with a token or a client certificate. Whatever is
less plain (a credential plugin, OIDC, a password, several files), and whatever is wrong, is left to config.py, which
knows how to say it: then there is no answer here. What is read means what it means there, and a test holds both to it.
Source: client-go tools/clientcmd; kubernetes client config/kube_config.py.
"""

from __future__ import annotations

import base64
import binascii
import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import urllib3
import yaml
from urllib3.connection import HTTPConnection

from tfjob_controller.kube.config.credentials import (
    AuthInfo,
    CertificateFiles,
    CredentialSource,
    KubeconfigError,
    bearer_header,
)

_CLUSTER_FIELDS = {"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"}
_CLUSTER_FIELDS |= {"tls-server-name", "extensions"}
_USER_FIELDS = {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
# As client-go has them: a gateway in between forgets silent connections.
_PROBES = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 9))


@dataclass(frozen=True, slots=True)
class PlainServer:
    """A server and how it is known to be that one.

    `authority` is a PEM text, empty for the system's. `authority_file` is where it came from, if that was a file: it
    is read for each new connection, so that a renewed one is seen.
    """

    url: str
    authority: str
    authority_file: str
    verifies: bool
    server_name: str

    def open_pool(self, size: int, certificate: tuple[str, str] | None, *, block: bool) -> urllib3.HTTPConnectionPool:
        """See `Config.open_pool`."""
        options: dict[str, Any] = {"maxsize": size, "block": block, "socket_options": _socket_options()}
        if self.url.startswith("https"):
            options["cert_reqs"] = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
            if self.authority_file:
                options["ca_certs"] = self.authority_file
            else:
                options["ca_cert_data"] = self.authority or None
            if certificate is not None:
                options["cert_file"], options["key_file"] = certificate
            if self.server_name:
                options["server_hostname"] = self.server_name
        pool: urllib3.HTTPConnectionPool = urllib3.PoolManager(**options).connection_from_url(self.url)
        return pool


@dataclass(frozen=True, slots=True)
class PlainConfig:
    """What one context of a kubeconfig says; `namespace` may be empty."""

    context: str
    namespace: str
    server: PlainServer
    source: CredentialSource


class _NotPlainError(Exception):
    """Somebody else reads this one."""


def read_plain(path: str, context: str | None) -> PlainConfig | None:
    """None for what is not plain, or not right."""
    try:
        if os.pathsep in path:
            return None
        with open(path, "rb") as file:
            return _read(yaml.load(file, Loader=yaml.CSafeLoader), context, os.path.dirname(os.path.abspath(path)))
    except (_NotPlainError, KubeconfigError, OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _read(config: Mapping[str, Any], context: str | None, folder: str) -> PlainConfig:
    name = context or config["current-context"]
    chosen = _entry(config, "contexts", "context", name)
    cluster = _entry(config, "clusters", "cluster", chosen["cluster"])
    user = _entry(config, "users", "user", chosen["user"])
    if set(cluster) - _CLUSTER_FIELDS or set(user) - _USER_FIELDS or not all(isinstance(each, str) for each in user):
        raise _NotPlainError
    server = _server(cluster, folder)
    return PlainConfig(str(name), str(chosen.get("namespace") or ""), server, _source(user, folder, server))


def _entry(config: Mapping[str, Any], plural: str, singular: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(each for each in [*config[plural], {}] if each.get("name") == name or not each)
    entry = found[singular]
    if not isinstance(entry, dict):
        raise _NotPlainError
    return entry


def _server(cluster: Mapping[str, Any], folder: str) -> PlainServer:
    url = str(cluster["server"]).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or _is_proxied(parts.hostname or ""):
        raise _NotPlainError
    authority = _text(cluster, "certificate-authority", folder)
    if authority:
        ssl.create_default_context(cadata=authority)  # raises for what is none
    is_file = bool(authority) and not cluster.get("certificate-authority-data")
    authority_file = _path(cluster, "certificate-authority", folder) if is_file else ""
    verifies = not cluster.get("insecure-skip-tls-verify")
    return PlainServer(url, authority, authority_file, verifies, str(cluster.get("tls-server-name") or ""))


def _is_proxied(host: str) -> bool:
    """Might it be? A proxy is never asked for this machine."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return False
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)


def _source(user: Mapping[str, Any], folder: str, server: PlainServer) -> CredentialSource:
    certificate = _certificate(user, folder) if server.url.startswith("https") else None
    token = user.get("token") or ""
    authorization = bearer_header(str(token), "the user entry of the kubeconfig") if token else None
    secret = AuthInfo(authorization, None, certificate)
    return lambda: secret


def _certificate(user: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """Its files, made of the text where that stands in the kubeconfig itself."""
    certificate, key = (_text(user, name, folder) for name in ("client-certificate", "client-key"))
    if not certificate and not key:
        return None
    if "client-certificate-data" in user or "client-key-data" in user:
        paths = CertificateFiles().write(certificate, key)
    else:
        paths = _path(user, "client-certificate", folder), _path(user, "client-key", folder)
    # Without a password TLS would ask for one on the terminal.
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*paths, password="")
    return paths


def _text(entry: Mapping[str, Any], name: str, folder: str) -> str:
    """A PEM text from the kubeconfig, or from the file that it names."""
    data = entry.get(f"{name}-data")
    try:
        if data:
            return base64.b64decode(data, validate=True).decode("ascii")
    except binascii.Error:
        raise _NotPlainError from None
    if not entry.get(name):
        return ""
    with open(_path(entry, name, folder), encoding="ascii") as file:
        return file.read()


def _path(entry: Mapping[str, Any], name: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, str(entry[name])))


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    """urllib3's own, and probes as far as this system knows them."""
    options: list[tuple[int, int, int | bytes]] = list(HTTPConnection.default_socket_options)
    options.append((socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1))
    found = [(getattr(socket, name, None), value) for name, value in _PROBES]
    return [*options, *((socket.IPPROTO_TCP, name, value) for name, value in found if name is not None)]
