"""Reads kubeconfigs with the Kubernetes client: several files, certificates, proxies, passwords, OIDC, exec plugins.

Tokens are different: that client reads the token file of a kubeconfig only once, passes on its line break, and turns a
failed exec plugin into requests without credentials. So token files and plugins have sources in `credentials.py`.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import urllib3
import yaml

from tfjob_controller.kube.config.credentials import (
    AuthInfo,
    CredentialSource,
    KubeconfigError,
    bearer_header,
    exec_plugin,
    reason_of,
    token_file,
)
from tfjob_controller.kube.config.overrides import ConfigOverrides, impersonation_of
from tfjob_controller.kube.config.plainconfig import ContextConfig
from tfjob_controller.kube.config.serverconfig import ServerConfig
from tfjob_controller.util.clock import Clock

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.kube_config import ConfigNode, KubeConfigMerger

# How often the client's own refreshing (OIDC, GCP) checks whether its token is due.
_LIBRARY_SECONDS = 10.0


def read_with_library(paths: str, context: str | None, clock: Clock, overrides: ConfigOverrides) -> ContextConfig:
    """The context. Raises `KubeconfigError`; other errors are those of a malformed entry, and may contain a token."""
    origin = f"kubeconfig {paths}"
    merger = _read(paths)
    merged: ConfigNode = merger.config
    name = context or merged.value.get("current-context") or ""
    if not name:
        raise KubeconfigError(
            f"{origin} has no current context: give one of {_names(merged, 'contexts')} with --context"
        )
    chosen = _overridden(merged, "contexts", name, origin, overrides.context_entry).value
    cluster = _overridden(merged, "clusters", chosen.get("cluster", ""), origin, overrides.cluster_entry)
    if not cluster.value.get("server"):
        raise KubeconfigError(f"{origin}: cluster {chosen.get('cluster')!r} has no server: add its URL")
    if "@" in urlsplit(str(cluster.value["server"])).netloc:
        raise KubeconfigError(
            f"{origin}: a name or password in the server's URL is not used: give it to the user entry"
        )
    name_of_user = chosen.get("user")
    user = _overridden(merged, "users", name_of_user, origin, overrides.user_entry) if name_of_user else None
    if user and "as-user-extra" in user.value:
        # Without it, the user could have more permissions than intended.
        raise KubeconfigError(
            f"{origin}: user {name_of_user!r} acts as another with `as-user-extra`, which is not supported here"
        )
    source = overrides.token_source or (_own_source(user, cluster, clock) if user else None)
    settings = _library_settings(merger, name, origin, persist=source is None)
    if not cluster.value.get("proxy-url") and _is_loopback(settings.host):
        settings.proxy = None  # as in Go, a proxy from the environment is never used for this machine
    settings.proxy_headers = _proxy_headers(settings.proxy)
    return ContextConfig(
        name,
        str(chosen.get("namespace") or ""),
        _server(settings, origin),
        source or _library_source(settings),
        impersonation_of(overrides.user_entry(user.value if user else {})),
    )


def _read(paths: str) -> KubeConfigMerger:
    """Merge the files of a path list as kubectl does: the first one that names a thing decides."""
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigMerger

    try:
        merger = KubeConfigMerger(paths)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        raise KubeconfigError(f"kubeconfig {paths} is not YAML{where}: correct it") from None
    except OSError as error:
        raise KubeconfigError(f"cannot read kubeconfig {paths}: {reason_of(error)}") from None
    # The client's message may contain a whole user entry with its token.
    except (ConfigException, AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise KubeconfigError(f"{paths} is not a kubeconfig: see `kubectl config view --kubeconfig {paths}`") from None
    if merger.config is None:
        raise KubeconfigError(
            f"no kubeconfig at {paths}, and this is not a pod: name one with --kubeconfig or KUBECONFIG"
        )
    return merger


def _entry(merged: ConfigNode, kind: str, name: str, origin: str) -> ConfigNode:
    """The content of the named cluster, context or user, with the path of its file."""
    from kubernetes.config.kube_config import ConfigNode

    singular = kind[:-1]
    for node in merged.value[kind]:
        if node.value.get("name") == name and isinstance(node.value.get(singular), dict):
            return ConfigNode(f"{kind}/{name}", node.value[singular], node.path)
    raise KubeconfigError(f"{origin} has no {singular} {name!r}: it has {_names(merged, kind)}")


def _overridden(
    merged: ConfigNode,
    kind: str,
    name: str,
    origin: str,
    change: Callable[[Mapping[str, Any]], dict[str, Any]],
) -> ConfigNode:
    """As `_entry`, after a change that the client will read too.

    The changed entry is a copy: the client saves the tokens that it refreshes with everything else in the file.
    """
    before = _entry(merged, kind, name, origin)
    after = change(before.value)
    if after == before.value:
        return before
    for node in merged.value[kind]:
        if node.value.get("name") == name:
            node.value = {**node.value, kind[:-1]: after}
    return _entry(merged, kind, name, origin)


def _names(merged: ConfigNode, kind: str) -> str:
    return ", ".join(sorted(str(node.value.get("name")) for node in merged.value[kind])) or "none"


def _own_source(user: ConfigNode, cluster: ConfigNode, clock: Clock) -> CredentialSource | None:
    """A source for credentials that the client does not read well; None leaves the user to the client.

    Such credentials are removed from the user, so that the client does not read them too. As in client-go, a token file
    takes precedence over a token, and a token over a plugin.
    """
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.exec_provider import ExecProvider
    from kubernetes.config.kube_config import ConfigNode

    if "auth-provider" in user.value:
        return None
    folder = os.path.dirname(os.path.abspath(user.path))
    path = user.value.pop("tokenFile", None)
    if path:
        user.value.pop("token", None)
        return token_file(os.path.normpath(os.path.join(folder, str(path))))
    plugin = user.value.pop("exec", None)
    if plugin is None or user.value.get("token"):
        return None
    try:
        provider = ExecProvider(ConfigNode("exec", plugin), folder, cluster)
        command, hint = str(plugin["command"]), str(plugin.get("installHint") or "")
    except (ConfigException, AttributeError, KeyError, TypeError):
        raise KubeconfigError(
            f"{user.name} of kubeconfig {user.path}: exec needs a command and an apiVersion"
        ) from None
    return exec_plugin(command, hint, provider.run, clock)


def _library_settings(merger: KubeConfigMerger, context: str, origin: str, *, persist: bool) -> Configuration:
    """The client's reading of the context.

    `persist` lets it save the OIDC tokens that it refreshes, as kubectl does.
    """
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.config_exception import ConfigException
    from kubernetes.config.kube_config import KubeConfigLoader

    settings = Configuration()
    persister = merger.save_changes if persist else None
    try:
        loader = KubeConfigLoader(merger.config, context, config_base_path=None, config_persister=persister)
        loader.load_and_set(settings)
    except ConfigException as error:
        missing = str(error) if str(error).startswith("File does not exist: ") else "an entry is incomplete"
        raise KubeconfigError(f"{origin}, context {context!r}: {missing}") from None
    except OSError as error:  # certificates in the kubeconfig are written to temporary files
        raise KubeconfigError(f"{origin}, context {context!r}: no temporary file for a certificate: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError):
        raise KubeconfigError(
            f"{origin}, context {context!r}: an entry is malformed (see `kubectl config view`)"
        ) from None
    return settings


def _library_source(settings: Configuration) -> CredentialSource:
    """The client's own token: fixed, or refreshed by its hook (OIDC, GCP)."""

    def read() -> AuthInfo:
        authorization = settings.get_api_key_with_prefix("BearerToken")
        if authorization is None:
            return AuthInfo()
        scheme, _, token = authorization.partition(" ")
        value = (
            authorization if scheme != "Bearer" else bearer_header(token.strip(), "the user entry of the kubeconfig")
        )
        return AuthInfo(value, _LIBRARY_SECONDS)

    return read


