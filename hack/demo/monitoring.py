"""Starts a cluster with jobs in all states and a Prometheus in it, which scrapes the shipped Deployments.

Prometheus has the shipped configuration, rights, rules and alerts. The cluster stays until
`make cluster-down NAME=demo-monitoring`. With --pictures, it draws the panels of the shipped dashboards from what
Prometheus has after some minutes, and the cluster ends, unless it was there.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import urllib3
import yaml
from rich.console import Console

from demo import prometheuspod
from demo.autoscalestage import give_gpus
from demo.crds import apply_crds
from demo.dashboard import RESOURCE_PATHS
from demo.dashboardjobs import jobs
from demo.follow import DemoError
from demo.keptcluster import is_running, kept_cluster
from demo.kubectl import Kubectl, KubectlError
from demo.prometheuspod import COMPONENT, PROMETHEUS_NAMESPACE
from demo.screen import Screen
from demo.steps import ROOT, RUNTIMES
from localcluster import binaries, images, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError

NAME = "demo-monitoring"
OVERLAY = "manifests/overlays/gang-scheduling"
_SYSTEM = "tfjob-system"
_IMAGES = (images.BASE, images.CONTROLLER, images.KUBE_SCHEDULER)
_DEPLOYMENTS = ("tfjob-controller", "gang-scheduler")
# Two replicas each.
_TARGETS = 4
_READY_SECONDS, _POLL_SECONDS = 120, 1.0


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make demo-monitoring", description=__doc__)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="draw the dashboards there, and end")
    parser.add_argument("--seconds", type=int, default=300, help="how long Prometheus observes before (default: 300)")
    given = parser.parse_args()
    screen = Screen(Console(highlight=False))
    was_there = is_running(NAME)
    try:
        url = prepare(screen)
        if given.pictures is None:
            _say_what_to_do(url, screen)
            return 0
        _draw(url, given.pictures, given.seconds, screen)
    except (DemoError, KubectlError, LocalClusterError) as error:
        screen.error(str(error))
        return 1
    if not was_there:
        stack.down(state.stack_dir(NAME), lambda _: None)
    return 0


def prepare(screen: Screen) -> str:
    """Returns the address of a Prometheus that observes jobs. After an error, nothing that was started remains."""
    tools = ("kubectl", "prometheus")
    plane = kept_cluster(NAME, _IMAGES, screen, lambda plane: _fill(plane, screen), tools)
    return _await_ready(Api.from_kubeconfig(plane.kubeconfig))


def _fill(plane: ControlPlane, screen: Screen) -> None:
    """Installs this project's programs and Prometheus, and creates the jobs."""
    program = binaries.ensure("kubectl", screen.detail)
    system, observing = (Kubectl(program, plane.kubeconfig, name) for name in (_SYSTEM, PROMETHEUS_NAMESPACE))
    api = Api.from_kubeconfig(plane.kubeconfig)
    give_gpus(api)
    screen.detail(apply_crds(system, ROOT).replace("\n", "  "))
    screen.step(f"kubectl apply -k {OVERLAY}")
    system.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    system.run("apply", "--server-side", "-k", str(ROOT / OVERLAY))
    screen.step("Prometheus in the namespace monitoring, with the shipped configuration and rights")
    manifest = yaml.safe_dump_all(prometheuspod.objects(binaries.ensure("prometheus", screen.detail)))
    observing.run("apply", "-f", "-", stdin=manifest)
    system.run("apply", "-f", str(COMPONENT / "prometheus" / "rbac.yaml"))
    for name in _DEPLOYMENTS:
        system.run("rollout", "status", f"deployment/{name}", "--timeout=50s")
    _await_targets(_await_ready(api))
    created = list(jobs())
    screen.step(f"kubectl create: {', '.join(each['metadata']['name'] for each in created)}")
    for each in created:
        api.create(RESOURCE_PATHS[each["kind"]], each)


def _await_ready(api: Api) -> str:
    """Returns the address of Prometheus, once it is ready. Raises `DemoError`."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        status = api.get(prometheuspod.POD_PATH).get("status", {})
        if any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ())):
            return f"http://{status['podIP']}:{prometheuspod.PORT}"
        time.sleep(_POLL_SECONDS)
    raise DemoError(
        f"Prometheus was not ready within {_READY_SECONDS} s: kubectl -n monitoring describe pod prometheus"
    )


def _await_targets(url: str) -> None:
    """Waits until all replicas are scraped, so that no event of a job is missed. Raises `DemoError`."""
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if len(_asked(url, "up == 1")) == _TARGETS:
            return
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"not all {_TARGETS} replicas were scraped within {_READY_SECONDS} s: curl -s {url}/api/v1/targets")


def _asked(url: str, query: str) -> list[dict[str, Any]]:
    """Returns the series that a query selects."""
    fields = {"query": query}
    answer = urllib3.request("GET", f"{url}/api/v1/query", fields=fields, timeout=30.0, retries=False)
    found: list[dict[str, Any]] = answer.json()["data"]["result"]
    return found


def _say_what_to_do(url: str, screen: Screen) -> None:
    screen.step("what Prometheus scrapes, and which alerts fire:")
    screen.detail(f"curl -s {url}/api/v1/targets")
    screen.detail(f"curl -s {url}/api/v1/alerts")
    screen.detail("make pictures     # draws the panels of the dashboards, in docs/img")
    screen.detail(f"make cluster-down NAME={NAME}     # stops all of it")


def _draw(url: str, folder: Path, seconds: int, screen: Screen) -> None:
    """Draws the dashboards when Prometheus has observed for so long."""
    # Only this needs matplotlib.
    from demo.pictures import draw_all

    _await_history(url, seconds, screen)
    boards = sorted((COMPONENT / "dashboards").glob("*.json"))
    for path in draw_all(url, boards, folder, seconds):
        screen.output(f"  {path}")


def _await_history(url: str, seconds: int, screen: Screen) -> None:
    screen.step(f"Prometheus observes the jobs for {seconds} s")
    scrapes = seconds / float(prometheuspod.INTERVAL.removesuffix("s"))
    deadline = time.monotonic() + 2 * seconds + _READY_SECONDS
    while time.monotonic() < deadline:
        counts = [int(each["value"][1]) for each in _asked(url, f"count_over_time(up[{2 * seconds}s])")]
        if counts and max(counts) >= scrapes:
            return
        time.sleep(_POLL_SECONDS)
    raise DemoError(f"no target was scraped for {seconds} s: curl -s {url}/api/v1/targets")


if __name__ == "__main__":
    sys.exit(main())
