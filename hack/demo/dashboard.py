"""Starts a cluster with a dozen jobs in all states, and the dashboard that shows them.

The jobs run, wait as gangs, fail, are elastic, suspended or finished. Ctrl-C ends the dashboard; the cluster stays, so
that a second call shows the same jobs, until `make cluster-down NAME=demo-dashboard`.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from demo.autoscalestage import AUTOSCALING, give_gpus
from demo.crds import apply_crds
from demo.dashboardjobs import FIRST_GANG, Object, jobs
from demo.follow import DemoError
from demo.keptcluster import kept_cluster
from demo.kubectl import Kubectl, KubectlError
from demo.ownstage import start_programs
from demo.play import INTERRUPTED
from demo.screen import Screen
from demo.steps import ROOT, RUNTIMES
from localcluster import binaries, images
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.errors import LocalClusterError
from tfjob_controller.kubectl.cli import main as kubectl_tfjob

NAME = "demo-dashboard"
NAMESPACE = "default"
_TIMEOUT_SECONDS, _POLL_SECONDS = 120.0, 0.2
RESOURCE_PATHS = {
    kind: f"/apis/kubeflow.org/{version}/namespaces/{NAMESPACE}/{kind.lower()}s"
    for kind, version in (("TFJob", "v1alpha1"), ("TrainJob", "v2alpha1"))
}


def main() -> int:
    """Runs the demo until Ctrl-C and returns the exit code."""
    argparse.ArgumentParser(prog="make demo-dashboard", description=__doc__).parse_args()
    screen = Screen(Console(highlight=False))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # like Ctrl-C
    try:
        kubeconfig = prepare(screen)
    except (DemoError, KubectlError, LocalClusterError) as error:
        screen.error(str(error))
        return 1
    except KeyboardInterrupt:
        screen.step("interrupted: everything that the demo started is stopped")
        return INTERRUPTED
    screen.step("kubectl tfjob dashboard --all-namespaces")
    screen.detail(f"export KUBECONFIG={kubeconfig}     # for kubectl")
    screen.detail(f"make cluster-down NAME={NAME}     # stops all of it")
    os.environ["KUBECONFIG"] = str(kubeconfig)
    return kubectl_tfjob(["dashboard", "--all-namespaces", "--no-browser"])


def prepare(screen: Screen) -> Path:
    """Returns the kubeconfig of a cluster with the jobs. After an error, nothing that was started remains."""
    return kept_cluster(NAME, [images.BASE], screen, lambda plane: _fill(plane, screen)).kubeconfig


def _fill(plane: ControlPlane, screen: Screen) -> None:
    """Installs the kinds, starts the programs, and creates the jobs."""
    kubectl = Kubectl(binaries.ensure("kubectl", screen.detail), plane.kubeconfig, NAMESPACE)
    screen.detail(apply_crds(kubectl, ROOT).replace("\n", "  "))
    kubectl.run("apply", "--server-side", "-k", str(ROOT / RUNTIMES))
    api = Api.from_kubeconfig(plane.kubeconfig)
    give_gpus(api)
    start_programs(plane, screen, AUTOSCALING)
    created = list(jobs())
    screen.step(f"kubectl create: {', '.join(each['metadata']['name'] for each in created)}")
    for each in created:
        api.create(RESOURCE_PATHS[each["kind"]], each)
        if each["metadata"]["name"] == FIRST_GANG:
            # On a busy machine a later gang would come first, and take its GPUs.
            _await_capacity(api, each)


def _await_capacity(api: Api, job: Object) -> None:
    path, deadline = f"{RESOURCE_PATHS[job['kind']]}/{FIRST_GANG}", time.monotonic() + _TIMEOUT_SECONDS
    while not _is_scheduled(api.get(path)):
        if time.monotonic() > deadline:
            raise DemoError(f"{FIRST_GANG} got no capacity within {_TIMEOUT_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _is_scheduled(job: Object) -> bool:
    found = job.get("status", {}).get("conditions", ())
    return any(each["type"] == "Scheduled" and each["status"] == "True" for each in found)


if __name__ == "__main__":
    sys.exit(main())
