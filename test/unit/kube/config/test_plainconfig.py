"""What is read without the Kubernetes client means what the client makes of it; all else is left to it."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import pytest

from helpers.barekubeconfig import write_kubeconfig
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import Config, find_config, load_config, load_plain_config
from tfjob_controller.kube.config.overrides import ConfigOverrides, Impersonation
from tfjob_controller.kube.config.serverconfig import ServerConfig

SERVER = "https://cluster.test:6443/path"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in os.environ if each.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, user: dict[str, Any], cluster: dict[str, Any], **context: str) -> str:
    return write_kubeconfig(folder / "kubeconfig", {"server": SERVER, **cluster}, user, **context)


def filled(fields: dict[str, Any], certificate: tuple[Path, Path]) -> dict[str, Any]:
    """`CERT` and `KEY` stand for the files, `CERT DATA` and `KEY DATA` for their content."""
    files = dict(zip(("CERT", "KEY"), certificate, strict=True))
    known = {name: str(path) for name, path in files.items()}
    known |= {f"{name} DATA": base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    return {name: known.get(value, value) if isinstance(value, str) else value for name, value in fields.items()}


TOKEN = {"token": "s3cret"}


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        pytest.param(TOKEN, {}, id="token"),
        pytest.param(TOKEN, {"certificate-authority": "CERT"}, id="authority in a file"),
        pytest.param(TOKEN, {"certificate-authority-data": "CERT DATA"}, id="authority"),
        pytest.param(TOKEN, {"insecure-skip-tls-verify": True}, id="not verified"),
        pytest.param(TOKEN, {"tls-server-name": "other.test"}, id="another name"),
        pytest.param(TOKEN | {"as": "a", "as-uid": "7", "as-groups": ["b", "c"]}, {}, id="somebody else"),
        pytest.param({"client-certificate": "CERT", "client-key": "KEY"}, {}, id="certificate in files"),
        pytest.param({"client-certificate-data": "CERT DATA", "client-key-data": "KEY DATA"}, {}, id="certificate"),
        pytest.param({}, {"server": "http://127.0.0.1:8080"}, id="nobody"),
    ],
)
def test_what_is_plain_means_the_same(
    user: dict[str, Any], cluster: dict[str, Any], certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path, filled(user, certificate), filled(cluster, certificate), namespace="team")
    assert_same(load_plain_config(path), load_config(path))


def assert_same(plain: Config | None, full: Config) -> None:
    assert plain is not None
    assert plain.impersonation == full.impersonation
    assert (plain.host, plain.namespace, plain.origin) == (full.host, full.namespace, full.origin)
    assert plain.credentials.authorization() == full.credentials.authorization()
    ours, theirs = plain.server, full.server
    assert (ours.url, ours.verifies, ours.name, ours.proxy) == (theirs.url, theirs.verifies, theirs.name, theirs.proxy)
    assert [content(path) for path in plain.certificate or ()] == [content(path) for path in full.certificate or ()]
    assert authority(ours) == authority(theirs)


def content(path: str) -> str:
    return Path(path).read_text()


def authority(server: ServerConfig) -> str:
    return content(server.authority_file) if server.authority_file else server.authority


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        pytest.param({"exec": {"command": "x"}}, {}, id="plugin"),
        pytest.param({"auth-provider": {"name": "oidc"}}, {}, id="provider"),
        pytest.param({"username": "u", "password": "p"}, {}, id="password"),
        pytest.param({"tokenFile": "/nowhere"}, {}, id="token in a file"),
        pytest.param({"token": "two words"}, {}, id="no token"),
        pytest.param({"client-certificate": "/nowhere", "client-key": "/nowhere"}, {}, id="no such file"),
        pytest.param({"client-certificate-data": "@", "client-key-data": "@"}, {}, id="no base64"),
        pytest.param(TOKEN, {"certificate-authority-data": "eA=="}, id="no authority"),
        pytest.param(TOKEN, {"proxy-url": "http://proxy.test"}, id="proxy"),
        pytest.param(TOKEN, {"server": ""}, id="no server"),
        pytest.param(TOKEN, {"server": "https://u:p@cluster.test"}, id="password in the URL"),
        pytest.param(TOKEN | {"as": "a", "as-user-extra": {"b": ["c"]}}, {}, id="extra"),
    ],
)
def test_what_is_less_plain_or_wrong_is_left_to_the_client(
    user: dict[str, Any], cluster: dict[str, Any], tmp_path: Path
) -> None:
    assert load_plain_config(write(tmp_path, user, cluster)) is None


def test_so_are_several_files_unknown_contexts_proxies_and_what_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, TOKEN, {})
    assert load_plain_config(f"{path}{os.pathsep}{path}") is None
    assert load_plain_config(path, "nobody") is None
    assert load_plain_config(str(tmp_path / "nowhere")) is None
    for text in ("", "- x", "{", "contexts: 1"):
        (tmp_path / "broken").write_text(text)
        assert load_plain_config(str(tmp_path / "broken")) is None
    assert load_plain_config(path) is not None
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
    assert load_plain_config(path) is None


def test_a_renewed_authority_is_seen_by_the_next_connection_if_it_stands_in_a_file(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path, TOKEN, filled({"certificate-authority": "CERT"}, certificate))
    plain = load_plain_config(path)
    assert plain is not None
    assert (plain.server.authority_file, plain.server.authority) == (str(certificate[0]), "")


def test_what_is_wrong_is_said_as_the_client_would_have_it(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="no context 'nobody'"):
        find_config(write(tmp_path, TOKEN, {}), "nobody")


TLS_NAME = {"tls-server-name": "other.test"}


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        pytest.param({"server": "https://other.test:1"}, {"url": "https://other.test:1", "name": ""}, id="server"),
        pytest.param({"skips_verification": True}, {"verifies": False, "authority_file": ""}, id="insecure"),
        pytest.param({"authority_file": "CERT"}, {"verifies": True, "authority_file": "CERT"}, id="authority"),
        pytest.param({"impersonation": Impersonation("a", "7", ("b",))}, {}, id="impersonation"),
    ],
)
def test_overrides_replace_fields_of_the_kubeconfig_in_both_readers(
    overrides: dict[str, Any], differs: dict[str, Any], certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path, TOKEN, filled({"certificate-authority": "CERT", **TLS_NAME}, certificate))
    given = ConfigOverrides(**filled(overrides, certificate))
    plain, full = load_plain_config(path, None, given), load_config(path, None, given)
    assert_same(plain, full)
    assert {name: getattr(full.server, name) for name in differs} == filled(differs, certificate)
    assert full.impersonation == given.impersonation


def test_a_token_replaces_a_client_certificate_which_a_server_would_prefer(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    path = write(tmp_path, filled({"client-certificate": "CERT", "client-key": "KEY"}, certificate), {})
    given = ConfigOverrides(token="t0ken")
    assert_same(load_plain_config(path, None, given), full := load_config(path, None, given))
    assert (full.certificate, full.credentials.authorization()) == (None, "Bearer t0ken")
    assert "t0ken" not in repr(given) + repr(full)


def test_a_server_needs_no_kubeconfig_and_a_cluster_and_a_user_no_other_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = find_config(None, None, ConfigOverrides(server="https://other.test", token="t0ken"))
    assert (config.host, config.credentials.authorization()) == ("https://other.test", "Bearer t0ken")
    with pytest.raises(KubeconfigError, match=r"has no cluster 'd': it has c"):
        find_config(write(tmp_path, TOKEN, {}), None, ConfigOverrides(cluster="d"))
    with pytest.raises(KubeconfigError, match=r"has no user 'v': it has u"):
        find_config(write(tmp_path, TOKEN, {}), None, ConfigOverrides(user="v"))
