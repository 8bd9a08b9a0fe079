"""The dashboard as a program, in both ways in which it runs, and what tests do with its pages."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from playwright.sync_api import Page, expect

from helpers.cluster import Cluster, new_token
from helpers.kubectl import Kubectl
from helpers.plugin import program
from helpers.poll import eventually
from localcluster import ports
from localcluster.api import Api

HOSTILE = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>\x1b[31m'\"`"


@dataclass(frozen=True, slots=True)
class RunningDashboard:
    """`kubectl tfjob dashboard`: its address with the one-time token, and its process."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def running_dashboard(*arguments: str, opens_browser: bool = False) -> Iterator[RunningDashboard]:
    """Starts `kubectl tfjob dashboard`."""
    flags = () if opens_browser else ("--no-browser",)
    with program("dashboard", *flags, *arguments) as running:
        assert running.stdout is not None
        yield RunningDashboard(running.stdout.readline().strip(), running)


@contextmanager
def dashboard(kubeconfig: Path, *arguments: str) -> Iterator[str]:
    """Starts `kubectl tfjob dashboard`; its address with the one-time token."""
    with running_dashboard("--kubeconfig", str(kubeconfig), *arguments) as running:
        yield running.address


def origin_of(address: str) -> str:
    """Scheme, host and port of an address."""
    return "{0.scheme}://{0.netloc}".format(urlsplit(address))


@dataclass(frozen=True, slots=True)
class SharedDashboard:
    """`tfjob-controller dashboard`: its address, its process, and the file that has all its output."""

    address: str
    process: subprocess.Popen[bytes]
    output: Path


@contextmanager
def shared_dashboard(cluster: Cluster, folder: Path, *flags: str, port: int = 0) -> Iterator[SharedDashboard]:
    """The program for many people, which has no credentials. It must end in an orderly way. Port 0 is a free one."""
    (named,) = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"]
    authority, output = folder / "ca.crt", folder / "output"
    authority.write_bytes(base64.b64decode(named["cluster"]["certificate-authority-data"]))
    with ports.reserve(1, "127.0.0.1") as (free,), output.open("wb") as sink:
        port = port or free
        given = {
            "--dashboard-bind-address": f"127.0.0.1:{port}",
            "--api-server": named["cluster"]["server"],
            "--api-server-ca-file": str(authority),
        }
        command = [sys.executable, "-m", "tfjob_controller", "dashboard", *(f"{name}={given[name]}" for name in given)]
        environment = {**os.environ, "KUBECONFIG": "/nowhere"}
        with subprocess.Popen([*command, *flags], env=environment, stdout=sink, stderr=sink) as running:
            address = f"http://127.0.0.1:{port}"
            try:
                eventually(lambda: is_served(address), timeout=60)
                yield SharedDashboard(address, running, output)
            finally:
                running.terminate()
            assert running.wait(30) == 0


def is_served(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def log_in(page: Page, address: str, token: str) -> None:
    page.goto(address)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()


def account(kubectl: Kubectl, api: Api, name: str, namespace: str = "", role: str = "") -> str:
    """A token of a new service account, which has the role in the namespace if there is one."""
    kubectl.must("create", "serviceaccount", name)
    if role:
        subject = f"--serviceaccount={kubectl.namespace}:{name}"
        binding = f"{kubectl.namespace}-{name}"
        kubectl.must("create", "rolebinding", binding, "-n", namespace, f"--clusterrole={role}", subject)
    return new_token(api, kubectl.namespace, name)


# What the browser reports of a page with the status of an error, and htmx of a request that ends with its page.
_HARMLESS = (
    "Failed to load resource: the server responded with a status of ",
    "htmx:afterRequest, ",
    "htmx:sendError, ",
    "htmx:sendAbort, ",
)


def faults(errors: list[str]) -> list[str]:
    """The reports of a browser's console that are faults of the page."""
    return [each for each in errors if not each.startswith(_HARMLESS)]


def expect_heading(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
