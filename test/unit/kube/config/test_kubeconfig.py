"""The rules of kube/config.py, with real files, real plugins and real certificates."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.barekubeconfig import write_kubeconfig
from helpers.fakeclock import FakeClock
from tfjob_controller.kube.config import kubeconfig as kubeconfig_module
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import find_config, load_config
from tfjob_controller.kube.config.overrides import ConfigOverrides

TOKEN = "s3cr3t-t0ken"
SERVER = "https://cluster.test:6443"


@pytest.fixture(autouse=True)
def _nothing_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT", "HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kubeconfig_module, "SERVICE_ACCOUNT", tmp_path / "serviceaccount")


def write(
    path: Path, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, **context: object
) -> str:
    named = {"server": SERVER} if cluster is None else cluster
    return write_kubeconfig(path, named, {"token": TOKEN} if user is None else user, **context)


def change(path: str, **fields: object) -> str:
    Path(path).write_text(yaml.safe_dump(yaml.safe_load(Path(path).read_text()) | fields))
    return path


def plugin(folder: Path, code: str, **fields: object) -> dict[str, Any]:
    """A user with an exec plugin, which is a Python program."""
    (folder / "plugin.py").write_text(code)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable}
    return {"exec": command | {"args": [str(folder / "plugin.py")], "interactiveMode": "Never"} | fields}


ANSWER = """
import json, os, pathlib
count = pathlib.Path(__file__).with_name("count")
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": f"token-{number}"}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