def _proxy_headers(proxy: str | None) -> dict[str, str] | None:
    """Name and password of a proxy's URL, which urllib3 does not send by itself."""
    authority = urllib3.util.parse_url(proxy).auth if proxy else None
    return urllib3.util.make_headers(proxy_basic_auth=unquote(authority)) if authority else None


def _is_loopback(host: str) -> bool:
    name = urlsplit(host).hostname or ""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def behind_proxy(server: ServerConfig, origin: str) -> ServerConfig:
    """The server with the proxy that the client finds in the environment."""
    from kubernetes.client.configuration import Configuration

    settings = Configuration()
    settings.host = server.url
    settings.proxy_headers = _proxy_headers(settings.proxy)
    proxied = _server(settings, origin)
    return replace(server, proxy=proxied.proxy, proxy_headers=proxied.proxy_headers)


def _server(settings: Configuration, origin: str) -> ServerConfig:
    from kubernetes.client.rest import should_bypass_proxies

    is_proxied = bool(settings.proxy) and not should_bypass_proxies(settings.host, settings.no_proxy or "")
    proxy = str(settings.proxy) if is_proxied else ""
    if proxy and urlsplit(proxy).scheme not in ("http", "https"):
        raise KubeconfigError(f"{origin}: only HTTP and HTTPS proxies are supported: correct the proxy's URL")
    return ServerConfig(
        url=settings.host.rstrip("/"),
        authority_file=settings.ssl_ca_cert or "",
        verifies=bool(settings.verify_ssl),
        name=settings.tls_server_name or "",
        certificate=(settings.cert_file, settings.key_file or settings.cert_file) if settings.cert_file else None,
        proxy=proxy,
        proxy_headers=settings.proxy_headers or {},
    )
