"""The component `dashboard` on real nodes, with the commands of its page: people log in with tokens of their own."""

from __future__ import annotations

import http.client
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from helpers import deployed
from helpers.cluster import Cluster, new_token
from helpers.deployed import SYSTEM
from helpers.docs import section
from helpers.docsshell import Shell, run_all
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from localcluster import binaries, images
from localcluster import nodes as nodes_module

pytestmark = pytest.mark.nodes

PAGE, HEADING = "docs/dashboard.md", "## One dashboard for a team"
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"


@contextmanager
def forwarded(kubectl: Kubectl) -> Iterator[int]:
    """Yields the port of this machine that leads to the dashboard."""
    command = [str(binaries.ensure("kubectl")), "--kubeconfig", str(kubectl.kubeconfig), "-n", SYSTEM]
    command += ["port-forward", "service/tfjob-dashboard", ":443"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline().partition(" -> ")[0].rpartition(":")[2])
        finally:
            process.terminate()


class Browser:
    """Sends requests as a browser that trusts the certificate and keeps the cookie."""

    def __init__(self, port: int, certificate: Path) -> None:
        # Another port than that of the page's `kubectl port-forward`.
        self._host = f"localhost:{port}"
        self._port, self._context = port, ssl.create_default_context(cafile=str(certificate))
        self._cookie = ""

    def send(self, method: str, path: str, body: str = "") -> tuple[int, str]:
        connection = http.client.HTTPSConnection("localhost", self._port, context=self._context, timeout=60)
        headers = {"Host": self._host, "Origin": f"https://{self._host}", "Cookie": self._cookie}
        headers |= {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        connection.request(method, path, body or None, headers)
        answer = connection.getresponse()
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).partition(";")[0]
        text = answer.read().decode()
        connection.close()
        return answer.status, text


def test_a_team_has_a_dashboard_without_rights_of_its_own(
    own_nodes: Cluster, tmp_path: Path, space: str, kubectl: Kubectl
) -> None:
    with deployed.installed(own_nodes, "standalone", tmp_path / "installed", "dashboard") as system:
        shell = Shell(tmp_path / "reader", own_nodes.kubeconfig)
        run_all(shell, section(PAGE, HEADING))
        nodes_module.load_image(own_nodes.folder, images.BASE)
        job = deployed.brief_job("seen", gang=False)
        own_nodes.api.create(f"/apis/kubeflow.org/v1alpha1/namespaces/{space}/tfjobs", job)
        kubectl.must("create", "serviceaccount", "viewer")
        kubectl.must("create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={space}:viewer")
        with forwarded(system) as port:
            browser = Browser(port, shell.folder / "tls.crt")
            status, text = browser.send("GET", "/login")
            assert (status, "Log in" in text) == (200, True)
            status, _ = browser.send("POST", "/login", urlencode({"token": new_token(own_nodes.api, space, "viewer")}))
            assert status == 303
            eventually(lambda: ">seen</a>" in browser.send("GET", f"/jobs?namespace={space}")[1], 120)
            assert "You may not list jobs" in browser.send("GET", f"/jobs?namespace={SYSTEM}")[1]
        (pod,) = own_nodes.api.list(PODS, "app=tfjob-dashboard")
        assert not any("serviceAccountToken" in str(volume) for volume in pod["spec"]["volumes"])
