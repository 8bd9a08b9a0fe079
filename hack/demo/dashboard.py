"""Starts a cluster with a dozen jobs in all states, and the dashboard that shows them.

The jobs run, wait as gangs, fail, are elastic, suspended or finished. Ctrl-C ends the dashboard; the cluster stays, so
that a second call shows the same jobs, until `make cluster-down NAME=demo-dashboard`.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from demo import autoscale
from demo.dashboardjobs import FIRST_GANG, jobs
from demo.ownstage import kept_stage, start_programs
from demo.play import exit_code
from demo.screen import Screen
from demo.stage import NAMESPACE, Stage, end_command, wait
from localcluster import images
from localcluster.controlplane import ControlPlane
from tfjob_controller.kubectl.cli import main as kubectl_tfjob

CLUSTER = replace(autoscale.CLUSTER, name="demo-dashboard", images=(images.BASE,))
RESOURCE_PATHS = {
    kind: f"/apis/kubeflow.org/{version}/namespaces/{NAMESPACE}/{kind.lower()}s"
    for kind, version in (("TFJob", "v1alpha1"), ("TrainJob", "v2alpha1"))
}
_TIMEOUT_SECONDS = 120.0


def main(arguments: Sequence[str]) -> int:
    """Serves the dashboard until Ctrl-C and returns the exit code."""
    argparse.ArgumentParser(prog="make demo-dashboard", description=__doc__).parse_args(arguments)
    screen = Screen(Console(highlight=False))
    return exit_code(screen, lambda: _serve(prepare(screen)))


def _serve(stage: Stage) -> bool:
    kubeconfig = stage.kubectl.kubeconfig
    stage.screen.step("kubectl tfjob dashboard --all-namespaces")
    stage.screen.detail(f"export KUBECONFIG={kubeconfig}     # for kubectl")
    stage.screen.detail(f"{end_command(stage.folder)}     # stops all of it")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    raise SystemExit(kubectl_tfjob(["dashboard", "--all-namespaces", "--no-browser"]))


def prepare(screen: Screen) -> Stage:
    """Returns the stage with the jobs. After an error, nothing that was started remains."""
    return kept_stage(screen, CLUSTER, _fill)


def _fill(plane: ControlPlane, stage: Stage) -> None:
    start_programs(plane, stage.screen, CLUSTER)
    create_jobs(stage)


def create_jobs(stage: Stage) -> None:
    """Creates the jobs; later ones wait for the first gang, whose GPUs they would get on a busy machine."""
    created = jobs()
    stage.screen.step(f"kubectl create: {', '.join(job['metadata']['name'] for job in created)}")
    for job in created:
        path, name = RESOURCE_PATHS[job["kind"]], job["metadata"]["name"]
        stage.api.create(path, job)
        if name == FIRST_GANG:
            is_scheduled = functools.partial(_is_scheduled, stage, f"{path}/{name}")
            wait(is_scheduled, _TIMEOUT_SECONDS, f"{name} to get capacity")


def _is_scheduled(stage: Stage, path: str) -> bool:
    conditions = stage.api.get(path).get("status", {}).get("conditions", ())
    return any(condition["type"] == "Scheduled" and condition["status"] == "True" for condition in conditions)