class TestWhereItLooks:
    def test_the_file_that_is_given_goes_before_all_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KUBECONFIG", write(tmp_path / "environment", namespace="environment"))
        assert load_config(write(tmp_path / "given", namespace="given")).namespace == "given"

    def test_the_environment_goes_before_the_service_account(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_pod: Path
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", write(tmp_path / "environment", namespace="environment"))
        assert load_config().namespace == "environment"

    def test_the_service_account_goes_before_the_home_folder(self, tmp_path: Path, in_pod: Path) -> None:
        write(tmp_path / "home/.kube/config", namespace="home")
        assert load_config().namespace == "pod"

    def test_outside_of_a_pod_the_home_folder_is_the_last(self, tmp_path: Path) -> None:
        write(tmp_path / "home/.kube/config", namespace="home")
        assert load_config().namespace == "home"

    def test_a_context_is_looked_for_in_kubeconfigs_only(self, tmp_path: Path, in_pod: Path) -> None:
        write(tmp_path / "home/.kube/config", namespace="home")
        assert load_config(context="x").namespace == "home"

    def test_a_list_of_files_is_merged_and_the_first_wins(self, tmp_path: Path) -> None:
        first = write(tmp_path / "first", namespace="first")
        second = write(tmp_path / "second", namespace="second")
        change(second, contexts=[{"name": "y", "context": {"cluster": "c", "namespace": "other"}}])
        assert load_config(f"{first}:{second}", "x").namespace == "first"
        assert load_config(f"{first}:{second}", "y").namespace == "other"


@pytest.fixture
def in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-1")
    (folder / "ca.crt").write_bytes(certificate[0].read_bytes())
    (folder / "namespace").write_text("pod\n")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


class TestInAPod:
    def test_host_namespace_and_token_are_the_pods(self, in_pod: Path) -> None:
        config = load_config()
        assert (config.host, config.namespace) == ("https://[fd00::1]:443", "pod")
        assert config.credentials.authorization() == "Bearer pod-1"

    def test_a_service_account_without_its_certificate_is_an_error(self, in_pod: Path) -> None:
        (in_pod / "ca.crt").unlink()
        with pytest.raises(KubeconfigError, match="service account of this pod cannot be used"):
            load_config()

    def test_the_kubernetes_client_is_not_imported(self, in_pod: Path) -> None:
        code = (
            "import pathlib, sys; from tfjob_controller.kube.config import kubeconfig\n"
            f"kubeconfig.SERVICE_ACCOUNT = pathlib.Path({str(in_pod)!r})\n"
            "assert kubeconfig.load_config().namespace == 'pod'\n"
            "assert 'kubernetes' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True, timeout=300)

    @pytest.mark.parametrize(("no_proxy", "proxy"), [("", "http://me:p@proxy.test:3128"), ("fd00::1", "")])
    def test_a_proxy_of_the_environment_is_used(
        self, no_proxy: str, proxy: str, in_pod: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://me:p@proxy.test:3128")
        monkeypatch.setenv("NO_PROXY", no_proxy)
        server = load_config().server
        assert (server.proxy, server.authority_file) == (proxy, str(in_pod / "ca.crt"))

    def test_a_pod_without_a_mounted_token_uses_a_kubeconfig(self, tmp_path: Path, in_pod: Path) -> None:
        (in_pod / "token").unlink()
        write(tmp_path / "home/.kube/config", namespace="home")
        assert load_config().namespace == "home"


class TestUsers:
    def test_a_name_and_password(self, tmp_path: Path) -> None:
        config = load_config(write(tmp_path / "k", {"username": "me", "password": "pass"}))
        assert config.credentials.authorization() == "Basic " + base64.b64encode(b"me:pass").decode()

    def test_nobody(self, tmp_path: Path) -> None:
        assert load_config(write(tmp_path / "k", {})).credentials.authorization() is None
        path = change(write(tmp_path / "k"), contexts=[{"name": "x", "context": {"cluster": "c"}}])
        assert load_config(path).credentials.authorization() is None

    def test_a_token_file_beside_the_kubeconfig_is_read_again(self, tmp_path: Path) -> None:
        clock = FakeClock()
        (tmp_path / "token").write_text("one\n")
        config = load_config(write(tmp_path / "k", {"tokenFile": "token", "token": "stale"}), clock=clock)
        assert config.credentials.authorization() == "Bearer one"
        (tmp_path / "token").write_text("two\n")
        clock.advance(60.0)
        assert config.credentials.authorization() == "Bearer two"

    def test_a_plugin_runs_once_until_its_token_is_refused(self, tmp_path: Path) -> None:
        clock = FakeClock()
        config = load_config(write(tmp_path / "k", plugin(tmp_path, ANSWER)), clock=clock)
        assert config.credentials.authorization() == "Bearer token-1"
        clock.advance(3600.0)
        assert config.credentials.authorization() == "Bearer token-1"
        assert config.credentials.renew("Bearer token-1")
        assert config.credentials.authorization() == "Bearer token-2"

    def test_a_token_goes_before_a_plugin(self, tmp_path: Path) -> None:
        user = {"token": TOKEN} | plugin(tmp_path, "raise SystemExit(1)")
        assert load_config(write(tmp_path / "k", user)).credentials.authorization() == f"Bearer {TOKEN}"


class TestProxies:
    def test_the_clusters_own(self, tmp_path: Path) -> None:
        cluster = {"server": SERVER, "proxy-url": "http://proxy.test:3128"}
        assert load_config(write(tmp_path / "k", cluster=cluster)).server.proxy == "http://proxy.test:3128"

    def test_that_of_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
        assert load_config(write(tmp_path / "k")).server.proxy == "http://proxy.test:3128"

    @pytest.mark.parametrize("server", ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"])
    def test_never_the_environments_for_this_machine(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.test:3128")
        assert load_config(write(tmp_path / "k", cluster={"server": server})).server.proxy == ""


class TestMistakes:
    """Each ends as one line that names what is wrong, and shows no secret."""

    @pytest.fixture
    def refusal(self, tmp_path: Path) -> Any:
        def load(path: str, context: str | None = None) -> str:
            with pytest.raises(KubeconfigError) as caught:
                load_config(path, context)
            text = str(caught.value)
            assert "\n" not in text
            assert TOKEN not in text
            assert caught.value.__cause__ is None
            return text

        return load

    def test_no_file(self, refusal: Any, tmp_path: Path) -> None:
        assert refusal(str(tmp_path / "k")) == (
            f"no kubeconfig at {tmp_path}/k, and this is not a pod: name one with --kubeconfig or KUBECONFIG"
        )

    def test_a_folder(self, refusal: Any, tmp_path: Path) -> None:
        assert refusal(str(tmp_path)) == f"cannot read kubeconfig {tmp_path}: Is a directory"

    def test_no_yaml(self, refusal: Any, tmp_path: Path) -> None:
        (tmp_path / "k").write_text(f"users: [\ntoken: {TOKEN}: x")
        assert refusal(str(tmp_path / "k")).endswith("/k is not YAML (line 2): correct it")

    @pytest.mark.parametrize("content", ["", f"users: {{token: {TOKEN}}}", f"users: [{TOKEN}]"])
    def test_no_kubeconfig(self, refusal: Any, tmp_path: Path, content: str) -> None:
        (tmp_path / "k").write_text(content)
        said = refusal(str(tmp_path / "k"))
        assert "k is not a kubeconfig" in said or "has no current context" in said

    def test_an_unknown_context(self, refusal: Any, tmp_path: Path) -> None:
        path = write(tmp_path / "k")
        assert refusal(path, "y") == f"kubeconfig {path} has no context 'y': it has x"

    def test_no_current_context(self, refusal: Any, tmp_path: Path) -> None:
        path = change(write(tmp_path / "k"), **{"current-context": ""})
        assert refusal(path) == f"kubeconfig {path} has no current context: give one of x with --context"

    @pytest.mark.parametrize("kind", ["cluster", "user"])
    def test_a_context_that_names_what_is_not_there(self, refusal: Any, tmp_path: Path, kind: str) -> None:
        path = write(tmp_path / "k")
        entries = [{"name": "x", "context": {"cluster": "c", "user": "u"} | {kind: "gone"}}]
        assert refusal(change(path, contexts=entries)).startswith(f"kubeconfig {path} has no {kind} 'gone': it has ")

    @pytest.mark.parametrize(
        ("user", "cluster", "words"),
        [
            pytest.param(
                {"token": "x", "as": "a", "as-user-extra": {"b": ["c"]}}, {}, "with `as-user-extra`, which", id="extra"
            ),
            pytest.param({"as-groups": ["a"]}, {}, "needs a user: name it with --as", id="a group without a user"),
            pytest.param({"exec": {"command": "x"}}, {}, "exec needs a command and an apiVersion", id="no version"),
            pytest.param({}, {"server": ""}, "cluster 'c' has no server", id="no server"),
            pytest.param({}, {"server": f"https://me:{TOKEN}@c.test"}, "a name or password in the server's", id="URL"),
            pytest.param({}, {"certificate-authority": "ca.pem"}, "File does not exist: ", id="no authority"),
            pytest.param({}, {"certificate-authority-data": "eA=="}, "(not valid PEM)", id="no certificate"),
            pytest.param({}, {"certificate-authority-data": "x"}, "an entry is malformed", id="no base64"),
        ],
    )
    def test_an_entry_that_cannot_be_used(
        self, refusal: Any, tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], words: str
    ) -> None:
        assert words in refusal(write(tmp_path / "k", user, {"server": SERVER} | cluster))

    def test_nowhere_to_put_a_certificate(
        self, refusal: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path]
    ) -> None:
        """As in a container with a read-only root and no volume at /tmp."""
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
        data = base64.b64encode(certificate[0].read_bytes() + b"\n").decode()
        path = write(tmp_path / "k", cluster={"server": SERVER, "certificate-authority-data": data})
        assert "no temporary file for a certificate: " in refusal(path)

    def test_a_key_with_a_password_is_refused_without_a_prompt(
        self, refusal: Any, tmp_path: Path, certificate: tuple[Path, Path]
    ) -> None:
        encrypt = ["openssl", "rsa", "-aes256", "-passout", "pass:secret", "-in", str(certificate[1])]
        subprocess.run([*encrypt, "-out", str(tmp_path / "key.pem")], check=True, capture_output=True)
        user = {"client-certificate": str(certificate[0]), "client-key": "key.pem"}
        assert "the client certificate or its key cannot be used" in refusal(write(tmp_path / "k", user))

    def test_a_plugin_that_is_not_there(self, refusal: Any, tmp_path: Path) -> None:
        user = plugin(tmp_path, "", command="no-such-plugin", installHint="Ask your\nadministrator.")
        assert refusal(write(tmp_path / "k", user)) == (
            "the credential plugin 'no-such-plugin' failed: No such file or directory; Ask your administrator."
        )


def test_no_secret_is_shown(tmp_path: Path) -> None:
    config = load_config(write(tmp_path / "k"))
    assert TOKEN not in repr(config) + str(config)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"- " * 100_000, id="nested in lists"),
        pytest.param(b"\xff\xfe" + b"[\0" * 100_000, id="nested in UTF-16"),
        pytest.param(b'{"current-context": "a", "contexts": [null], "clusters": [], "users": []}', id="a null context"),
        pytest.param(
            b'{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "c"}}], "users": [], '
            b'"clusters": [{"name": "c", "cluster": {"server": "http://["}}]}',
            id="no URL",
        ),
    ],
)
def test_a_malformed_kubeconfig_is_one_error_and_does_not_end_the_process(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config"
    path.write_bytes(content)
    with pytest.raises(KubeconfigError, match="kubeconfig"):
        find_config(str(path))


def test_overrides_are_never_saved_with_the_tokens_that_the_client_refreshes(tmp_path: Path) -> None:
    """The client writes the whole file when it has refreshed an OIDC token."""
    from kubernetes.config.kube_config import KubeConfigMerger

    from tfjob_controller.kube.config.libraryconfig import _overridden

    path = write(tmp_path / "k")
    merger = KubeConfigMerger(path)
    overrides = ConfigOverrides(server="https://other.test")
    changed = _overridden(merger.config, "clusters", "c", "", overrides.cluster_entry)
    assert changed.value["server"] == "https://other.test"
    assert merger.config_files == merger.config_saved
