"""Starts a cluster with jobs in all states and a Prometheus in it, which scrapes the shipped Deployments.

Prometheus has the shipped configuration, rights, rules and alerts. The cluster stays until
`make cluster-down NAME=demo-monitoring`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import urllib3
from rich.console import Console

from demo import autoscale, prometheuspod
from demo.dashboard import create_jobs
from demo.kubectl import Kubectl
from demo.ownstage import kept_stage
from demo.play import exit_code
from demo.prometheuspod import COMPONENT, PROMETHEUS_NAMESPACE
from demo.screen import Screen
from demo.stage import ROOT, Stage, end_command, wait
from localcluster import binaries, images
from localcluster.controlplane import ControlPlane

CLUSTER = replace(
    autoscale.CLUSTER,
    name="demo-monitoring",
    images=(images.BASE, images.CONTROLLER, images.KUBE_SCHEDULER),
    tools=("kubectl", "prometheus"),
)
OVERLAY = "manifests/overlays/gang-scheduling"
_SYSTEM = "tfjob-system"
_DEPLOYMENTS = ("tfjob-controller", "gang-scheduler")
# Two replicas each.
_TARGETS = 4
_READY_SECONDS = 120


def main(arguments: Sequence[str]) -> int:
    """Prepares the cluster, says what can be read there, and returns the exit code."""
    argparse.ArgumentParser(prog="make demo-monitoring", description=__doc__).parse_args(arguments)
    screen = Screen(Console(highlight=False))
    return exit_code(screen, lambda: _describe(kept_stage(screen, CLUSTER, _fill)))


def _fill(plane: ControlPlane, stage: Stage) -> None:
    """Installs this project's programs and Prometheus, and creates the jobs."""
    screen, program = stage.screen, stage.kubectl.binary
    system, observing = (Kubectl(program, plane.kubeconfig, name) for name in (_SYSTEM, PROMETHEUS_NAMESPACE))
    screen.step(f"kubectl apply -k {OVERLAY}")
    system.run("apply", "--server-side", "-k", str(ROOT / OVERLAY))
    screen.step("Prometheus in the namespace monitoring, with the shipped configuration and rights")
    replace(stage, kubectl=observing).apply(*prometheuspod.objects(binaries.ensure("prometheus", screen.detail)))
    system.run("apply", "-f", str(COMPONENT / "prometheus" / "rbac.yaml"))
    for name in _DEPLOYMENTS:
        system.run("rollout", "status", f"deployment/{name}", "--timeout=50s")
    url = _await_ready(stage)
    # No event of a job is to be missed.
    what = f"all {_TARGETS} replicas to be scraped: curl -s {url}/api/v1/targets"
    wait(lambda: _count_of_targets(url) == _TARGETS, _READY_SECONDS, what)
    create_jobs(stage)


def _await_ready(stage: Stage) -> str:
    """Returns the address of Prometheus, once it is ready."""
    wait(
        lambda: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in stage.api.get(prometheuspod.POD_PATH).get("status", {}).get("conditions", ())
        ),
        _READY_SECONDS,
        "Prometheus to be ready: kubectl -n monitoring describe pod prometheus",
    )
    return f"http://{stage.api.get(prometheuspod.POD_PATH)['status']['podIP']}:{prometheuspod.PORT}"


def _count_of_targets(url: str) -> int:
    fields = {"query": "up == 1"}
    answer = urllib3.request("GET", f"{url}/api/v1/query", fields=fields, timeout=30.0, retries=False)
    return len(answer.json()["data"]["result"])


def _describe(stage: Stage) -> bool:
    url = _await_ready(stage)
    stage.screen.step("what Prometheus scrapes, and which alerts fire:")
    stage.screen.detail(f"curl -s {url}/api/v1/targets")
    stage.screen.detail(f"curl -s {url}/api/v1/alerts")
    stage.screen.detail(f"{end_command(stage.folder)}     # stops all of it")
    return True
