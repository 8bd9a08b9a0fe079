"""Reads common kubeconfigs without the Kubernetes client.

Importing that client takes 0.3 s of CPU and 25 MB. They would come on top of the 0.4 s of `kubectl tfjob list` as a
whole, and of the 0.5 s and 43 MB of the controller's start (docs/testing.md).

It reads a single file, or none if the caller names a server, whose server is not behind a proxy and whose user has a
token or a client certificate. For anything else (a credential plugin, OIDC, a password, several files), and for
anything invalid, it returns None and `libraryconfig.py` takes over, which knows how to report errors. A test holds both
readers to the same result.
Source: client-go tools/clientcmd; kubernetes client config/kube_config.py.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from tfjob_controller.kube.config.credentials import (
    AuthInfo,
    CertificateFiles,
    CredentialSource,
    KubeconfigError,
    bearer_header,
)
from tfjob_controller.kube.config.overrides import (
    IMPERSONATION_FIELDS,
    NO_OVERRIDES,
    ConfigOverrides,
    Impersonation,
    impersonation_of,
)
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.util.yamlengine import safe_loader

_CLUSTER_FIELDS = {"server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"}
_CLUSTER_FIELDS |= {"tls-server-name", "extensions"}
_USER_FIELDS = {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
_USER_FIELDS |= set(IMPERSONATION_FIELDS)
# Each level of nesting begins with one of these.
_LEVELS = re.compile(rb"[\[{]|[-?]\s")
_MAX_LEVELS = 10_000
_PROXIES = ("http_proxy", "https_proxy", "all_proxy")


@dataclass(frozen=True, slots=True)
class ContextConfig:
    """One context of a kubeconfig, which has no name if there is none; `namespace` may be empty."""

    context: str
    namespace: str
    server: ServerConfig
    source: CredentialSource
    impersonation: Impersonation


class _NotPlainError(Exception):
    """The kubeconfig needs the other reader."""


def load_yaml(data: bytes) -> Any:
    """Returns the value of a YAML text. Raises yaml.YAMLError, ValueError, or TypeError.

    libyaml's loader recurses in C: some 20,000 levels of nesting would end the process.
    """
    if len(_LEVELS.findall(data)) > _MAX_LEVELS or data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise yaml.YAMLError("too many levels of nesting, or UTF-16")
    try:
        return yaml.load(data, Loader=safe_loader())  # noqa: S506 -- it is a safe one
    except RecursionError:
        raise yaml.YAMLError("too many levels of nesting") from None
    except (ArithmeticError, AttributeError, LookupError):
        # PyYAML does not check values that have a tag, such as `!!bool x`.
        raise yaml.YAMLError("a value is not of its type") from None


def read_plain(path: str, context: str | None, overrides: ConfigOverrides = NO_OVERRIDES) -> ContextConfig | None:
    """The context, or None if the kubeconfig needs the other reader or is invalid. An empty path is no kubeconfig."""
    try:
        if os.pathsep in path:
            return None
        if not path:
            return _read({}, context, "", overrides)
        with open(path, "rb") as file:
            return _read(load_yaml(file.read()), context, os.path.dirname(os.path.abspath(path)), overrides)
    except (_NotPlainError, KubeconfigError, OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return None


def _read(config: Mapping[str, Any], context: str | None, folder: str, overrides: ConfigOverrides) -> ContextConfig:
    name = context or config.get("current-context") or ""
    if not name and not overrides.server:
        raise _NotPlainError
    chosen = overrides.context_entry(_entry(config, "contexts", "context", name) if name else {})
    cluster = overrides.cluster_entry(_named(config, "clusters", "cluster", chosen, optional=bool(overrides.server)))
    is_optional = not name or bool(overrides.token)
    user = overrides.user_entry(_named(config, "users", "user", chosen, optional=is_optional))
    if set(cluster) - _CLUSTER_FIELDS or set(user) - _USER_FIELDS or not all(isinstance(each, str) for each in user):
        raise _NotPlainError
    impersonation = impersonation_of(user)
    impersonation.headers()  # raises if it is invalid
    server = _server(cluster, folder)
    namespace = str(chosen.get("namespace") or "")
    return ContextConfig(str(name), namespace, server, _source(user, folder, server), impersonation)


def _named(
    config: Mapping[str, Any], plural: str, singular: str, context: Mapping[str, Any], *, optional: bool
) -> Mapping[str, Any]:
    """The cluster or user of the context."""
    return {} if optional and singular not in context else _entry(config, plural, singular, context[singular])


def _entry(config: Mapping[str, Any], plural: str, singular: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(each for each in [*config[plural], {}] if each.get("name") == name or not each)
    entry = found[singular]
    if not isinstance(entry, dict):
        raise _NotPlainError
    return entry


def _server(cluster: Mapping[str, Any], folder: str) -> ServerConfig:
    url = str(cluster["server"]).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or "@" in parts.netloc or is_proxied(parts.hostname or ""):
        raise _NotPlainError
    authority = _text(cluster, "certificate-authority", folder)
    if authority:
        ssl.create_default_context(cadata=authority)  # raises if it is invalid
    is_file = bool(authority) and not cluster.get("certificate-authority-data")
    authority_file = _path(cluster, "certificate-authority", folder) if is_file else ""
    verifies = not cluster.get("insecure-skip-tls-verify")
    name = str(cluster.get("tls-server-name") or "")
    return ServerConfig(url, authority_file, "" if authority_file else authority, verifies, name)


def is_proxied(host: str) -> bool:
    """Whether a proxy may be used, which is never the case for this machine."""
    if host in ("localhost", "127.0.0.1", "::1"):
        return False
    return any(os.environ.get(name) or os.environ.get(name.upper()) for name in _PROXIES)


def _source(user: Mapping[str, Any], folder: str, server: ServerConfig) -> CredentialSource:
    certificate = _certificate(user, folder) if server.url.startswith("https") else None
    token = user.get("token") or ""
    authorization = bearer_header(str(token), "the user entry of the kubeconfig") if token else None
    secret = AuthInfo(authorization, None, certificate)
    return lambda: secret


def _certificate(user: Mapping[str, Any], folder: str) -> tuple[str, str] | None:
    """The files of certificate and key, written first if the kubeconfig contains them."""
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
